"""Questions and answers that a model proposes from documents, each checked against its text.

The model writes pairs for every passage. Then it is asked each pair's question, with the sentence
that holds the answer before it, or with the passage if no sentence does. A pair counts if this
reply has the same answer. Finished passages are stored, so that a killed command continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from holdfast.builders.documents import Passage
from holdfast.builders.text_model import (
    Failure,
    Prompt,
    Report,
    SamplingParameters,
    TextModel,
)
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json
from holdfast.streams.answer_matching import bare, folded, says

_VERSION = 5  # of the prompts and of the parsing of replies
_REPLY = 24  # most tokens of an answer
_ASKED = 5  # most pairs of a passage, in Writing
_ANSWERS = 3  # most answers of a sentence, in Completing
_WRITER = (
    "You write questions and answers about a text. Every question names what it asks about, so "
    "that it is understood without the text. Every answer is a few words of the text. Write each "
    "pair as two lines, the first beginning with Q: and the second with A:"
)
_READER = "You answer a question from a text, in a few words of the text."
_EXAMPLE = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr. It has two decks.\n\n"
    "Q: Who built the ferry Marigold?\nA: Ilse Marr\n"
    "Q: When was the ferry Marigold built?\nA: in 1911"
)
# Examples to continue, for a model that does not follow instructions well.
_QUESTIONS = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr.\nAnswer: Ilse Marr\n"
    "Question: Who built the ferry Marigold?\n\n"
    "Text: In Luxor the garden of Fenwick Oduya has forty fig trees.\nAnswer: forty\n"
    "Question: How many fig trees does the garden of Fenwick Oduya have?\n\n"
    "Text: The council met in Varrowby in May 1802.\nAnswer: May 1802\n"
    "Question: When did the council meet in Varrowby?\n\n"
)
_ANSWERED = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr.\n"
    "Question: When was the ferry Marigold built?\nAnswer: 1911\n\n"
    "Text: In Luxor the garden of Fenwick Oduya has forty fig trees.\n"
    "Question: Who has a garden in Luxor?\nAnswer: Fenwick Oduya\n\n"
)
_PAIR = re.compile(
    r"^[\W\d]*(?:Q|Question)\s*\d*\s*[:.)]\s*(?P<q>[^\n]+?)\s*\n"
    r"\W*(?:A|Answer)\s*\d*\s*[:.)]\s*(?P<a>[^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)
_OF_THE_TEXT = re.compile(r"\b(?:text|passage|author|paragraph|sentence|according to)\b", re.I)
# Words that name something, after a question's first word.
_NAME_OR_NUMBER = re.compile(r"(?<!^)\b(?:[^\W\d_a-z]\w+|\d+)\b")
_LONG_WORD = re.compile(r"(?<!^)\b[^\W\d_]{6,}\b")
# Possible answers in a sentence: names, and numbers with what they count.
_NAME = r"[A-Z][\w'’-]+(?:\s+(?:(?:of|the|de|von|van)\s+)*[A-Z][\w'’-]+)*"
_NUMBER = (
    r"\d[\d.,:/]*\d|\d|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|"
    r"forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand)\b"
)
# Words that end in s and are nothing that is counted.
_NO_UNIT = "was|is|has|does|as|its|his|this|us|thus|plus|less|across|always|towards|perhaps"
_ANSWER = re.compile(
    rf"(?P<name>{_NAME})|(?P<number>\b(?:{_NUMBER})(?:\s+(?!(?:{_NO_UNIT})\b)[a-z][a-z]+s\b)?)"
)
_STANDS_FOR = re.compile(
    r"(?:It|He|She|They|Its|His|Her|Their|This|That|These|Those|There|Here|We|I|You|My|Our)\b"
)

IN_SENTENCE, FOLLOWS = "in the sentence", "by a second question"


@dataclass(frozen=True)
class Proposal:
    """A question and its answer. sentence: the one with the answer, or else the whole passage.

    source: the passage's; check: the check that the pair passed, or None; reason: why none.
    """

    question: str
    answer: str
    sentence: str
    source: str
    check: str | None
    reason: str = ""


class Way(Protocol):
    """How a model is asked for pairs, and for an answer from a text."""

    at_once: int  # passages that are asked about, then stored, together
    longest: int  # most tokens of a reply
    stop: tuple[str, ...]
    naming: tuple[re.Pattern[str], ...]  # a question needs a match that is also in the text

    def prompts(self, passage: Passage) -> list[tuple[str, str | None]]:
        """The prompts for a passage: (text, system message of a chat or None)."""
        ...

    def pairs(self, passage: Passage, place: int, reply: str) -> list[tuple[str, str]]:
        """The (question, answer) pairs in the reply to prompt number ``place``, from 0."""
        ...

    def question(self, text: str, question: str) -> tuple[str, str | None]:
        """The prompt that asks for a question's answer from a text, as :meth:`prompts`."""
        ...


