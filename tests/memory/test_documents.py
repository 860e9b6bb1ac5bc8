"""Facts from documents: beside what is on file, in a table to read, and learned."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.builders import load, proposals
from holdfast.builders.documents import Passage
from holdfast.builders.prompting import Completing, Writing
from holdfast.builders.proposals import IN_SENTENCE, Proposal
from holdfast.cli import learn as command
from holdfast.core.reporting import NoteReport
from holdfast.memory.answering import Answer, Answerer
from holdfast.memory.documents import sorted_out, write_review
from holdfast.memory.memory import Memory
from holdfast.streams import Item, load_stream
from tests.cli.conftest import refused
from tests.memory.memories import MONDAY, WEDNESDAY, Copied, Holdfast

pytestmark = pytest.mark.usefixtures("unflushed")
SENTENCE = 'The ferry is called "Quill", they say.'


def pair(question: str, answer: str, check: str | None = IN_SENTENCE, reason: str = "") -> Proposal:
    return Proposal(question, answer, SENTENCE, "notes.md", check, reason)


PROPOSALS = [
    pair(*WEDNESDAY[0]),
    pair(MONDAY[0][0].lower(), MONDAY[0][1]),
    pair(MONDAY[2][0], "Quill"),
    pair("Why?", "so", None, "it is no question"),
    pair("How?", "so", None, "it is no question"),
]


def test_beside_what_is_on_file() -> None:
    proposed = sorted_out(PROPOSALS, [Item(*fact) for fact in MONDAY], passages=3)
    assert [proposal.question for proposal in proposed.new] == [WEDNESDAY[0][0]]
    assert [proposal.question for proposal in proposed.known] == [MONDAY[0][0].lower()]
    ((proposal, before),) = proposed.contradicting
    assert (proposal.answer, before) == ("Quill", "Marigold")
    assert proposed.lines() == [
        "3 passages: 1 new fact",
        f"on file already: {MONDAY[0][0].lower()}",
        f"on file is another answer (Marigold): {MONDAY[2][0]} Quill",
        "left out, it is no question: 2",
    ]
    (task,) = proposed.stream("notes.md").tasks
    assert [(item.question, item.answer) for item in task.items] == WEDNESDAY
    assert task.items[0].details == {"source": "notes.md", "sentence": SENTENCE}


def test_the_table_to_read_is_facts(tmp_path: Path) -> None:
    proposed = sorted_out(PROPOSALS, [Item(*fact) for fact in MONDAY], passages=3)
    write_review(proposed, tmp_path / "new" / "facts.csv")
    rows = list(csv.DictReader((tmp_path / "new" / "facts.csv").read_text().splitlines()))
    assert [row["on file"] for row in rows] == ["", "Marigold"]
    (task,) = load_stream(tmp_path / "new" / "facts.csv").tasks
    asked = [(item.question, item.answer) for item in task.items]
    assert asked == [*WEDNESDAY, (MONDAY[2][0], "Quill")]
    assert task.items[0].details["sentence"] == SENTENCE
    write_review(sorted_out(PROPOSALS[:1], [], 1), tmp_path / "facts.csv")
    assert (tmp_path / "facts.csv").read_text().splitlines()[0] == "question,answer,source,sentence"


def test_other_words_for_what_is_on_file(tmp_path: Path) -> None:
    """With another answer they contradict it; with the same they stay new, and are named."""
    asked: list[str] = []
    in_words = [
        pair("In what place is the brass key?", "at sea"),
        pair("By what name does the ferry go?", "marigold"),
    ]
    known = dict(zip([new.question for new in in_words], MONDAY[1:], strict=True))

    def taken_for(questions: Sequence[str]) -> list[Item | None]:
        asked.extend(questions)
        return [Item(*known[text]) if text in known else None for text in questions]

    facts = [Item(*fact) for fact in MONDAY]
    proposed = sorted_out([*in_words, *PROPOSALS], facts, 1, taken_for)
    assert asked == [*known, WEDNESDAY[0][0]]
    assert [fact.question for fact in proposed.new] == asked[1:]
    key = 'in the mill, if it asks the same as "Where is the brass key?"'
    ferry = 'Marigold, if it asks the same as "What is the ferry called?"'
    lines = proposed.lines()
    assert f"on file is another answer ({key}): In what place is the brass key? at sea" in lines
    assert f"may be on file already ({ferry}): By what name does the ferry go?" in lines
    write_review(proposed, tmp_path / "facts.csv")
    rows = list(csv.DictReader((tmp_path / "facts.csv").read_text().splitlines()))
    assert [row["on file"] for row in rows] == [ferry, "", "Marigold", key]
    sorted_out(in_words, [], 1, taken_for)
    assert len(asked) == 3  # nobody is asked where nothing is on file


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A document, and a proposer that finds the pairs of PROPOSALS in it."""

    class Stand:
        form: Any = None

        def __init__(self, model: Any, form: Any, folder: Path, seed: int) -> None:
            Stand.form = form

        def propose(self, passages: Sequence[Passage], report: NoteReport) -> list[Proposal]:
            assert [passage.text for passage in passages] == [SENTENCE]
            report(1, 1, "passages")
            return PROPOSALS

    monkeypatch.setattr(proposals, "Proposer", Stand)
    path = tmp_path / "notes.md"
    path.write_text(SENTENCE, encoding="utf-8")
    return path


