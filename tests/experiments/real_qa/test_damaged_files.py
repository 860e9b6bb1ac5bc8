"""What is no published file is refused in one line, and nothing else escapes, whatever it holds."""

from __future__ import annotations

import gzip
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.paper.real_qa.records import read_files
from experiments.paper.real_qa.sources import SOURCES
from holdfast.core.errors import HoldfastError

from .invented import (
    NAMES,
    NQ_OPEN,
    POPQA,
    POPQA_COLUMNS,
    PUBLISHED,
    archive,
    array,
    lines,
    read,
    refusal,
    tsv,
)

SQUAD_OF_NOTHING = array({"data": [{"title": "t", "paragraphs": [{"context": "c"}]}]})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nq_open", b'{"question": "q"}\n', 'line 1: is of another form ("answer" is missing)'),
        ("nq_open", lines(NQ_OPEN) + b"[1]\n", "NQ-open.dev.jsonl line 3: is of another form"),
        ("nq_open", lines(NQ_OPEN) + b"{\n", "NQ-open.dev.jsonl line 3: is no JSON (Expecting"),
        ("nq_open", b'{"question": "q", "answer": "a"}', "(a list is expected, not 'a')"),
        ("nq_open", lines(NQ_OPEN) + b"\xff", "NQ-open.dev.jsonl line 3: is no UTF-8 text"),
        ("nq_open", b" \n", "NQ-open.dev.jsonl: holds no records"),
        ("nq_open", b"[" * 100_000, "NQ-open.dev.jsonl line 1: is no JSON"),
        ("medmcqa", lines([{"cop": 1, "id": "q"}]), "line 1: is of another form"),
        ("popqa", tsv([POPQA_COLUMNS]), "popQA.tsv: holds no records"),
        ("popqa", tsv([POPQA_COLUMNS[:4], POPQA[0][:4]]), "popQA.tsv line 2: "),
        ("popqa", tsv([POPQA_COLUMNS, POPQA[0][:4]]), "line 2: is no row of the table (4 cells,"),
        ("popqa", b'id\tobj\n"1\tx\n2\ty\n', "popQA.tsv line 2: is no row of the table"),
        ("sciq", b"{}", "valid.json: holds no list of records"),
        ("sciq", b"[]", "valid.json: holds no records"),
        ("sciq", b"[{}, 3]", 'json record 1: is of another form ("question" is missing)'),
        ("squad", b"[]", "train-v1.1.json: is of another form"),
        ("squad", SQUAD_OF_NOTHING, "train-v1.1.json: is of another form ('qas')"),
        ("triviaqa", b'{"Data": 1}', "unfiltered-web-dev.json: holds no list of records"),
        ("triviaqa", b'{"Data": [{"Answer": {}}]}', "json record 1: is of another form"),
        ("webquestions", b"[null]", "record 1: is of another form"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    refused = refusal(lambda: read(tmp_path, name, content), tmp_path)
    assert message in refused
    assert refused.endswith(f"give published files of {name}: {', '.join(SOURCES[name].patterns)}")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.json", tmp_path):
        assert "cannot be read" in refusal(lambda path=path: read_files("sciq", [path]), tmp_path)
    assert "no published files" in refusal(lambda: read_files("sciq", []), tmp_path)


def test_an_archive_that_is_none_or_holds_nothing_is_refused(tmp_path: Path) -> None:
    whole = archive({"qa/web-dev.json": random.Random(1).randbytes(5000)})
    name = "triviaqa-rc.tar.gz"
    for content, said_of_it in [
        (whole[:3000], ": is no whole archive"),
        (b"no archive", ": is no whole archive"),
        (archive({"evidence/a.json": b"{}"}), ": holds no records"),
        (archive({"qa/web-dev.json": b"{"}), "/qa/web-dev.json: is no JSON"),
        (gzip.compress(b"x" * 2000), ": is no whole archive"),
    ]:
        message = refusal(partial(read, tmp_path, "triviaqa", content, name), tmp_path)
        assert message.startswith(f"{name}{said_of_it}")
        assert "give published files of triviaqa" in message


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def refused(folder: Path, name: str, file: str, content: bytes) -> str:
    """The refusal of a file, empty when it was read; nothing else escapes."""
    path = folder / file
    path.write_bytes(content)
    try:
        reading = read_files(name.split()[0], [path])
    except HoldfastError as error:
        return str(error)
    assert reading.records == len(reading.candidates) + len(reading.left)
    assert len({candidate.id for candidate in reading.candidates}) == len(reading.candidates)
    for record in reading.left:
        assert len(f"{record.place} {record.reason}".splitlines()) == 1
    for candidate in reading.candidates:
        str(candidate).encode()
        assert candidate.question.strip() and all(candidate.answers)
    return ""


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", " ", "A", "\ud800", "a\nb", "}", "(list (description ", "[", '["x"]']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("text"), inner),
    max_leaves=3,
)


def changed(value: Any, data: st.DataObject) -> Any:
    """The value with one of its parts, at any depth, replaced or removed."""
    if isinstance(value, (dict, list)) and value and data.draw(st.integers(0, 9)):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
        copy: Any = value.copy()
        if data.draw(st.integers(0, 9)):
            copy[key] = changed(value[key], data)
        else:
            del copy[key]
        return copy
    return data.draw(VALUES)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(data=st.data())
def test_no_other_structure_escapes(name: str, data: st.DataObject, scratch: Path) -> None:
    file, content = PUBLISHED[name]
    if file.endswith(".tsv"):
        rows = [POPQA_COLUMNS, *POPQA]
        row, column = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 5))
        texts = data.draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=2))
        rows[row] = [*rows[row][:column], *texts, *rows[row][column + 1 :]]
        content = tsv(rows)
    elif content.startswith((b"[", b'{\n "')):
        content = array(changed(json.loads(content), data))
    else:
        records = [json.loads(line) for line in content.splitlines()]
        content = lines(changed(record, data) for record in records)
    assert len(refused(scratch, name, file, content).splitlines()) <= 1