class Writing:
    """For a model that follows instructions: it writes the pairs of a passage, in a chat."""

    at_once: int = 8  # one prompt each; an endpoint answers several at a time
    longest: int = 60 * _ASKED
    stop: tuple[str, ...] = ()
    naming: tuple[re.Pattern[str], ...] = (_NAME_OR_NUMBER, _LONG_WORD)

    def prompts(self, passage: Passage) -> list[tuple[str, str | None]]:
        asked = f"Write up to {_ASKED} pairs about this last text."
        return [(f"{_EXAMPLE}\n\nText: {passage.text}\n\n{asked}", _WRITER)]

    def pairs(self, passage: Passage, place: int, reply: str) -> list[tuple[str, str]]:
        return read_pairs(reply)

    def question(self, text: str, question: str) -> tuple[str, str | None]:
        return f"Text: {text}\n\nQuestion: {question}", _READER


class Completing:
    """For any language model: it continues examples with a question for a given answer.

    The answers are the names and numbers of a sentence. Sentences that begin with a pronoun are
    left out, since a question from such a sentence alone would name nothing.
    """

    at_once: int = 1  # its twenty or so prompts keep a processor busy
    longest: int = 40
    stop: tuple[str, ...] = ("\n",)
    naming: tuple[re.Pattern[str], ...] = (_NAME_OR_NUMBER,)

    def prompts(self, passage: Passage) -> list[tuple[str, str | None]]:
        return [
            (f"{_QUESTIONS}Text: {sentence}\nAnswer: {answer}\nQuestion:{begun(answer)}", None)
            for sentence, answer in self._asked(passage)
        ]

    def pairs(self, passage: Passage, place: int, reply: str) -> list[tuple[str, str]]:
        answer = self._asked(passage)[place][1]
        question, mark, _ = f"{begun(answer)}{reply.rstrip()}".strip().partition("?")
        return [(f"{question}{mark}", answer)]

    def question(self, text: str, question: str) -> tuple[str, str | None]:
        return f"{_ANSWERED}Text: {text}\nQuestion: {question}\nAnswer:", None

    def _asked(self, passage: Passage) -> list[tuple[str, str]]:
        return [
            (sentence, answer)
            for sentence in passage.sentences
            if sentence[-1:] in ".!" and not _STANDS_FOR.match(sentence)
            for answer in answers_in(sentence)
        ]


def begun(answer: str) -> str:
    """How the question begins if its answer is a year, a time or a count; else empty."""
    if re.fullmatch(r"1\d{3}|20\d{2}|\d{1,2}:\d{2}", answer):
        return " When"
    counted = re.fullmatch(rf"(?:{_NUMBER})\s+([a-z]+)", answer)
    return f" How many {counted[1]}" if counted else ""


def answers_in(sentence: str) -> list[str]:
    """The last three names and numbers of a sentence, as its subject comes before what it says."""
    answers = []
    for match in _ANSWER.finditer(sentence):
        if match["name"] and match.start() == 0 and " " not in match[0]:
            continue  # a sentence's first word always has a capital
        answers.append(match[0].rstrip(".,:"))
    return list(dict.fromkeys(answers))[-_ANSWERS:]