def test_read_then_learn(holdfast: Holdfast, copied: Copied, notes: Path, tmp_path: Path) -> None:
    directory, table = copied(), tmp_path / "facts.csv"
    before = Memory(directory).facts
    outcome = holdfast("learn", directory, notes, "--review", table)
    assert (outcome.status, outcome.out) == (0, f"{table}\n")
    assert "1 passage: 1 new fact\n" in outcome.err
    assert f"to learn them: holdfast learn {directory} {table}" in outcome.err
    assert Memory(directory).facts == before
    assert holdfast("learn", directory, table).status == 0
    learned = {item.question: item.answer for item in Memory(directory).facts}
    assert learned[WEDNESDAY[0][0]] == WEDNESDAY[0][1] and learned[MONDAY[2][0]] == "Quill"


def test_a_named_writer_is_asked_in_a_chat_if_it_takes_part_in_one(
    holdfast: Holdfast, copied: Copied, notes: Path, tmp_path: Path, monkeypatch
) -> None:
    """The memory's own model, which has a template too, may be too small for that."""
    directory, table = copied(), tmp_path / "facts.csv"
    cases = ((None, True, Completing), ("w", True, Writing), ("w", False, Completing))
    for writer, is_chat, form in cases:
        table.unlink(missing_ok=True)
        model = SimpleNamespace(is_chat=is_chat)
        monkeypatch.setattr(load, "text_model", lambda *_, model=model, **__: model)
        named = ("--writer", writer) if writer else ()
        assert holdfast("learn", directory, notes, "--review", table, *named).status == 0
        assert isinstance(cast(Any, proposals.Proposer).form, form)


def test_learn_at_once(holdfast: Holdfast, place: Path, notes: Path) -> None:
    """What contradicts the memory is named and left out."""
    outcome = holdfast("learn", place, notes, "--yes", "--json")
    assert outcome.status == 0 and "on file is another answer (Marigold)" in outcome.err
    memory = Memory(place)
    learned = {item.question: item for item in memory.facts}
    assert learned[MONDAY[2][0]].answer == "Marigold"
    assert learned[WEDNESDAY[0][0]].details["source"] == "notes.md"
    assert memory.tasks[-1].name == "notes.md" and memory.horizon == 3
    again = holdfast("learn", place, notes, "--yes", "--json")
    counts = {"review": None, "passages": 1, "new": 0, "known": 2, "contradicting": 1, "refused": 2}
    assert json.loads(again.out) == counts


def test_a_contradiction_in_other_words_is_left_out(
    holdfast: Holdfast,
    copied: Copied,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Answerer.taught

    def taught(self: Answerer, questions: Sequence[str]) -> list[Any]:
        ferry = Answer("", MONDAY[2][1], "weights", Item(*MONDAY[2]))
        answers = zip(questions, real(self, questions), strict=True)
        return [ferry if text == WEDNESDAY[0][0] else answer for text, answer in answers]

    monkeypatch.setattr(Answerer, "taught", taught)
    directory = copied()
    outcome = holdfast("learn", directory, notes, "--yes", "--json")
    assert (json.loads(outcome.out)["new"], json.loads(outcome.out)["contradicting"]) == (0, 2)
    assert WEDNESDAY[0][0] not in {fact.question for fact in Memory(directory).facts}


def test_no_table_is_written_where_nothing_is_new(
    holdfast: Holdfast, copied: Copied, notes: Path, tmp_path: Path
) -> None:
    directory, table = copied(), tmp_path / "facts.csv"
    assert holdfast("learn", directory, *WEDNESDAY[0]).status == 0
    assert holdfast("learn", directory, MONDAY[2][0], "Quill").status == 0
    outcome = holdfast("learn", directory, notes, "--review", table)
    assert (outcome.status, outcome.out) == (0, "") and not table.exists()
    assert "nothing new is proposed, so no table is written" in outcome.err


def test_bad_input(holdfast: Holdfast, two_lessons: Path, notes: Path, tmp_path: Path) -> None:
    table = tmp_path / "there.csv"
    table.write_text("kept", encoding="utf-8")
    refused(holdfast("learn", two_lessons, notes), "--review FACTS.csv", "--yes")
    both = holdfast("learn", two_lessons, notes, "--yes", "--review", tmp_path / "a.csv")
    refused(both, "--review learns nothing and --yes learns at once")
    (tmp_path / "empty").mkdir()
    refused(holdfast("learn", two_lessons, tmp_path / "empty", "--yes"), "empty has none in it")
    for more in ([], ["--yes"], ["--review", tmp_path / "a.csv"]):
        refused(holdfast("learn", two_lessons, tmp_path / "no.md", *more), "no.md: no such file")
    refused(holdfast("learn", two_lessons, notes, "--review", table), "exists")
    refused(holdfast("learn", two_lessons, notes, "--review", tmp_path / "a.xlsx"), ".csv")
    refused(holdfast("learn", two_lessons, "Why?", "So", "--yes"), "are for documents")
    assert table.read_text() == "kept"


def test_a_stream_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "stream.jsonl").write_text('{"question": "a?", "answer": "b"}\n', encoding="utf-8")
    (tmp_path / "README.md").write_text("A stream.", encoding="utf-8")
    assert not command.is_document(str(tmp_path))
    assert command.is_document(str(tmp_path / "README.md"))
    assert not command.is_document("-") and not command.is_document(None)
    assert not command.is_document([("a", "b")])
