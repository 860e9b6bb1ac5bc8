"""Every measure of an evaluation on made replies, where its value can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import lengths
from holdfast.memory.answering import Answer
from holdfast.memory.evaluation import stages
from holdfast.memory.evaluation.drift import text_bits
from holdfast.memory.evaluation.probes import (
    EverydayQuestion,
    Probe,
    everyday_questions,
    probes_of,
    with_probes,
    without_taught,
)
from holdfast.memory.evaluation.result import (
    VERSION,
    Measure,
    MemoryEvaluation,
    notes,
    read_evaluation,
    table_rows,
    write_evaluation,
)
from holdfast.memory.evaluation.stages import exactly, generated, kept, unknown
from holdfast.model.backbone import Backbone
from holdfast.streams import Item
from holdfast.streams.item import says
from tests.refused import line_of
from tests.tiny import byte_tokenizer, llama_of, tiny_llama

FACTS = (Item("Who keeps the lamp?", "Orsa Tindle"), Item("Where is the key?", "in the mill"))


def silent(*_: int) -> None: ...


class MadeSides:
    """Sides whose replies are written down. memory: its answer by its question.

    refused: questions that the gate takes for taught only because the weights give the answer.
    """

    def __init__(self, memory: dict[str, Answer], model: dict[str, str], weights: dict[str, str]):
        self.refused: tuple[str, ...] = ()
        self.facts, self.has_one_set = FACTS, bool(weights)
        self._memory, self._model, self._weights = memory, model, weights

    def memory(self, questions, report):
        return [self._memory[question] for question in questions]

    def listed(self, questions):
        return [
            Answer(question, answer.fact.answer, "list", answer.fact)
            if (answer := self._memory[question]).fact and question not in self.refused
            else Answer(question, self._model[question], "model")
            for question in questions
        ]

    def untouched(self, questions):
        return [self._model[question] for question in questions]

    def weights(self, questions, owners, report):
        return [self._weights[question] for question in questions]

    def weights_give(self, questions, owners, report):
        return [self._weights[q] == FACTS[o].answer for q, o in zip(questions, owners, strict=True)]


def sides(rows: dict[str, tuple[str, str, str, int | None, str]]) -> Any:
    """By question: the memory's text and source, the untouched model's, the fact, the weights'."""
    memory = {
        question: Answer(question, text, source, None if place is None else FACTS[place])
        for question, (text, source, _, place, _) in rows.items()
    }
    return MadeSides(
        memory,
        {question: text for question, (_, _, text, _, _) in rows.items()},
        {question: weights for question, (*_, weights) in rows.items()},
    )


def test_recall_is_exact_and_says_what_comes_from_the_weights():
    made = sides(
        {
            "a": ("Orsa Tindle", "weights", "-", 0, "Orsa Tindle"),
            "b": ("in the mill", "list", "-", 1, "in the mall"),
            "c": ("Orsa Tindle", "weights", "-", 0, "in the mill"),  # another fact's answer
            "d": ("I do not know.", "model", "I do not know.", None, "in the mill"),
        }
    )
    asked = [
        ("a", ["Orsa Tindle"], 0),
        ("b", ["in the mill"], 1),
        ("c", ["in the mill"], 1),
        ("d", ["in the mill"], 1),
    ]
    made.refused = ("a",)
    measures, rows = exactly(made, "wordings", asked, silent)
    assert measures == {
        "wordings": Measure(4, memory=0.5, weights=0.75, list=0.25),
        "wordings_from_weights": Measure(4, memory=0.25, weights=0.75),
    }
    assert [row["right"] for row in rows] == [True, True, False, False]
    assert rows[1] == {
        "question": "b",
        "wanted": ["in the mill"],
        "right": True,
        "answer": "in the mill",
        "source": "list",
        "fact": "Where is the key?",
        "weights": False,
        "list": "in the mill",
    }


