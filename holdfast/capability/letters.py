"""MMLU-Redux and MMLU, scored by the likelihood of the answer's letter, without generation.

Source: app:res-capability, app:replay-seed.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from holdfast.backbone.generation.decoding import cache_of, can_cache, keeps_keys_alone
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import batches_by_length, pad_right
from holdfast.capability.problems import LETTERS, OPENING, Errors, Problem, Sample, mmlu, mmlu_redux
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import NO_NUMBERS

# Written for Holdfast, so that no question of a published split is in a prompt.
EXAMPLES = (
    "Question: Which of these instruments shows how warm the air is?\n"
    "A. a compass\nB. a thermometer\nC. a ruler\nD. a stopwatch\nAnswer: B\n\n",
    "Question: What does a tree take in through its roots?\n"
    "A. light\nB. sound\nC. wind\nD. water\nAnswer: D\n\n",
)
_TOKENS_PER_BATCH = 8192  # of whole prompts; bounds the memory, no effect on results


@dataclass(frozen=True)
class LetterChoice:
    """A suite of questions with four choices.

    errors: how to treat items that MMLU-Redux marks as wrong. drop: leave them out; keep: score
    them with their original answer; correct: score them with the corrected answer, or leave them
    out if there is not exactly one.
    """

    name: Literal["mmlu_redux", "mmlu"] = "mmlu_redux"
    errors: Errors = "drop"

    @property
    def settings(self) -> dict[str, Any]:
        options = {"examples": len(EXAMPLES), **OPENING}
        return options if self.name == "mmlu" else {**options, "errors": self.errors}

    def items(self, data_root: Path | None) -> list[Problem]:
        return mmlu(data_root) if self.name == "mmlu" else mmlu_redux(data_root, self.errors)

    def check(self, backbone: Backbone) -> None:
        letter_tokens(backbone)

    def answer(self, backbone: Backbone, items: Sequence[Problem]) -> Iterator[Sample]:
        """Yield a sample of each item; every item gets a prediction.

        A prompt longer than the model's positions loses examples, the first one first; a question
        that is too long by itself loses its beginning. details: the number of examples and of lost
        tokens. The replay token precedes the prompt of a model that was trained with it.
        """
        letters = letter_tokens(backbone)
        # Prompts with the same examples have a long beginning in common.
        groups: dict[int, list[_Prompt]] = defaultdict(list)
        for item in items:
            prompt = _prompt(backbone, item)
            groups[prompt.examples].append(prompt)
        for prompts in groups.values():
            tokens = [prompt.tokens for prompt in prompts]
            for place, values in next_token_log_probabilities(backbone, tokens, letters):
                item, text, _, examples, lost = prompts[place]
                scores = dict(zip(LETTERS, values, strict=True))
                letter = max(scores, key=scores.__getitem__)
                right = letter == item.target
                details = {"log_probabilities": scores, "examples": examples, "lost_tokens": lost}
                yield Sample(item.id, item.group, text, "", letter, item.target, right, details)


class _Prompt(NamedTuple):
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

    If these are the same, as for a tokenizer that prepends a space token to any text, the first
    token of each letter after "Answer:".
    Raises HoldfastError if two letters share that token too, or a letter has none.
    """
    for before in ("", "Answer:"):
        beginning = backbone.tokenize(before)
        tokens = [backbone.tokenize(f"{before} {letter}") for letter in LETTERS]
        first = [ids[len(beginning)] for ids in tokens if ids[: len(beginning)] == beginning != ids]
        if len(set(first)) == len(LETTERS):
            return first
    raise HoldfastError(
        'mmlu_redux, mmlu: this model\'s tokenizer does not tell " A", " B", " C" and " D" apart '
        "by their first token, which the score compares; leave them out of --tasks"
    )


def next_token_log_probabilities(
    backbone: Backbone,
    prompts: Sequence[list[int]],
    candidates: Sequence[int],
    tokens_per_batch: int = _TOKENS_PER_BATCH,
) -> Iterator[tuple[int, list[float]]]:
    """Yield (place, natural log-probability of each candidate after that prompt), longest first.

    If the model's cache allows it, the common beginning of all prompts passes through the model
    only once. Raises HoldfastError if the model's logits are NaN.
    """
    model, cache, shared = backbone.model, None, 0
    if keeps_keys_alone(model) and can_cache(backbone):
        # All prompts share what the first and the last in sorted order share; keep a token of each.
        ends = zip(min(prompts), max(prompts), strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], ends)))
        shared = min(same, min(map(len, prompts)) - 1)
    if shared:
        cache = cache_of(model)
        ids = torch.tensor([prompts[0][:shared]], device=backbone.device)
        with backbone.answering():
            model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    for rows in batches_by_length([len(prompt) for prompt in prompts], tokens_per_batch):
        rests = [prompts[row][shared:] for row in rows]
        # On the right, so that no token attends to padding.
        ids, mask = pad_right(rests, backbone.pad_token, backbone.device)
        places = torch.arange(len(rows), device=backbone.device)
        # Entered for each batch: the caller must not run in this mode between yields.
        with backbone.answering():
            if cache is None:
                hidden = backbone.hidden(ids)
            else:
                filled = copy.deepcopy(cache)
                filled.reorder_cache(torch.zeros_like(places))
                hidden = model.base_model(
                    input_ids=ids, past_key_values=filled, use_cache=True
                ).last_hidden_state
            logits = backbone.logits(hidden[places, mask.sum(dim=1) - 1])
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
        if wide.isnan().any():
            raise HoldfastError(NO_NUMBERS)
        yield from zip(rows, wide[:, list(candidates)].tolist(), strict=True)


def _prompt(backbone: Backbone, item: Problem) -> _Prompt:
    room = backbone.positions
    for left_out in range(len(EXAMPLES) + 1):
        text = "".join(EXAMPLES[left_out:]) + question(item)
        tokens = backbone.tokenize(text)
        lost = 0 if room is None else max(len(backbone.opening) + len(tokens) - room, 0)
        if lost == 0:
            break
    ids = [*backbone.opening, *tokens[lost:]]
    return _Prompt(item, text, ids, len(EXAMPLES) - left_out, lost)
