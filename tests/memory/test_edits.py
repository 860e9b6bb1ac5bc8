"""A memory measured as editors are: what each number counts, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation.edit_sets import Edit, EditSet
from holdfast.memory.evaluation.edits import evaluate_edits, n_gram_entropy
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.evaluation.result import Measure
from holdfast.memory.memory import Memory
from tests.cli.conftest import Outcome, refused
from tests.memory.memories import MONDAY, TUESDAY

pytestmark = pytest.mark.usefixtures("unflushed")
FACTS = (*MONDAY, *TUESDAY)
EVERYDAY = [EverydayQuestion("What is two and two?", ("four",))]


def edits() -> EditSet:
    """The first fact is asked everything; its own question is one of its neighbours."""
    first, *others = FACTS
    return EditSet(
        "made",
        (
            Edit(
                *first,
                wordings=(first[0], "What is two and three?"),
                neighbours=(first[0], "What is two and four?"),
                portability=((first[0], ("nobody", first[1])), (first[0], ("nobody",))),
                generation=(first[0], "What is two and five?"),
            ),
            *(Edit(*one) for one in others),
        ),
    )


def test_what_each_number_counts(two_lessons: Path) -> None:
    kept: list[str] = []
    found = evaluate_edits(
        Memory(two_lessons), edits(), EVERYDAY, keep=lambda now, rows: kept.extend(now.stages[-1:])
    )
    rows = found.rows
    assert rows["efficacy"] == Measure(5, 1.0, 1.0, 1.0)
    assert rows["efficacy_from_weights"].memory == 1.0
    assert (rows["generality"].of, rows["generality"].memory) == (2, 0.5)
    assert (rows["neighbours_unchanged"].of, rows["neighbours_unchanged"].memory) == (2, 0.5)
    assert rows["neighbours_accepted"].memory == 0.5
    assert rows["portability"] == Measure(2, 0.5, 0.5, 0.5)
    assert rows["fluency"].of == rows["fluency_untouched"].of == 2
    assert rows["everyday_accepted"].memory == 0.0
    assert found.finished and found.about["set"] == "made"
    assert list(found.stages) == [
        "efficacy", "generality", "locality", "portability", "fluency", "everyday",
    ]  # fmt: skip
    assert list(dict.fromkeys(kept)) == list(found.stages)


def test_what_is_measured_is_not_measured_again(two_lessons: Path) -> None:
    memory = Memory(two_lessons)
    states = []
    evaluate_edits(memory, edits(), EVERYDAY, keep=lambda now, rows: states.append(now))
    half, done = states[3], states[-1]
    assert half.stages == ("efficacy", "generality", "locality") and done.finished
    told: set[str] = set()
    again = evaluate_edits(
        memory, edits(), EVERYDAY, lambda what, *_: told.add(what), lambda identity: half
    )
    assert told == {"portability", "fluency", "everyday"} and again.rows == done.rows
    assert evaluate_edits(memory, edits(), EVERYDAY, before=lambda identity: done) is done


@pytest.mark.parametrize("edit", [Edit("Who is that?", "x"), Edit(MONDAY[0][0], "x")])
def test_an_edit_that_was_not_taught(two_lessons: Path, edit: Edit) -> None:
    with pytest.raises(HoldfastError, match=r"has not learned .* give a new directory"):
        evaluate_edits(Memory(two_lessons), EditSet("made", (edit,)), EVERYDAY)


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
    shown = holdfast(*words)
    assert shown.status == 0, shown.err
    assert shown.out.startswith("zsRE: 3 facts in 1 lessons")
    assert "efficacy: the edit is answered" in shown.out and "fluency" not in shown.out
    assert (tmp_path / "out" / "answers" / "efficacy.jsonl").is_file()
    again = holdfast(*words, "--json")
    values = json.loads(again.out)
    assert values["finished"] and values["rows"]["efficacy"]["memory"] == 1.0
    refused(holdfast("evaluate-edits", tmp_path / "m", tmp_path / "no.json"), "no such file")
    (tmp_path / "more.json").write_text(json.dumps([{**cases[0], "src": "Who?"}]))
    refused(holdfast("evaluate-edits", tmp_path / "m", tmp_path / "more.json"), "has not learned")
