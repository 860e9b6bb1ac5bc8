"""Filling tasks: what is taken, what is counted, in which order, and what no backbone knows."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from experiments.paper.llm_qa import GrammarWriter, LLMQASettings, generate, topics
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.streams import Item
from tests.experiments.llm_qa.writers import Scripted, Writer, record
from tests.refused import line_of

SMALL = LLMQASettings(tasks=2, items=3, per_prompt=4, order_seed=None)


def test_lies_are_rejected_and_counted_by_reason(tmp_path: Path) -> None:
    again = [record("BO", "Who owns bo?"), record("What", "What is Bo made of?")]
    bad = [record("Be", answer="a b c d e f g h i"), record("Be", answer="a\nb")]
    script = {
        (1, 1): "I am sorry, but I do not invent facts.",
        (2, 1): [record("Bo"), *again, record("Bran")],
        (1, 2): [record("bran", "Who owns Bran?"), "prose", {"entity": "Al"}, record("Al")],
        (2, 2): Failure("timed out"),
        (1, 3): [record("Am"), record("An"), record("Ar")],
        (2, 3): [*bad, record("Be", "Who owns it?"), record("Be")],
    }
    stream = generate(Scripted(script), tmp_path, SMALL)
    entities = [[item.details["entity"] for item in task.items] for task in stream.tasks]
    assert entities == [["Al", "Am", "An"], ["Bo", "Bran", "Be"]]
    counts = {name: stream.about[name] for name in ("prompts", "accepted", "rejected", "failed")}
    assert counts == {
        "prompts": 6,
        "accepted": 6,
        "failed": {"timed out": 1},
        "rejected": {
            "answer too long": 1,
            "entity not in question": 1,
            "line break": 1,
            "missing field": 1,
            "no JSON object": 1,
            "not an object": 1,
            "repeated entity": 2,
            "repeated question": 1,
            "task is full": 1,
        },
    }


def test_a_failure_is_never_taken_for_a_reply(tmp_path: Path) -> None:
    as_if = '[{"entity": "Al", "question": "Who owns Al?", "answer": "Bo"}]'
    writer = Scripted({(1, 1): Failure(as_if), (1, 2): [record("Bran")]})
    settings = LLMQASettings(tasks=1, items=1)
    stream = generate(writer, tmp_path, settings)
    assert [item.details["entity"] for item in stream.tasks[0].items] == ["Bran"]
    assert stream.about["failed"] == {as_if: 1}
    # Nor is it when it is read back.
    assert generate(Writer(), tmp_path, settings).tasks == stream.tasks


def test_tasks_are_permuted_as_the_paper_says(tmp_path: Path) -> None:
    settings = LLMQASettings(tasks=7, items=2, per_prompt=2)
    permuted = generate(GrammarWriter(), tmp_path, settings)
    plain = generate(GrammarWriter(), tmp_path, settings.model_copy(update={"order_seed": None}))
    order = Random(0).sample(range(7), 7)
    assert permuted.tasks == tuple(plain.tasks[index] for index in order) != plain.tasks
    assert permuted.name == "llm_qa"


def test_a_spent_budget_says_what_is_short_and_why(tmp_path: Path) -> None:
    script = {(1, 1): [record("Al"), record("al"), record("AL")], (2, 1): "No.", (3, 1): "No."}
    settings = LLMQASettings(tasks=5, items=2, budget=3)
    message = line_of(generate, Scripted(script, batch=2), tmp_path, settings)
    names = [topic.phrase for topic in topics()[:3]]
    assert message == (
        f"{tmp_path}: the budget of prompts (3) is spent, but 5 of 5 tasks are short of 2 items "
        f'("{names[0]}" has 1, "{names[1]}" has 0, "{names[2]}" has 0, ...); lost most to: '
        "repeated entity (2), no JSON object (2); run the same command again to go on, or raise "
        "the budget"
    )


def test_the_report_tells_the_items_after_each_batch(tmp_path: Path) -> None:
    reports: list[tuple[int, int, str]] = []

    def report(*told: Any) -> None:
        reports.append(told)

    settings = LLMQASettings(tasks=1, items=4, per_prompt=2)
    pairs = [record("Al"), record("Bo")], [record("C"), record("D")]
    script = {(1, 1): pairs[0], (1, 2): "No.", (1, 3): pairs[1]}
    short = settings.model_copy(update={"budget": 1})
    with pytest.raises(HoldfastError, match="short"):
        generate(Scripted(script, batch=1), tmp_path, short, report)
    generate(Scripted(script, batch=1), tmp_path, settings, report)
    first, read_back = (2, 4, "prompt 1"), (2, 4, "prompt 1")
    assert reports == [first, read_back, (2, 4, "prompt 2"), (4, 4, "prompt 3")]


ONE = LLMQASettings(tasks=1, items=2, per_prompt=3)
SCRIPT = {
    # Two are taken for judging, as many as the task has room for.
    (1, 1): [record("Al"), record("Bo"), record("Cy")],
    (1, 2): [record("Al", "Who owns Al?"), record("Di"), record("Ed")],
    (1, 3): [record("Flo")],
}


def test_known_and_undecided_items_are_rejected_and_stay_registered(tmp_path: Path) -> None:
    verdicts: dict[str, bool | Failure] = {"Al": True, "Di": Failure("timed out")}
    asked: list[str] = []

    def known(items: list[Item]) -> list[bool | Failure]:
        entities = [item.details["entity"] for item in items]
        asked.extend(entities)
        return [verdicts.get(entity, False) for entity in entities]

    stream = generate(Scripted(SCRIPT), tmp_path, ONE, known=known)
    assert [item.details["entity"] for item in stream.tasks[0].items] == ["Bo", "Flo"]
    assert asked == ["Al", "Bo", "Di", "Flo"]
    assert stream.about["rejected"] == {
        "known to the backbone": 1,
        "novelty not decided": 1,
        "repeated entity": 1,
        "task is full": 2,
    }
    assert stream.about["novel_to"] == "a backbone"
    again = generate(Writer(), tmp_path, ONE, known=known)  # a verdict is asked for once
    assert len(asked) == 4
    assert (again, again.about) == (stream, stream.about)
    # The filter of a directory stays.
    for other, novel_to, difference in ((None, "a", "null"), (known, "large", '"large"')):
        with pytest.raises(HoldfastError, match=f'novel_to: "a backbone" -> {difference}'):
            generate(Scripted(SCRIPT), tmp_path, ONE, known=other, novel_to=novel_to)