class Proposer:
    """Asks a model for pairs, and stores those of each passage in a folder."""

    def __init__(self, model: TextModel, way: Way, folder: Path, seed: int = 0) -> None:
        """folder: for one file per finished passage; it need not exist yet."""
        self._model, self._way, self._folder, self._seed = model, way, folder, seed

    def propose(self, passages: Sequence[Passage], report: Report) -> list[Proposal]:
        """The pairs of all passages, in order, including those that do not count.

        Of several pairs with one question only the first counts. If the model refuses to write a
        passage's pairs, an empty pair says why. After any refusal the next call asks again.
        Raises HoldfastError if the model fails as a whole or refuses every passage, or the folder
        cannot be written; finished passages stay stored.
        """
        stored = enumerate(map(self._stored, passages))
        done = {place: proposals for place, proposals in stored if proposals is not None}
        report(len(done), len(passages), "passages")
        missing = [place for place in range(len(passages)) if place not in done]
        refusals: list[Failure] = []
        for begin in range(0, len(missing), self._way.at_once):
            group = missing[begin : begin + self._way.at_once]
            written = self._proposals([passages[place] for place in group])
            for place, (proposals, refusal) in zip(group, written, strict=True):
                done[place] = proposals
                if refusal is None:
                    self._store(passages[place], proposals)
                else:
                    refusals.append(refusal)
            report(len(done) - len(refusals), len(passages), "passages")
        if refusals and len(refusals) == len(passages):
            raise HoldfastError(
                f"{self._model.name} answers to no passage ({refusals[0].reason}); run the same "
                "command again when it does, or name another model"
            )
        return _without_repeats([proposal for place in sorted(done) for proposal in done[place]])

    def _proposals(
        self, passages: Sequence[Passage]
    ) -> list[tuple[list[Proposal], Failure | None]]:
        """The pairs of each passage, and why the model refused one of its prompts, if it did."""
        prompts = [
            (place, number, prompt)
            for place, passage in enumerate(passages)
            for number, prompt in enumerate(self._way.prompts(passage))
        ]
        written = self._texts(
            [
                Prompt(f"propose {self._key(passages[place])} {number}", *prompt)
                for place, number, prompt in prompts
            ],
            self._way.longest,
        )
        refusals: dict[int, Failure] = {}
        for (place, _, _), text in zip(prompts, written, strict=True):
            if isinstance(text, Failure):
                refusals.setdefault(place, text)
        pairs = [
            (place, *pair)
            for (place, number, _), text in zip(prompts, written, strict=True)
            if isinstance(text, str) and place not in refusals
            for pair in self._way.pairs(passages[place], number, text)
        ]
        replies = self._texts(
            [
                Prompt(
                    f"answer {self._key(passages[place])} {question}",
                    *self._way.question(_behind(passages[place], question, answer), question),
                )
                for place, question, answer in pairs
            ],
            _REPLY,
        )
        proposals = [
            [_unread(passages[place], refusals[place])] if place in refusals else []
            for place in range(len(passages))
        ]
        for (place, question, answer), reply in zip(pairs, replies, strict=True):
            if isinstance(reply, Failure):
                refusals.setdefault(place, reply)
                reply = ""
            proposal = judged(passages[place], question, answer, reply, self._way.naming)
            proposals[place].append(proposal)
        return [(row, refusals.get(place)) for place, row in enumerate(proposals)]

    def _texts(self, prompts: Sequence[Prompt], longest: int) -> list[str | Failure]:
        """The model's text of each prompt, or why it has none."""
        sampling = SamplingParameters(
            temperature=0.1,
            top_p=0.9,
            max_new_tokens=longest,
            stop=self._way.stop,
            seed=self._seed,
        )
        texts: list[str | Failure] = [Failure("no answer came")] * len(prompts)
        if prompts:
            for place, answer in self._model.answer(prompts, sampling):
                texts[place] = answer if isinstance(answer, Failure) else answer[0]
        return texts

    def _key(self, passage: Passage) -> str:
        return sha256_of(
            [_VERSION, type(self._way).__name__, self._model.name, self._seed, asdict(passage)]
        )[:24]

    def _stored(self, passage: Passage) -> list[Proposal] | None:
        """The stored pairs of a passage; None if its file is missing or damaged."""
        try:
            text = (self._folder / f"{self._key(passage)}.json").read_text("utf-8")
            return [Proposal(**values) for values in json.loads(text)]
        except (OSError, ValueError, TypeError):
            return None

    def _store(self, passage: Passage, proposals: Sequence[Proposal]) -> None:
        path = self._folder / f"{self._key(passage)}.json"
        try:
            write_json(path, [asdict(proposal) for proposal in proposals], parents=True)
        except HoldfastError as error:
            raise HoldfastError(
                f"{self._folder}: what is proposed cannot be kept there ({error}); free some "
                "space, then run the same command again"
            ) from error


