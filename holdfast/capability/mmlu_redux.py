"""MMLU-Redux and MMLU, scored by the likelihood of the answer's letter, without generation.

Source: app:res-capability, app:replay-seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.backbone.model import Backbone
from holdfast.capability.likelihood import next_token_log_probabilities
from holdfast.capability.mmlu_files import LETTERS, Errors, mmlu_items, redux_items
from holdfast.capability.outcome import OPENING, Problem, Progress, Sample, spread
from holdfast.core.errors import HoldfastError

# Written for Holdfast, so that no question of a published split is in a prompt.
EXAMPLES = (
    "Question: Which of these instruments shows how warm the air is?\n"
    "A. a compass\nB. a thermometer\nC. a ruler\nD. a stopwatch\nAnswer: B\n\n",
    "Question: What does a tree take in through its roots?\n"
    "A. light\nB. sound\nC. wind\nD. water\nAnswer: D\n\n",
)


@dataclass(frozen=True)
class LetterChoice:
    """A suite of questions with four choices.

    errors: how to treat items that MMLU-Redux marks as wrong. drop: leave them out; keep: score
    them with their original answer; correct: score them with the corrected answer if there is
    exactly one, else leave them out.
    """

    name: Literal["mmlu_redux", "mmlu"] = "mmlu_redux"
    errors: Errors = "drop"

    @property
    def settings(self) -> dict[str, Any]:
        options = {"examples": len(EXAMPLES), **OPENING}
        return options if self.name == "mmlu" else {**options, "errors": self.errors}

    def items(self, data_root: Path | None, limit: int | None) -> list[Problem]:
        if self.name == "mmlu":
            return spread(mmlu_items(data_root), limit)
        return spread(redux_items(data_root, self.errors), limit)

    def check(self, backbone: Backbone) -> None:
        letter_tokens(backbone)

    def answer(
        self, backbone: Backbone, items: Sequence[Problem], progress: Progress
    ) -> Iterator[Sample]:
        """Yield a sample of each item; every item gets a prediction.

        A prompt longer than the model's positions loses examples, the first one first; a question
        that is too long by itself loses its beginning. details: the number of examples and of lost
        tokens. The replay token precedes the prompt of a model that was trained with it.
        Raises HoldfastError when the letters do not differ in their first token.
        """
        letters = letter_tokens(backbone)
        groups: dict[int, list[_Prompt]] = defaultdict(list)
        for item in items:
            prompt = _prompt(backbone, item)
            groups[prompt.examples].append(prompt)
        done = 0
        for prompts in groups.values():
            tokens = [prompt.tokens for prompt in prompts]
            for place, found in next_token_log_probabilities(backbone, tokens, letters):
                done += 1
                progress(done, len(items), "")
                yield _sample(prompts[place], found)


@dataclass(frozen=True)
class _Prompt:
    """tokens: opening and prompt, at most the model's positions; lost: how many were cut off."""

    item: Problem
    text: str
    tokens: list[int]
    examples: int
    lost: int


def question(item: Problem) -> str:
    """The question and its labelled choices; ends with ``Answer:``."""
    choices = zip(LETTERS, item.details["choices"], strict=True)
    lines = [f"Question: {item.prompt}", *(f"{letter}. {choice}" for letter, choice in choices)]
    return "\n".join([*lines, "Answer:"])


def letter_tokens(backbone: Backbone) -> list[int]:
    """The first token of " A", " B", " C" and " D".

    For tokenizers that prepend a space to any text, which would be that first token, it is the
    letter's first token after "Answer:".
    Raises HoldfastError when two letters share their first token, or a letter has none.
    """
    for before in ("", "Answer:"):
        known = backbone.tokenize(before)
        tokens = [backbone.tokenize(f"{before} {letter}") for letter in LETTERS]
        first = [
            ids[len(known)]
            for ids in tokens
            if ids[: len(known)] == known and len(ids) > len(known)
        ]
        if len(set(first)) == len(LETTERS):
            return first
    raise HoldfastError(
        'mmlu_redux: this model\'s tokenizer does not tell " A", " B", " C" and " D" apart by '
        "their first token, which the score compares; leave mmlu_redux out of --tasks"
    )


def _prompt(backbone: Backbone, item: Problem) -> _Prompt:
    room = getattr(backbone.model.config, "max_position_embeddings", None)
    for left_out in range(len(EXAMPLES) + 1):
        text = "".join(EXAMPLES[left_out:]) + question(item)
        tokens = backbone.tokenize(text)
        lost = 0 if room is None else max(len(backbone.opening) + len(tokens) - room, 0)
        if lost == 0:
            break
    kept = [*backbone.opening, *tokens[lost:]]
    return _Prompt(item, text, kept, len(EXAMPLES) - left_out, lost)


def _sample(prompt: _Prompt, log_probabilities: list[float]) -> Sample:
    item = prompt.item
    chosen = LETTERS[log_probabilities.index(max(log_probabilities))]
    return Sample(
        id=item.id,
        group=item.group,
        prompt=prompt.text,
        output="",
        extracted=chosen,
        target=item.target,
        correct=chosen == item.target,
        details={
            "log_probabilities": dict(zip(LETTERS, log_probabilities, strict=True)),
            "examples": prompt.examples,
            "lost_tokens": prompt.lost,
        },
    )
