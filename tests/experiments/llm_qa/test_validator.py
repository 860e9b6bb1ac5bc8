"""The paper's rules for a candidate, one by one, each at its edge."""

from __future__ import annotations

import pytest

from experiments.paper.llm_qa import Validator
from holdfast.streams import Item
from tests.experiments.llm_qa.writers import record

TOPIC = "fictional rope bridges"


def outcome(candidate: object) -> Item | str:
    return Validator().accept(candidate, TOPIC)


def test_a_valid_candidate_becomes_an_item_with_its_details() -> None:
    candidate = {**record(" Ossavel  Span ", "Who built  ossavel span? "), "note": "ignored"}
    item = outcome(candidate)
    assert isinstance(item, Item)
    assert (item.question, item.answer, item.id) == ("Who built  ossavel span?", "ash", None)
    assert item.details == {"topic": TOPIC, "entity": "Ossavel Span"}


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ("prose", "not an object"),
        ([record("Brimt")], "not an object"),
        (None, "not an object"),
        ({"entity": "Brimt", "question": "Who is Brimt?"}, "missing field"),
        (record("Brimt", answer=None), "missing field"),
        (record("Brimt", answer="  "), "empty field"),
        (record(" ", "Who?"), "empty field"),
        (record("Brimt", answer=True), "not text"),
        (record("Brimt", answer=["ash"]), "not text"),
        (record("Brimt", answer=float("nan")), "not text"),
        ({"entity": 7, "question": "What is 7?", "answer": "ash"}, "not text"),
        (record("Brimt", answer="half \ud800"), "not text"),
        (record("Brimt", answer="ash\nelm"), "line break"),
        (record("Brimt", answer="ash\u2028elm"), "line break"),
        (record("Brimt", "What is\r\nBrimt?"), "line break"),
        (record("Brimt", "What is Brim?"), "entity not in question"),
        (record("Brimt", answer="one two three four five six seven eight nine"), "answer too long"),
        (record("Brimt", answer="a}b{"), "unbalanced braces"),
    ],
)
def test_rejections(candidate: object, reason: str) -> None:
    assert outcome(candidate) == reason


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("one two three four five six seven eight", "one two three four five six seven eight"),
        (1742, "1742"),
        (2.5, "2.5"),
        (10**400, "1" + "0" * 400),
        ("{ash}", "{ash}"),
        ("ash\n", "ash"),
    ],
)
def test_answers_at_the_edge(answer: object, text: str) -> None:
    item = outcome(record("Brimt", answer=answer))
    assert isinstance(item, Item)
    assert item.answer == text


@pytest.mark.parametrize("again", ["BRIMT  hall", "Brimt\tHall", "brimt hall"])
def test_an_entity_stands_once_whatever_its_case_and_spaces(again: str) -> None:
    validator = Validator()
    assert isinstance(validator.accept(record("Brimt Hall"), TOPIC), Item)
    assert validator.accept(record(again, f"Who owns {again}?"), "another") == "repeated entity"


def test_an_entity_stands_once_whatever_its_unicode_coding() -> None:
    validator = Validator()
    assert isinstance(validator.accept(record("Bri\u00e9"), TOPIC), Item)
    assert (
        validator.accept(record("Brie\u0301", "Who owns BRIE\u0301?"), TOPIC) == "repeated entity"
    )


def test_a_question_stands_once_whatever_its_entity() -> None:
    validator = Validator()
    question = "Is Brimt older than Ossavel?"
    assert isinstance(validator.accept(record("Brimt", question), TOPIC), Item)
    again = record("Ossavel", "is  brimt older than ossavel?")
    assert validator.accept(again, TOPIC) == "repeated question"


def test_a_rejected_candidate_registers_nothing() -> None:
    validator = Validator()
    assert validator.accept(record("Brimt", answer="a{b"), TOPIC) == "unbalanced braces"
    assert isinstance(validator.accept(record("Brimt"), TOPIC), Item)