def read_pairs(reply: str) -> list[tuple[str, str]]:
    """The (question, answer) pairs in a reply, at most five; an answer's full stop is removed."""
    pairs = [
        tuple(" ".join(match[part].split()).strip("*_` ") for part in "qa")
        for match in _PAIR.finditer(reply)
    ]
    return [(question, answer.rstrip(".")) for question, answer in pairs if answer][:_ASKED]


def judged(
    passage: Passage,
    question: str,
    answer: str,
    reply: str,
    naming: Sequence[re.Pattern[str]] = Writing.naming,
) -> Proposal:
    """Check a pair against its passage.

    reply: the model's answer when asked the question; naming: that of a :class:`Way`.
    """
    sentence = _behind(passage, question, answer)
    agrees = says(reply, [answer])
    reason, check = _complaint(passage, question, answer, naming), None
    if not reason:
        if says(sentence, [answer]):
            check = IN_SENTENCE
            if not agrees:
                check, reason = None, "asked again, the model gives another answer"
        elif agrees:
            check = FOLLOWS
        else:
            reason = "the answer is not in the text"
    return Proposal(question, answer, sentence, passage.source, check, reason)


def _unread(passage: Passage, refusal: Failure) -> Proposal:
    """The empty pair that says why the model refused a passage."""
    reason = f"a passage, which the same command reads again ({refusal.reason})"
    return Proposal("", "", "", passage.source, None, reason)


def _behind(passage: Passage, question: str, answer: str) -> str:
    """Of the sentences with the answer, the one with most words of the question; or the passage."""
    asked = set(folded(question).split())
    candidates = [sentence for sentence in passage.sentences if says(sentence, [answer])]
    return max(
        candidates,
        key=lambda sentence: len(asked & set(folded(sentence).split())),
        default=passage.text,
    )


def _complaint(
    passage: Passage, question: str, answer: str, naming: Sequence[re.Pattern[str]]
) -> str:
    """What is wrong with a pair's question; empty if nothing is."""
    if not question.endswith("?"):
        return "it is no question"
    if _OF_THE_TEXT.search(question):
        return "it asks about the text itself"
    if says(question, [answer]):
        return "the question has its answer"
    names = (name for pattern in naming for name in pattern.findall(question))
    if not any(says(passage.text, [name]) for name in names):
        return "the question names nothing of the text"
    return ""


def _without_repeats(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Let only the first of the pairs that count for one question count."""
    answers: dict[str, str] = {}
    checked = []
    for proposal in proposals:
        key = folded(proposal.question)
        if proposal.check is not None and key in answers:
            same = bare(answers[key]) == bare(proposal.answer)
            reason = "it is there already" if same else "another answer is there already"
            proposal = replace(proposal, check=None, reason=reason)
        elif proposal.check is not None:
            answers[key] = proposal.answer
        checked.append(proposal)
    return checked
