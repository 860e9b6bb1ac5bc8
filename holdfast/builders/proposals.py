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

from holdfast.builders.documents import Passage
from holdfast.builders.prompting import NAME_OR_NUMBER, VERSION, PromptForm
from holdfast.builders.text_model import Failure, Prompt, SamplingParameters, TextModel
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json
from holdfast.core.reporting import NoteReport
from holdfast.streams.item import bare, folded, says

_REPLY = 24  # most tokens of an answer
_OF_THE_TEXT = re.compile(
    r"\b(?:text|passage|author|paragraph|sentence|according to|answer to the question)\b", re.I
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


class Proposer:
    """Asks a model for pairs, and stores those of each passage in a folder."""

    def __init__(self, model: TextModel, form: PromptForm, folder: Path, seed: int = 0) -> None:
        """folder: for one file per finished passage; it need not exist yet."""
        self._model, self._form, self._folder, self._seed = model, form, folder, seed

    def propose(self, passages: Sequence[Passage], report: NoteReport) -> list[Proposal]:
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
        for begin in range(0, len(missing), self._form.at_once):
            group = missing[begin : begin + self._form.at_once]
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
            for number, prompt in enumerate(self._form.prompts(passage))
        ]
        written = self._texts(
            [
                Prompt(f"propose {self._key(passages[place])} {number}", *prompt)
                for place, number, prompt in prompts
            ],
            self._form.longest,
        )
        refusals: dict[int, Failure] = {}
        for (place, _, _), text in zip(prompts, written, strict=True):
            if isinstance(text, Failure):
                refusals.setdefault(place, text)
        pairs = [
            (place, *pair)
            for (place, number, _), text in zip(prompts, written, strict=True)
            if isinstance(text, str) and place not in refusals
            for pair in self._form.pairs(passages[place], number, text)
        ]
        replies = self._texts(
            [
                Prompt(
                    f"answer {self._key(passages[place])} {question}",
                    *self._form.question(_behind(passages[place], question, answer), question),
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
            proposal = judged(passages[place], question, answer, reply)
            proposals[place].append(proposal)
        return [(row, refusals.get(place)) for place, row in enumerate(proposals)]

    def _texts(self, prompts: Sequence[Prompt], longest: int) -> list[str | Failure]:
        """The model's text of each prompt, or why it has none."""
        sampling = SamplingParameters(
            temperature=0.1,
            top_p=0.9,
            max_new_tokens=longest,
            stop=self._form.stop,
            seed=self._seed,
        )
        texts: list[str | Failure] = [Failure("no answer came")] * len(prompts)
        if prompts:
            for place, answer in self._model.answer(prompts, sampling):
                texts[place] = answer if isinstance(answer, Failure) else answer[0]
        return texts

    def _key(self, passage: Passage) -> str:
        return sha256_of(
            [VERSION, type(self._form).__name__, self._model.name, self._seed, asdict(passage)]
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


def judged(passage: Passage, question: str, answer: str, reply: str) -> Proposal:
    """Check a pair against its passage, and the model's reply when asked the question."""
    sentence = _behind(passage, question, answer)
    agrees = says(reply, [answer])
    reason, check = _complaint(passage, question, answer), None
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


def _complaint(passage: Passage, question: str, answer: str) -> str:
    """What is wrong with a pair's question; empty if nothing is."""
    if not question.endswith("?"):
        return "it is no question"
    if _OF_THE_TEXT.search(question):
        return "it asks about the text itself"
    if says(question, [answer]):
        return "the question has its answer"
    # By a capital or a number: a writer of 1.5 billion parameters asks of "the court", too.
    if not any(says(passage.text, [name]) for name in NAME_OR_NUMBER.findall(question)):
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
