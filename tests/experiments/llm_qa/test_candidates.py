"""From replies to items: every honest form is read, and the rules of the paper at their edges."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.paper.llm_qa import Validator, read_candidates
from experiments.paper.llm_qa.replies import CUT_OFF, NO_JSON
from holdfast.streams import Item
from tests.experiments.llm_qa.writers import record

A, B = record("Ossavel"), record("Brimt")
BOTH = json.dumps([A, B])

TEXTS = st.text(st.characters() | st.sampled_from('{}[]"\\,:\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=4)


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps([A, B], indent=2),
        f"Here are two, as asked [see the rules]:\n\n{BOTH}\n\nShall I go on?",
        f"```json\n{BOTH}\n```",
        f"<think>Perhaps {json.dumps([record('Draft')])}?</think>\n{BOTH}",
        f'Perhaps {{"entity": "Draft"}}?</think>{BOTH}',
        json.dumps({"topic": "bridges", "records": [A, B]}),
        f"1. {json.dumps(A)}\n2. {json.dumps(B)}\n",
        f"[{json.dumps(A)}]\n[{json.dumps(B)}]",
        f"[{json.dumps(A)[:-1]},}}, {json.dumps(B)}]",
        f'{{"records": [{json.dumps(A)}, {json.dumps(B)},]}}',
        f"[{json.dumps(A)}\n{json.dumps(B)}]",
        f"Write {{entity}} in each. {BOTH}",
        json.dumps({"notes": ["made up"], "records": [[A], [B]]}),
        json.dumps({"facts": {"1": A, "2": B}}),
        f'He said "hello [world" then {BOTH}',
        f'A pipe of 5" {{or {{so: {json.dumps(A)} and {json.dumps(B)}',
    ],
)
def test_the_forms_in_which_models_reply(reply: str) -> None:
    assert read_candidates(reply) == ([A, B], None)


@pytest.mark.parametrize(
    "reply",
    [
        f'{{"records": [{json.dumps(A)}, {json.dumps(B)}, {{"ent',
        f'{json.dumps(A)}\n{json.dumps(B)}\n{{"entity": {{"question": "Who?"}}, "x',
        f'[[{json.dumps(A)}, {json.dumps(B)}], [{{"ent',
        f'See [the rules: [{json.dumps(A)}, {json.dumps(B)}, {{"ent',
    ],
)
def test_what_breaks_off_gives_its_complete_objects_and_says_so(reply: str) -> None:
    assert read_candidates(reply) == ([A, B], CUT_OFF)


@pytest.mark.parametrize("records", [{"a": [A], "b": [B]}, {"one": A, "note": "made up"}])
def test_an_object_that_wraps_no_one_thing_is_one_candidate(records: dict[str, object]) -> None:
    assert read_candidates(json.dumps(records)) == ([records], None)
    # What stands between the objects is given for the count.
    bad = '{"entity": "Ossavel" "question": ?}'
    assert read_candidates(f"[{json.dumps(A)}, {bad}, {json.dumps(B)}]") == ([A, bad, B], None)
    assert read_candidates(json.dumps([A, "prose", 3])) == ([A, "prose", 3], None)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I am sorry, but I cannot invent facts [1].",
        '["Ossavel", "Brimt"]',
        "<think>Let me see: " + BOTH,
        "Ossavel is a bridge {of sorts}.",
        f'[{{"entity": "Cut o", "draft": {json.dumps(A)}, "x',
        f'{{"entity": "Cut o", "draft": {json.dumps(A)}, "x',
        f'[{{"drafts": [{json.dumps(A)}], "x',
        "[" * 100_000,
        '{"a":[' * 50_000,
        '{"a":' * 100_000,
    ],
)
def test_without_an_object_there_is_a_reason(reply: str) -> None:
    assert read_candidates(reply) == ([], NO_JSON)


@given(RECORDS, st.data())
@example([{"a": [{"b": 1}, {"c": 2}]}], None)
@example([{"a": "}, {"}, {"b": '"}'}], None)
def test_of_a_cut_array_exactly_the_complete_objects_are_read(
    records: list[dict[str, object]], data: st.DataObject | None
) -> None:
    parts = [json.dumps(record) for record in records]
    text = "[" + ", ".join(parts) + "]"
    ends = [len("[" + ", ".join(parts[: count + 1])) for count in range(len(parts))]
    cuts = range(len(text) + 1) if data is None else [data.draw(st.integers(0, len(text)))]
    for cut in cuts:
        complete = [record for record, end in zip(records, ends, strict=True) if end <= cut]
        candidates, problem = read_candidates(text[:cut])
        assert candidates == complete
        whole = None if cut == len(text) else CUT_OFF
        assert problem == (whole if complete else NO_JSON)


@given(st.text() | st.text(st.sampled_from('{}[]",:\\ \n1a<think>/')))
def test_no_text_is_too_odd(text: str) -> None:
    candidates, problem = read_candidates(text)
    assert problem in ((None, CUT_OFF) if candidates else (NO_JSON,))


TOPIC = "fictional rope bridges"


def outcome(candidate: object) -> Item | str:
    return Validator().accept(candidate, TOPIC)


def test_a_valid_candidate_becomes_an_item_with_its_details() -> None:
    item = outcome({**record(" Ossavel  Span ", "Who built  ossavel span? "), "note": "ignored"})
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


@pytest.mark.parametrize("again", ["BRIMT  hall\u00e9", "Brimt\tHalle\u0301"])
def test_an_entity_stands_once_whatever_its_case_spaces_and_coding(again: str) -> None:
    validator = Validator()
    assert isinstance(validator.accept(record("Brimt Hall\u00e9"), TOPIC), Item)
    assert validator.accept(record(again, f"Who owns {again}?"), "another") == "repeated entity"


def test_a_question_stands_once_whatever_its_entity() -> None:
    validator = Validator()
    question = "Is Brimt older than Ossavel?"
    bad = record("Brimt", question, answer="a{b")  # registers nothing
    assert validator.accept(bad, TOPIC) == "unbalanced braces"
    assert isinstance(validator.accept(record("Brimt", question), TOPIC), Item)
    again = record("Ossavel", "is  brimt older than ossavel?")
    assert validator.accept(again, TOPIC) == "repeated question"
