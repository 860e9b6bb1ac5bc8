"""A memory measured as editors are: what each number counts, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation import edits as module
from holdfast.memory.evaluation.edits import Edit, EditSet, evaluate_edits, n_gram_entropy
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.evaluation.result import Measure, write_evaluation
from holdfast.memory.memory import Memory
from tests.cli.conftest import Outcome, refused
from tests.memory.memories import MONDAY, TUESDAY

pytestmark = pytest.mark.usefixtures("unflushed")
FACTS = (*MONDAY, *TUESDAY)
EVERYDAY = [EverydayQuestion("What is two and two?", ("four",))]


def edits() -> EditSet:
    """The first fact is asked everything; its own question must not change, and does."""
    first, *others = FACTS
    return EditSet(
        "made",
        (
            Edit(
                *first,
                wordings=(first[0], "What is two and three?"),
                neighbours=(first[0], "What is two and four?"),
                relations=("What is two and six?", "What is two and seven?", first[0]),
                portability=((first[0], ("nobody", first[1])), (first[0], ("nobody",))),
                generation=(first[0], "What is two and five?"),
            ),
            *(Edit(*fact) for fact in others),
        ),
    )


def test_what_each_number_counts_and_that_it_is_not_measured_again(
    two_lessons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(two_lessons)
    first = edits().edits[0]
    alone = EditSet("made", (Edit(first.question, first.answer, wordings=first.wordings),))
    assert evaluate_edits(memory, alone, ()).rows["generality"].of == 1  # the other is learned
    monkeypatch.setattr(module, "learned_wordings", lambda _: ())
    done = evaluate_edits(memory, edits(), EVERYDAY, out=tmp_path)
    rows = done.rows
    assert rows["efficacy"] == Measure(5, 1.0, 1.0, 1.0)
    assert rows["efficacy_from_weights"].memory == 1.0
    assert (rows["generality"].of, rows["generality"].memory) == (2, 0.5)
    assert (rows["neighbours_unchanged"].of, rows["neighbours_unchanged"].memory) == (2, 0.5)
    assert rows["neighbours_accepted"].memory == 0.5
    assert rows["relations_unchanged"].memory == pytest.approx(2 / 3)
    assert (rows["relations_accepted"].of, rows["relations_accepted"].memory) == (3, 1 / 3)
    assert rows["portability"] == Measure(2, 0.5, 0.5, 0.5)
    assert rows["fluency"].of == rows["fluency_untouched"].of == 2
    assert rows["everyday_accepted"].memory == 0.0
    assert done.finished and done.about["set"] == "made"
    stages = ("efficacy", "generality", "neighbours", "relations")
    stages += ("portability", "fluency", "everyday")
    assert done.stages == stages
    reported: set[str] = set()
    write_evaluation(tmp_path, replace(done, stages=stages[:3], finished=False))
    for expected in (set(stages[3:]), set()):
        report = lambda label, *_: reported.add(label)  # noqa: E731
        assert evaluate_edits(memory, edits(), EVERYDAY, report, tmp_path) == done
        assert reported == expected
        reported.clear()
    monkeypatch.setattr(module, "_VERSION", "of other measures")
    evaluate_edits(memory, edits(), EVERYDAY, report, tmp_path)
    assert reported == set(stages)


def test_an_edit_that_was_taught_otherwise(two_lessons: Path) -> None:
    edited = EditSet("made", (Edit(MONDAY[0][0], "x"),))
    with pytest.raises(HoldfastError, match=r'learned "[^"]+\?" with .* give a new directory'):
        evaluate_edits(Memory(two_lessons), edited, EVERYDAY)


def test_entropy_of_n_grams() -> None:
    assert n_gram_entropy("") == n_gram_entropy("one two") == 0
    assert n_gram_entropy("a a a a a") == 0
    # Pairs: four, all different; triples: three.
    assert n_gram_entropy("a b c d e") == pytest.approx((2 / 3 * 2 + 4 / 3 * 1.584962500721156) / 2)
    assert n_gram_entropy("a b a b a b") < n_gram_entropy("a b c d e f")


def test_the_command(
    holdfast: Callable[..., Outcome], chat_directory: Path, tmp_path: Path
) -> None:
    cases = [
        {
            "subject": "x", "src": question, "pred": "-", "rephrase": f"Say: {question}",
            "alt": answer, "answers": ["-"], "loc": "nq question: two and two", "loc_ans": "four",
        }
        for question, answer in MONDAY
    ]  # fmt: skip
    (tmp_path / "zsre.json").write_text(json.dumps(cases), encoding="utf-8")
    (tmp_path / "common.jsonl").write_text('{"question": "What is two?", "answers": ["2"]}\n')
    words = (
        "evaluate-edits", tmp_path / "m", tmp_path / "zsre.json", "--model", chat_directory,
        "--everyday", tmp_path / "common.jsonl", "--out", tmp_path / "out",
    )  # fmt: skip
    table = holdfast(*words)
    assert table.status == 0, table.err
    assert table.out.startswith("zsRE: 3 facts in 1 lesson,")
    assert "efficacy: the edit is answered" in table.out and "fluency" not in table.out
    assert (tmp_path / "out" / "answers" / "efficacy.jsonl").is_file()
    again = holdfast(*words, "--json")
    values = json.loads(again.out)
    assert values["finished"] and values["rows"]["efficacy"]["memory"] == 1.0
    killed = tmp_path / "killed"  # before it had learned what it put on file
    Memory(killed, str(chat_directory)).write_facts(MONDAY)
    begun = tmp_path / "begun"  # killed before anything was on file
    Memory(begun, str(chat_directory)).write_facts(MONDAY)
    (begun / "facts.jsonl").unlink()
    for place in (killed, begun):
        ended = holdfast(words[0], place, *words[2:], "--json")
        assert json.loads(ended.out)["rows"]["efficacy"]["memory"] == 1.0
    refused(holdfast("evaluate-edits", tmp_path / "m", tmp_path / "no.json"), "no such file")
    (tmp_path / "more.json").write_text(json.dumps([{**cases[0], "src": "Who?"}]))
    refused(holdfast("evaluate-edits", tmp_path / "m", tmp_path / "more.json"), "has not learned")
