"""Killed and continued is the same as never stopped, to the byte; other settings are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from experiments.paper.llm_qa import GrammarWriter, LLMQASettings, Request, generate
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream
from tests.experiments.llm_qa.writers import Unreliable, Writer
from tests.refused import line_of

SETTINGS = LLMQASettings(tasks=3, items=7, per_prompt=3)


class Dying(Unreliable):
    """Kills its own process, without a word to anybody, when it is asked too often."""

    def reply(self, request: Request) -> str | Failure:
        if len(self.asked) == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reply(request)


def whole(out: Path, settings: LLMQASettings = SETTINGS) -> tuple[Stream, bytes]:
    return generate(Unreliable(), out, settings), (out / "replies.jsonl").read_bytes()


def test_killed_and_repeated_is_uninterrupted(tmp_path: Path) -> None:
    expected, replies = whole(tmp_path / "whole")
    out = tmp_path / "killed"
    child = (
        "from pathlib import Path\n"
        "from experiments.paper.llm_qa import LLMQASettings, generate\n"
        "from tests.experiments.llm_qa.test_interruption import SETTINGS, Dying\n"
        f"generate(Dying(), Path({str(out)!r}), SETTINGS)\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", child], cwd=root, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    content = (out / "replies.jsonl").read_bytes()
    assert 0 < len(content) < len(replies)
    assert replies.startswith(content)
    stream, continued = whole(out)
    assert (stream, stream.about, continued) == (expected, expected.about, replies)


class Stopping(Unreliable):
    """Stops in a batch of six: by then all replies came, but the one at place ``missing``."""

    def __init__(self, error: BaseException, missing: int) -> None:
        super().__init__(batch=6)
        self.error, self.missing = error, missing

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        for place, reply in super().write(requests):
            if place != self.missing:
                yield place, reply
        raise self.error


@pytest.mark.parametrize("error", [HoldfastError("it stopped answering"), KeyboardInterrupt()])
@pytest.mark.parametrize("missing", [0, 3])
def test_what_came_before_a_writer_stopped_is_kept(
    tmp_path: Path, error: BaseException, missing: int
) -> None:
    def verdicts(items: list[Item]) -> list[bool | Failure]:
        return [len(item.question) % 5 == 0 for item in items]

    expected = generate(Unreliable(), tmp_path / "whole", SETTINGS, known=verdicts)
    replies = (tmp_path / "whole" / "replies.jsonl").read_bytes()
    out = tmp_path / "stopped"
    with pytest.raises(type(error)) as raised:
        generate(Stopping(error, missing), out, SETTINGS, known=verdicts)
    assert raised.value is error
    journal = out / "replies.jsonl"
    content = journal.read_bytes() if journal.exists() else b""
    assert content == b"".join(replies.splitlines(keepends=True)[:missing])
    assert generate(Unreliable(), out, SETTINGS, known=verdicts) == expected
    assert journal.read_bytes() == replies


def refusal(out: Path, settings: LLMQASettings = SETTINGS, writer: Writer | None = None) -> str:
    return line_of(generate, writer or Writer(), out, settings).replace(str(out), "out")


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    whole(tmp_path)
    other = LLMQASettings(tasks=4, items=8, seed=1, per_prompt=2)
    assert refusal(tmp_path, other, Writer(name="another")) == (
        "out: holds replies with other settings (items: 7 -> 8; per_prompt: 3 -> 2; seed: 42 -> 1; "
        'tasks: 3 -> 4; writer: "scripted" -> "another"); choose another directory, or '
        "repeat its settings"
    )
    with pytest.raises(HoldfastError, match="grammar: false -> true"):
        generate(GrammarWriter(), tmp_path, SETTINGS)


def test_a_writer_that_gave_no_reply_may_be_replaced(tmp_path: Path) -> None:
    """A mistyped model, say, is found out by the first request."""
    expected, _ = whole(tmp_path / "whole")
    out = tmp_path / "corrected"
    mistaken = Stopping(HoldfastError("no such model"), missing=0)
    mistaken.name = "mistyped"
    with pytest.raises(HoldfastError, match="no such model"):
        generate(mistaken, out, SETTINGS)
    assert whole(out)[0] == expected


def test_budget_and_order_may_differ(tmp_path: Path) -> None:
    expected, _ = whole(tmp_path)
    settings = SETTINGS.model_copy(update={"budget": 1, "order_seed": 3})
    stream = generate(Writer(), tmp_path, settings)
    assert stream.fingerprint != expected.fingerprint
    assert set(stream.tasks) == set(expected.tasks)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    whole(tmp_path)
    path = tmp_path / "replies.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:9], *lines[3:]]))
    assert refusal(tmp_path) == (
        "out/replies.jsonl line 3: is no record of a reply; remove this line and all after it, "
        "then run the same command again"
    )


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ([1, 0], "line 1: holds task 2 number 1, but task 1 number 1 was due"),
        (None, "no other reply was due"),
    ],
)
def test_lines_that_do_not_belong_are_refused(
    tmp_path: Path, order: list[int] | None, reason: str
) -> None:
    whole(tmp_path)
    path = tmp_path / "replies.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[i] for i in order] if order else [*lines, lines[0]]))
    assert reason in refusal(tmp_path)
