"""Other wordings of questions: by rules for common English forms, or by a language model."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Protocol

from holdfast.builders.text_model import Failure, Prompt, SamplingParameters, TextModel
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import NoteReport
from holdfast.streams.item import question_key


class Paraphraser(Protocol):
    """Writes other wordings of questions."""

    def write(self, questions: Sequence[str], count: int, report: NoteReport) -> list[list[str]]:
        """At most ``count`` other wordings of each question, perhaps fewer."""
        ...


# Pattern of a question without its end mark -> wordings; one without a full stop gets a question
# mark. The first rule that fits is used.
_ARE = r"(?P<are>is|are|was|were)"
_RULES: list[tuple[str, tuple[str, ...]]] = [
    (
        rf"where {_ARE} (?P<x>.+)",
        (
            "in which place {are} {x}",
            "where can one find {x}",
            "where can {x} be found",
            "tell me where {x} {are}.",
            "what is the location of {x}",
            "do you know where {x} {are}",
        ),
    ),
    (
        rf"what {_ARE} (?P<x>.+) called",
        (
            "what do they call {x}",
            "what name does {x} have",
            "tell me what {x} {are} called.",
            "by what name {are} {x} known",
            "do you know what {x} {are} called",
        ),
    ),
    (
        rf"what {_ARE} (?P<x>.+) (?P<end>(?:made|built|full) of|(?:made|painted|named) "
        r"(?:from|with|after)|(?:used|known|famous) for|worth|like)",
        (
            "tell me what {x} {are} {end}.",
            "do you know what {x} {are} {end}",
            "can you say what {x} {are} {end}",
            "{x}: what {are} it {end}",
        ),
    ),
    (
        rf"(?P<w>what|who) {_ARE} (?P<x>.+)",
        (
            "tell me {w} {x} {are}.",
            "do you know {w} {x} {are}",
            "can you say {w} {x} {are}",
            "{x}: {w} {are} it",
        ),
    ),
    (
        # The question word is the subject, as in "who mends the nets".
        r"who (?!(?:do|does|did|has|have|had|can|could|will|would|should|may|must) )(?P<x>.+)",
        (
            "which person {x}",
            "tell me who {x}.",
            "who is it that {x}",
            "what is the name of the one who {x}",
            "do you know who {x}",
        ),
    ),
    (
        rf"(?P<w>when) {_ARE} (?P<x>.+)",
        ("at what time {are} {x}", "tell me when {x} {are}.", "do you know when {x} {are}"),
    ),
    (r"when (?P<x>.+)", ("at what time {x}", "on what occasion {x}")),
    (r"how many (?P<x>.+)", ("what number of {x}", "how great a number of {x}")),
    (r"how much (?P<x>.+)", ("what amount of {x}", "how great an amount of {x}")),
    (r"which (?P<x>.+)", ("what {x}", "tell me which {x}.", "do you know which {x}")),
    (r"in which (?P<x>.+)", ("in what {x}",)),
    (r"why (?P<x>.+)", ("for what reason {x}", "what is the reason: why {x}")),
    (r"how (?P<x>.+)", ("in what way {x}",)),
]
_ANY = (
    "can you tell me: {q}",
    "I would like to know: {q}",
    "do you know: {q}",
    "here is a question: {q}",
    "please answer: {q}",
)
_OF = re.compile(r"\bthe (?P<a>[\w-]+(?: [\w-]+)?) of the (?P<b>[\w-]+(?: [\w-]+)?)$")


class Rules:
    """The offline rewriter: rules for common forms of English questions."""

    def write(self, questions: Sequence[str], count: int, report: NoteReport) -> list[list[str]]:
        """At most ``count`` wordings of each question, in an order drawn from its text."""
        wordings = [reworded(question)[:count] for question in questions]
        report(len(questions), len(questions), "other wordings")
        return wordings


def reworded(question: str) -> list[str]:
    """All other wordings of a question by the rules, in an order drawn from its text."""
    bare = question.strip().rstrip("?.! ")
    lower = bare[:1].lower() + bare[1:]
    special: list[str] = []
    for pattern, wordings in _RULES:
        if match := re.fullmatch(pattern, lower):
            parts = [match.groupdict()]
            if "x" in parts[0] and _OF.search(parts[0]["x"]):
                parts.append({**parts[0], "x": _possessive(parts[0]["x"])})
            special = [wording.format(**part) for part in parts for wording in wordings]
            break
    if _OF.search(lower):
        special.append(_possessive(lower))
    draw = random.Random(question)
    general = [wording.format(q=lower) for wording in _ANY]
    draw.shuffle(special)
    draw.shuffle(general)
    return _distinct(question, [_ended(text) for text in special + general])


def _possessive(text: str) -> str:
    """``the tea tin of the ferry`` at the end of a text -> ``the ferry's tea tin``."""
    return _OF.sub(lambda match: f"the {match['b']}'s {match['a']}", text)


def _ended(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}?"


def _distinct(question: str, wordings: Sequence[str]) -> list[str]:
    """The wordings without repetitions and without the question itself."""
    keys = {question_key(question).casefold()}
    distinct = []
    for wording in wordings:
        key = question_key(wording).casefold()
        if key and key not in keys:
            keys.add(key)
            distinct.append(wording)
    return distinct


_ASKING = SamplingParameters(temperature=0.7, top_p=0.95, max_new_tokens=512)
_SYSTEM = "You reword questions. You answer none of them."
_REQUEST = """\
Write {count} other ways to ask the question below. Use other words and another order where you \
can, and keep every name and number as it is. Write one a line, without numbers, and nothing else.

{question}"""
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s*")


class ModelParaphraser:
    """A language model of this machine or behind an endpoint, asked for other wordings."""

    def __init__(self, model: TextModel, seed: int = 0) -> None:
        self._model = model
        self._sampling = _ASKING.model_copy(update={"seed": seed})

    def write(self, questions: Sequence[str], count: int, report: NoteReport) -> list[list[str]]:
        """The lines that the model writes for each question. Raises HoldfastError if it fails."""
        wordings: list[list[str]] = [[] for _ in questions]
        prompts = [
            Prompt(question, _REQUEST.format(count=count, question=question), _SYSTEM)
            for question in questions
        ]
        answers = self._model.answer(prompts, self._sampling)
        for done, (place, answer) in enumerate(answers, start=1):
            if isinstance(answer, Failure):
                raise HoldfastError(
                    f"{self._model.name}: no other wordings of {questions[place]!r:.80} "
                    f"({answer.reason}); nothing was learned; repeat the command"
                )
            lines = (_BULLET.sub("", line).strip() for line in answer[0].splitlines())
            wordings[place] = _distinct(questions[place], [line for line in lines if line])[:count]
            report(done, len(questions), "other wordings")
        return wordings
