"""What the model writes itself: its own answers, once a model, in the cache."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.consolidation import own_texts as module
from holdfast.memory.consolidation.own_texts import OwnTextSettings, own_texts, reply_tokens
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.model.chat_models import chat_llama, chat_tokenizer

FEW = OwnTextSettings(short=30, named=5, chats=6, question=8, tokens=4, chat_tokens=7)
FEWER = replace(FEW, short=4, named=1, chats=1)


@pytest.fixture
def reader() -> PromptReader:
    """Its random weights would not end an answer, so many tokens do."""
    form = chat_form(chat_tokenizer())
    return PromptReader(chat_llama(), replace(form, stops=form.stops | set(range(5, 300, 9))))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    return tmp_path


def test_short_questions_begin_as_given_and_answers_are_the_models_own_greedy_ones(
    reader: PromptReader,
) -> None:
    """Cut at the limit, and with their end only where the model gave it."""
    texts = own_texts(reader, "f" * 64, FEW)
    kinds = Counter(text.kind for text in texts)
    assert kinds["named"] == 5 and kinds["chats"] == 6
    assert 20 <= kinds["short"] <= 30  # the same question is kept once
    behind, decode = len(reader.form.user_end), reader.form.tokenizer.decode
    limits = {"short": 4, "named": 4, "chats": 7}
    ended = 0
    for text in texts:
        limit = limits[text.kind]
        (decoded,) = reader.decode(reader.read([text.question]), limit)
        whole = decoded if len(decoded) == limit else [*decoded, reader.form.end]
        assert list(text.answer) == whole
        ended += text.answer[-1] == reader.form.end
        question = decode(list(text.question[:-behind]))
        assert text.question[-behind:] == reader.form.user_end
        assert "?" not in question[:-1] or text.kind == "named"
        assert text.kind != "short" or question.startswith(module._BEGINNINGS)
    assert 0 < ended < len(texts)


def test_a_reply_that_was_cut_has_no_end(reader: PromptReader) -> None:
    """With one token more to go, its end follows where the model gives it."""
    question = reader.form.question("Who is Ann?")
    (whole,) = reply_tokens(reader, [question], 60)
    assert whole[-1] == reader.form.end and len(whole) > 2
    for limit in range(1, len(whole)):
        assert reply_tokens(reader, [question], limit) == [whole[:limit]]


def test_they_are_written_once_a_model(
    reader: PromptReader, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache answers; another model, other settings, a damaged file do not."""
    first = own_texts(reader, "a" * 64, FEWER)
    (path,) = (own_cache / "own").iterdir()
    content = path.read_bytes()
    reports: list[tuple[int, int]] = []
    assert own_texts(reader, "a" * 64, FEWER, lambda *done: reports.append(done)) == first
    assert not reports
    number = re.search(rb'"answer":\s*\[\s*\d+', content)
    assert number
    digit = number.end() - 1
    flipped = bytes([content[digit] ^ 1])  # another token, and JSON still
    for damage in (
        content[: len(content) // 2],
        b'{"parts": 1, "texts": [{"kind": 1}]}',
        b"7",
        b"[]",
        content[:digit] + flipped + content[digit + 1 :],
    ):
        path.write_bytes(damage)
        assert own_texts(reader, "a" * 64, FEWER) == first
        assert path.read_bytes() == content
    own_texts(reader, "b" * 64, FEWER)
    own_texts(reader, "a" * 64, OwnTextSettings(short=0, named=3, chats=0))
    assert len(list((own_cache / "own").iterdir())) == 3

    def full(*_: object, **__: object) -> None:
        raise HoldfastError("full") from OSError("No space left on device")

    monkeypatch.setattr(module, "write_json", full)
    with pytest.raises(HoldfastError, match="No space left") as caught:
        own_texts(reader, "c" * 64, FEWER)
    assert "\n" not in str(caught.value)


def test_killed_it_goes_on_behind_what_is_in_the_cache(
    reader: PromptReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same texts; nothing that was kept is written again, and progress goes on."""
    monkeypatch.setattr(module, "_PART", 8)
    monkeypatch.setattr(module, "_BATCH", 4)
    monkeypatch.setattr(module, "_BEGINNINGS", module._BEGINNINGS[:8])
    work: list[str] = []
    for name in ("_write_questions", "_questions_about_invented_names", "reply_tokens"):
        real = getattr(module, name)

        def counted(*given: Any, name: str = name, real: Callable[..., Any] = real) -> Any:
            work.append(name)
            return real(*given)

        monkeypatch.setattr(module, name, counted)
    kept: list[Path] = []
    write = module.write_json

    def keep(path: Path, *given: Any, **more: Any) -> None:
        write(path, *given, **more)
        kept.append(path)
        if len(kept) == survived:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_json", keep)
    survived = 0
    whole, all_work, moments = own_texts(reader, "a" * 64, FEW), list(work), len(kept)
    assert moments > len(module._parts(FEW)) + 20
    for survived in range(1, moments, 7):
        work.clear()
        kept.clear()
        with pytest.raises(KeyboardInterrupt):
            own_texts(reader, f"{survived:016}", FEW)
        reports: list[tuple[int, int]] = []
        texts = own_texts(reader, f"{survived:016}", FEW, lambda *now, to=reports: to.append(now))
        assert texts == whole and sorted(work) == sorted(all_work), survived
        assert reports == sorted(reports) and reports[-1][1] == 41