def test_the_other_side_counts_where_the_reply_says_it():
    made = sides(
        {
            "a": ("The LAMP, of course.", "model", "The LAMP, of course.", None, "the lamp"),
            "b": ("in the mill", "weights", "-", 1, "It is the key."),
            "c": ("a lamppost", "model", "a lamppost", None, "a lamppost"),
        }
    )
    asked = [("a", ["the lamp"], 0), ("b", ["no", "the key"], 1), ("c", ["lamp"], 0)]
    third = 1 / 3
    assert generated(made, "reverse", asked, silent)[0] == {
        "reverse": Measure(3, memory=third, weights=2 * third, list=third)
    }


def test_everyday_questions_are_kept_of_those_that_were_known():
    made = sides(
        {
            "France?": ("Paris.", "model", "Paris.", None, "Paris!"),
            "Italy?": ("in the mill", "list", "It is Rome.", 1, "In the mill."),
            "Peru?": ("Cusco", "model", "Cusco", None, "Lima"),  # not known before
            "Spain?": ("Madrid", "model", "Madrid", None, "in the mill"),
        }
    )
    everyday = [
        EverydayQuestion(question, (answer,))
        for question, answer in zip(made._model, ("Paris", "Rome", "Lima", "Madrid"), strict=True)
    ]
    third = 1 / 3
    measures, rows = kept(made, everyday, silent)
    assert [row["known"] for row in rows] == [True, True, False, True]
    assert measures == {
        "everyday_kept": Measure(3, memory=2 * third, weights=third, list=2 * third),
        "everyday_accepted": Measure(4, memory=0.25, weights=None, list=0.25),
        "everyday_taught_answer": Measure(4, memory=0.25, weights=0.5, list=0.25),
    }


def test_untaught_questions_are_answered_as_before():
    made = sides(
        {
            "a": ("Nobody.", "model", "Nobody.", None, "Nobody."),
            "b": ("Orsa Tindle", "weights", "A man.", 0, "A woman."),
            "c": ("In the mill.", "model", "In the mill.", None, "In the mill."),  # by chance
            "d": ("No.", "model", "No.", None, "Orsa Tindle"),
        }
    )
    made.refused = ("b",)
    assert unknown(made, "others", list("abcd"), silent)[0] == {
        "others_accepted": Measure(4, memory=0.25, weights=None, list=0.0),
        "others_taught_answer": Measure(4, memory=0.5, weights=0.5, list=0.25),
        "others_unchanged": Measure(4, memory=0.75, weights=0.5, list=1.0),
    }


def test_bits_change_by_a_share_of_those_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stages, "kl_per_token", lambda *_: 0.25)
    monkeypatch.setattr(stages, "bits_per_byte", lambda *_: (2.0, 3.0))
    made = sides({"a": ("x", "model", "x", None, "y")})
    assert stages.drift(made, ["a"], silent)[0] == {
        "kl": Measure(1, weights=0.25),
        "bits_per_byte": Measure(weights=3.0),
        "bits_per_byte_change": Measure(weights=0.5),
    }


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("The capital is Paris.", "paris", True),
        ("Parisians", "Paris", False),
        ("It takes 8 minutes.", "8", True),
        ("It takes 8.5 minutes, or 18.", "8", False),
        ("The year 1,984", "984", False),
        ("the  Straße", "STRASSE", True),
        ("O’Neill", "O'Neill", True),
        ("C++ is old", "C++", True),
        ("", "Paris", False),
    ],
)
def test_an_answer_occurs_as_whole_words(reply: str, answer: str, right: bool):
    assert says(reply, ["nothing", answer]) is right


def test_the_bits_of_a_text_are_those_of_the_capability_suite():
    backbone = Backbone(tiny_llama(), byte_tokenizer())
    for text in ("A lamp, and a key.", "é" * 40):
        (expected,) = lengths(backbone, [text])
        bits = text_bits(backbone.model, byte_tokenizer(), text)
        assert bits == pytest.approx(expected.bits, rel=1e-6)
    short = llama_of(byte_tokenizer(), max_position_embeddings=8)  # in windows of seven bytes
    parts = [text_bits(short, byte_tokenizer(), part) for part in ("A lamp,", " and a ", "key.")]
    assert text_bits(short, byte_tokenizer(), "A lamp, and a key.") == pytest.approx(sum(parts))


