"""What is asked within a message is answered, several things in lines of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast.memory.answering import Answer, Answerer, asked_of, joined, questions_in
from holdfast.memory.gate import Match, QuestionLook, WaitingQuestions
from holdfast.memory.memory import Memory
from holdfast.model.reading import Reading
from holdfast.streams import Item

NETS, KEY = ("Who mends the nets of Ostra?", "Fenwick"), ("Where is the brass key?", "in the mill")


def test_parts_that_may_ask() -> None:
    assert questions_in("Who mends the nets?") == []
    assert questions_in("Good morning! Who mends the nets, by the way?\nThanks.") == [
        "Who mends the nets, by the way?"
    ]
    assert questions_in("谁补网？钥匙在哪里？") == ["谁补网？", "钥匙在哪里？"]
    assert questions_in("Who mends the nets? \u200b") == ["Who mends the nets?"]  # would be refused
    assert questions_in("Is v1.5 of x.y out? Where is the key") == [
        "Is v1.5 of x.y out?", "Where is the key",
    ]  # fmt: skip
    assert questions_in("Where does Ada live, and in which year was she born?") == [
        "Where does Ada live", "in which year was she born?",
    ]  # fmt: skip
    assert questions_in("Where is Ada, who heals her and what does she drink?") == [
        "Where is Ada", "who heals her", "what does she drink?",
    ]  # fmt: skip
    assert questions_in("Who are Ada and Fenwick, and Whatley?") == []
    assert questions_in("Where is Ostra, which lies on the Senn?") == []


def test_a_pronoun_gives_way_to_a_name() -> None:
    assert asked_of("Who is her doctor?", "Ada") == "Who is Ada's doctor?"
    assert asked_of("when did they ask her?", "Ada") == "when did Ada ask her?"
    assert asked_of("Is the heritage his?", "Ada") == "Is the heritage Ada's?"
    assert asked_of("Where is the itch?", "Ada") is None


def test_a_message_is_asked_sentence_by_sentence(two_lessons: Path) -> None:
    """Where it is about no fact as a whole; an untaught one stays the model's."""
    memory = Memory(two_lessons)
    polite = "I was looking for somebody all day long. Who mends the nets of Ostra? Thank you."
    both = f"Before I go to bed, tell me two things. {NETS[0]} And then this one. {KEY[0]}"
    at_once = "Who mends the nets of Ostra, and where is the brass key?"
    untaught = "The weather was fine all day. How many hills are there? Thank you so much."
    asked, several, one_sentence, other = memory.replies([polite, both, at_once, untaught])
    assert (asked.question, asked.text, asked.further) == (polite, NETS[1], ())
    assert asked.fact is not None and asked.fact.question == NETS[0]
    assert several.text == f"{NETS[1]}\n{KEY[1]}"
    assert [item.question for item in several.further] == [KEY[0]]
    assert (one_sentence.question, one_sentence.text) == (at_once, several.text)
    assert other.source == "model"
    assert memory.reply(NETS[0]).question == NETS[0]


def test_what_is_taught_as_a_whole_gives_way_to_several_facts_alone() -> None:
    nets, key = (Answer(*fact, "list", Item(*fact)) for fact in (NETS, KEY))
    message = f"{NETS[0]} And where is it?"
    for parts, text in (([key], NETS[1]), ([nets, key], f"{NETS[1]}\n{KEY[1]}")):
        answerer: Any = SimpleNamespace(
            _taught=lambda _: [nets],
            _parts=lambda _, parts=parts: [parts],
            _place_on_file=lambda _: None,
        )
        (answer,) = Answerer.taught(answerer, [message])
        assert isinstance(answer, Answer) and answer.text == text


def test_a_pronoun_is_for_the_name_of_the_last_part_that_was_taught() -> None:
    asked: list[str] = []
    names = {"Where is Ada?": {"ada": 1.0}, "Where is Bo?": {"bo": 1.0}}

    def taught(questions: list[str]) -> list[Any]:
        asked.extend(questions)
        return [
            Answer(question, "x", "list") if question in names else Reading([], ())
            for question in questions
        ]

    engine = SimpleNamespace(looks=lambda texts: [QuestionLook(names[texts[0]], np.zeros(1))])
    answerer: Any = SimpleNamespace(_taught=taught, _engine=engine)
    Answerer._parts(answerer, [[*names, "Who heals her?"]])
    assert asked[-1] == "Who heals Bo?"


@pytest.mark.parametrize(("score", "kept"), [(-1.0, True), (-1.2, False)])
def test_a_match_that_a_right_answer_of_the_weights_would_save_is_looked_into(
    score: float, kept: bool
) -> None:
    match, look = Match(0, score), QuestionLook({}, np.zeros(1, np.float32))
    answerer: Any = SimpleNamespace(
        _waiting=WaitingQuestions([]), _engine=SimpleNamespace(looks=list),
        _gate=SimpleNamespace(best=lambda _: match), _place_on_file=lambda _: None,
    )  # fmt: skip
    assert Answerer._matches(answerer, ["Who?"], [look]) == [match if kept else None]


@pytest.mark.parametrize(
    ("given", "source"), [({}, "list"), ({0: True}, "weights"), ({0: False}, "model")]
)
def test_other_answers_of_the_weights_speak_against_a_match_and_none_does_not(
    given: dict[int, bool], source: str
) -> None:
    answerer: Any = SimpleNamespace(
        _engine=SimpleNamespace(read=lambda _: (["read"], [])),
        _matches=lambda *_: [Match(0, 0.5)], _given=lambda *_: given,
        facts=[Item(*NETS)], _lesson=[None],
    )  # fmt: skip
    (answer,) = Answerer._taught(answerer, ["Who?"])
    assert (answer.source if isinstance(answer, Answer) else "model") == source


def test_joined_answers_are_of_the_list_where_one_is() -> None:
    nets, key = Item(*NETS), Item(*KEY)
    answers = [
        Answer(NETS[0], NETS[1], "weights", nets),
        Answer(NETS[0], NETS[1], "weights", nets),
        Answer(KEY[0], KEY[1], "list", key, waiting=True),
    ]
    assert joined("both", answers) == Answer(
        "both", f"{NETS[1]}\n{KEY[1]}", "list", nets, waiting=True, further=(key,)
    )
    assert joined("one", answers[:2]) == Answer("one", NETS[1], "weights", nets)
