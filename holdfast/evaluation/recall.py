"""Recall: the share of questions that greedy decoding answers, mostly without generating.

Greedy decoding produces the canonical answer exactly when the argmax at each of its positions, in
one teacher-forced pass, is the answer's own next token. If the pass deviates, greedy decoding is
known up to the deviation, and its text can seldom still become an accepted answer. Only undecided
answers are generated, from the deviation on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from pydantic import PositiveInt
from torch import Tensor

from holdfast.core import config as core_config
from holdfast.core.processes import all_gather_lists, rank_indices
from holdfast.evaluation.boxed import Match, first_box, judge
from holdfast.model.backbone import Backbone
from holdfast.model.generation.decoding import decode_greedily
from holdfast.model.sequences import batches_by_length, collate, to_device
from holdfast.results.matrix import Entry
from holdfast.streams import Item, Task, Template

# SentencePiece's tokens for the bytes of characters that its vocabulary lacks.
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
# Rows of logits in memory at a time: 600 MiB over 150k tokens in bfloat16.
_POSITIONS_AT_ONCE = 2048


class Verdict(NamedTuple):
    r"""One answer: whether it is correct, contains ``\boxed{``, and had to be decoded."""

    correct: bool
    boxed: bool
    decoded: bool


class RecallCount(NamedTuple):
    r"""Counts of a task's items: correct, all, with a box, decoded; recalled: each item's verdict.

    boxed: outputs, up to their stop token or ``max_new_tokens``, that contain ``\boxed{``, closed
    or not; None in a form without boxes. correct / items is an entry of the matrix, boxed / items
    the emission rate of app. res-controls.
    """

    correct: int
    items: int
    boxed: int | None
    decoded: int
    recalled: tuple[bool, ...] = ()

    @property
    def entry(self) -> Entry:
        return Entry(self.correct, self.items, self.boxed)


class Recall:
    """Scores questions of one stream as ``generate(do_sample=False)`` would, mostly without it.

    An item is recalled if the first box that greedy decoding opens after the prompt holds an
    accepted answer; in the chat form, if the whole output up to its stop token is one. The replay
    token precedes the prompt if the backbone has one. An item's tokens are cached for later rows.

    exact_case: whether ``match: auto`` means exact case for this stream.
    Source: eq. matrix.
    """

    class Config(core_config.Config):
        """max_new_tokens: the most tokens of an answer.

        The others affect only speed and memory: tokens_per_batch: tokens of one verifying pass;
        tokens_in_cache: tokens of all rows decoded together, at their full length.
        """

        match: Literal["auto"] | Match = "auto"
        max_new_tokens: PositiveInt = 256
        tokens_per_batch: PositiveInt = 8192
        tokens_in_cache: PositiveInt = 65536

    def __init__(
        self,
        backbone: Backbone,
        template: Template,
        config: Config | None = None,
        *,
        exact_case: bool = False,
    ) -> None:
        self.config = config or Recall.Config()
        by_stream: Match = "exact" if exact_case else "ignore_case"
        self.match: Match = by_stream if self.config.match == "auto" else self.config.match
        self._backbone = backbone
        self._template = template
        self._questions: dict[Item, _Question] = {}
        pieces: dict[str, int] = backbone.tokenizer.get_vocab()
        self._byte_tokens = {token for piece, token in pieces.items() if _BYTE_PIECE.match(piece)}

    def task(self, task: Task) -> RecallCount:
        """Recall on one task."""
        return self._count(self.verdicts(task.items))

    def row(self, tasks: Sequence[Task]) -> list[RecallCount]:
        """Recall on each task; batches are formed across all of them."""
        verdicts = iter(self.verdicts(item for task in tasks for item in task.items))
        return [self._count([next(verdicts) for _ in task.items]) for task in tasks]

    def verdicts(self, items: Iterable[Item]) -> list[Verdict]:
        """The verdict on each item, in order."""
        items = list(items)
        of_rank = self._verdicts([items[place] for place in rank_indices(len(items))])
        gathered = all_gather_lists([list(map(int, verdict)) for verdict in of_rank], len(items))
        return [Verdict(*map(bool, verdict)) for verdict in gathered]

    def _verdicts(self, items: Sequence[Item]) -> list[Verdict]:
        questions = [self._question(item) for item in items]
        prompts = [self._backbone.opening + question.prompt for question in questions]
        outputs = follow(
            self._backbone,
            prompts,
            [question.canonical for question in questions],
            tokens_per_batch=self.config.tokens_per_batch,
        )
        pending = [
            index
            for index, question in enumerate(questions)
            if not self._decided(question, outputs[index])
        ]
        rests = decode_greedily(
            self._backbone,
            [prompts[index] + outputs[index] for index in pending],
            [self.config.max_new_tokens - len(outputs[index]) for index in pending],
            lambda row, rest: self._decided(questions[pending[row]], outputs[pending[row]] + rest),
            tokens_in_cache=self.config.tokens_in_cache,
        )
        for index, rest in zip(pending, rests, strict=True):
            outputs[index] = outputs[index] + rest
        decoded = set(pending)
        return [
            self._verdict(question, outputs[index], index in decoded)
            for index, question in enumerate(questions)
        ]

    def _question(self, item: Item) -> _Question:
        if item not in self._questions:
            prompt = self._backbone.tokenize(self._template.prompt(item))
            answer = self._template.encode_answer(item, self._backbone.tokenizer)
            stops = self._backbone.stop_tokens
            end = next((n for n, token in enumerate(answer, start=1) if token in stops), None)
            answer = answer[:end][: self.config.max_new_tokens]
            self._questions[item] = _Question(prompt, answer, (item.answer, *item.aliases))
        return self._questions[item]

    def _decided(self, question: _Question, tokens: list[int]) -> bool:
        """Whether no continuation of ``tokens`` can change the verdict."""
        if len(tokens) >= self.config.max_new_tokens or tokens[-1] in self._backbone.stop_tokens:
            return True
        # The next byte token can still change the text of the byte tokens before it.
        settled = len(tokens)
        while settled and tokens[settled - 1] in self._byte_tokens:
            settled -= 1
        text = self._backbone.decode(tokens[:settled])
        boxed = self._template.form.boxed
        return judge(text, question.accepted, self.match, ended=False, boxed=boxed) is not None

    def _verdict(self, question: _Question, tokens: list[int], decoded: bool) -> Verdict:
        # All continuations of a decided text have the same verdict, so judge it as ended.
        boxed = self._template.form.boxed
        ended = tokens[-1] in self._backbone.stop_tokens
        # The end of a turn need not be a special token, and is no part of the answer.
        text = self._backbone.decode(tokens if boxed or not ended else tokens[:-1])
        correct = judge(text, question.accepted, self.match, ended=True, boxed=boxed) is True
        if not boxed:  # a cut answer is wrong
            correct = correct and ended
        return Verdict(correct, first_box(text) is not None, decoded)

    def _count(self, verdicts: Sequence[Verdict]) -> RecallCount:
        boxed = sum(verdict.boxed for verdict in verdicts)
        return RecallCount(
            correct=sum(verdict.correct for verdict in verdicts),
            items=len(verdicts),
            boxed=boxed if self._template.form.boxed else None,
            decoded=sum(verdict.decoded for verdict in verdicts),
            recalled=tuple(verdict.correct for verdict in verdicts),
        )


class _Question(NamedTuple):
    """prompt, canonical (answer): token ids, no replay token; accepted: the answer, aliases."""

    prompt: list[int]
    canonical: list[int]
    accepted: tuple[str, ...]


def follow(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    *,
    tokens_per_batch: int,
) -> list[list[int]]:
    """The tokens that greedy decoding appends to each prompt, to its first deviation, included.

    That is the whole continuation if greedy decoding follows it to the end. prompts, continuations:
    token ids, none of them empty; tokens_per_batch: of both, padded.
    """
    sequences = [
        [*prompt, *continuation]
        for prompt, continuation in zip(prompts, continuations, strict=True)
    ]
    order: list[int] = []
    pieces: list[Tensor] = []
    with backbone.answering():
        for rows in batches_by_length([len(tokens) for tokens in sequences], tokens_per_batch):
            order += rows
            first = [len(prompts[row]) - 1 for row in rows]
            pieces += _argmax_from(backbone, [sequences[row] for row in rows], first)
    # Read once, after the last batch, so that the CPU does not wait for the GPU between batches.
    choices = iter(torch.cat(pieces).tolist() if pieces else [])
    followed: list[list[int]] = [[] for _ in sequences]
    for row in order:
        tokens = [next(choices) for _ in continuations[row]]
        followed[row] = _until_deviation(tokens, continuations[row])
    return followed


def _argmax_from(backbone: Backbone, sequences: list[list[int]], first: list[int]) -> list[Tensor]:
    """The argmax next token at each sequence's rows from ``first`` on, in pieces to concatenate."""
    batch = collate(sequences, backbone.device)
    starts = accumulate(batch.lengths, initial=0)
    positions = [
        row
        for start, begin, length in zip(starts, first, batch.lengths, strict=False)
        for row in range(start + begin, start + length)
    ]
    states = backbone.states(batch)[to_device(torch.tensor(positions), backbone.device)]
    return [
        backbone.logits(states[start : start + _POSITIONS_AT_ONCE]).argmax(dim=-1)
        for start in range(0, len(states), _POSITIONS_AT_ONCE)
    ]


def _until_deviation(choices: list[int], continuation: Sequence[int]) -> list[int]:
    for position, (choice, expected) in enumerate(zip(choices, continuation, strict=True)):
        if choice != expected:
            return choices[: position + 1]
    return choices