def test_probes_come_from_details_and_from_a_file(tmp_path: Path, caplog):
    details = {
        "held_out": ["Whose is the lamp?"],
        "reverse": {"question": "What does Orsa keep?", "answer": "the lamp"},
        "sentence": "The lamp is kept by",
        "others": ["Who keeps the bell?"],
        "untaught": ["How old is the lamp?"],
    }
    facts = [
        Item("Who keeps the lamp?", "Orsa", details=details),
        Item("Where?", "here", details={"others": "no list"}),
    ]
    first, second = probes_of(facts)
    assert first == Probe(
        "Who keeps the lamp?",
        "Orsa",
        ("Whose is the lamp?",),
        ("What does Orsa keep?", "the lamp"),
        "The lamp is kept by",
        ("Who keeps the bell?",),
        ("How old is the lamp?",),
    )
    assert second == Probe("Where?", "here") and '"others" is no list of texts' in caplog.text
    path = tmp_path / "probes.jsonl"
    path.write_text('{"question": "Where?", "wordings": ["In which place?"]}\n')
    assert with_probes([first, second], path) == [
        first,
        Probe("Where?", "here", ("In which place?",)),
    ]
    (kept_probe, _), (everyday,) = without_taught(
        [first, second],
        [EverydayQuestion("Why?", ("so",)), EverydayQuestion("How?", ("thus",))],
        ["whose is the LAMP", "what does Orsa keep", "who keeps the bell", "why"],
    )
    assert kept_probe.sentence and kept_probe.reverse is None
    assert kept_probe.wordings == kept_probe.others == () and kept_probe.untaught
    assert everyday.question == "How?"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"question": "Who?"}', 'line 1: "Who?" is no taught question'),
        ('{"question": "Where?", "other": []}', 'line 1: unknown key "other"; use question,'),
        ('{"question": "Where?", "wordings": "a"}', 'line 1: "wordings" is no list of texts'),
        ('{"question": "Where?", "reverse": {"question": "a"}}', 'line 1: "reverse" is no {"qu'),
        ('{"question": "Where?", "sentence": 3}', 'line 1: "sentence" is no text'),
        ("{", "line 1: is no JSON"),
        ("", "is empty; write one JSON object a line"),
    ],
)
def test_wrong_probes_are_named(tmp_path: Path, line: str, reason: str):
    path = tmp_path / "probes.jsonl"
    path.write_text(line)
    line = line_of(with_probes, [Probe("Where?", "here")], path)
    assert line.startswith(f"{path}") and reason in line
    with pytest.raises(HoldfastError, match="no such file"):
        with_probes([], tmp_path / "missing.jsonl")


def test_everyday_questions(tmp_path: Path):
    questions = everyday_questions()
    assert len(questions) == len({row.question for row in questions}) == 240
    assert questions[0] == EverydayQuestion("What is the capital of France?", ("Paris",))
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "Why?", "answers": ["so"], "kind": "x"}\n')
    assert everyday_questions(path) == [EverydayQuestion("Why?", ("so",))]
    path.write_text('{"question": "Why?", "answers": []}\n')
    with pytest.raises(HoldfastError, match='line 1: needs a "question" and "answers"'):
        everyday_questions(path)


def test_a_file_keeps_what_was_measured(tmp_path: Path):
    about = {"facts": 2, "lessons": 1, "adapters": 1, "model": "m", "limit": None}
    rows = {"recalled": Measure(2, 1.0, 0.5, 1.0)}
    begun = MemoryEvaluation("abc", about, rows, ("recalled",))
    write_evaluation(tmp_path, begun, [{"question": "Who?"}])
    assert (tmp_path / "answers" / "recalled.jsonl").read_text() == '{"question": "Who?"}\n'
    assert read_evaluation(tmp_path, "abc") == begun and not begun.finished
    assert read_evaluation(tmp_path, "other") is None
    for damaged in (f'{{"version": {VERSION}}}', "{"):
        (tmp_path / "evaluation.json").write_text(damaged)
        assert read_evaluation(tmp_path, "abc") is None
    assert table_rows(begun) == [("taught wordings recalled", "2", "100.0%", "50.0%", "100.0%")]
    assert "the adapter always acts" in notes(begun)[1]
