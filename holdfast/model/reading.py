"""Prompts as a model has read them, their keys and values, and answers that continue them.

Every prompt begins with the same tokens, whose keys and values are computed once per model. An
activated adapter acts from the invocation on, so a prompt's keys and values are the untouched
model's, whichever adapter answers (Greenewald et al. 2025, 2504.12397).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from transformers import DynamicCache

from holdfast.core.reporting import CountReport, silent
from holdfast.model.chat import ChatForm
from holdfast.model.layers import shallow

Layer = tuple[torch.Tensor, torch.Tensor]  # keys and values: [heads, tokens, d_head]


@dataclass(frozen=True)
class Reading:
    """A prompt, with the keys and values of a model that has read it.

    tokens: those between the common prefix and the invocation; layers: their keys and values;
    states: at the tokens of the user's text, [len(depths), tokens, d], if they were asked for.
    """

    tokens: tuple[int, ...]
    layers: tuple[Layer, ...]
    states: torch.Tensor | None = None

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.tokens)


UNREAD = Reading((), ())  # an empty prompt: an answer follows the common prefix at once


@dataclass(frozen=True)
class AnswerLogits:
    """Logits [tokens, vocabulary] at every token of some answers, one answer after another.

    targets: [tokens], the token that each row predicts; answer: [tokens], the index of each row's
    answer; stops: the tokens that end an answer.
    """

    logits: torch.Tensor
    targets: torch.Tensor
    answer: torch.Tensor
    stops: tuple[int, ...] = ()

    def losses(self) -> torch.Tensor:
        """Cross-entropy of each answer in nats, the mean over its tokens: [answers]."""
        each = F.cross_entropy(self.logits, self.targets, reduction="none")
        counts = torch.bincount(self.answer)
        return each.new_zeros(len(counts)).index_add(0, self.answer, each) / counts

    def margins(self) -> torch.Tensor:
        """The least lead of an answer's tokens over every other token, in nats: [answers].

        Negative if greedy decoding would leave the answer. Any of the stops may end it.
        """
        logits = self.logits.detach()
        is_right = F.one_hot(self.targets, logits.shape[1]).bool()
        if self.stops:
            stops = torch.tensor(self.stops, device=logits.device)
            ending = torch.isin(self.targets, stops)
            is_right[:, stops] |= ending[:, None]
        right = logits.masked_fill(~is_right, float("-inf")).amax(1)
        others = logits.masked_fill(is_right, float("-inf")).amax(1)
        least = logits.new_full((int(self.answer[-1]) + 1,), float("inf"))
        return least.scatter_reduce(0, self.answer, right - others, "amin")


class PromptReader:
    """Reads prompts and decodes answers with a causal language model in evaluation mode.

    The caller decides whether an adapter acts. None may act when the common prefix is first read;
    :meth:`own_prefix` reads it again, with the adapter.
    """

    def __init__(self, model: Any, form: ChatForm) -> None:
        self.model, self.form = model, form
        self._device = next(model.parameters()).device
        self._prefix: tuple[Layer, ...] | None = None

    @torch.no_grad()
    def read(
        self, prompts: Sequence[Sequence[int]], depths: Sequence[int] = (), batch: int = 32
    ) -> list[Reading]:
        """Read prompts, each the tokens of :meth:`ChatForm.question`.

        depths: which hidden states to keep: 0 for the embeddings, n for the output of layer n.
        """
        readings: dict[int, Reading] = {}
        for places in rows_by_length(list(map(len, prompts)), batch):
            group = self._read([prompts[place] for place in places], depths)
            readings |= dict(zip(places, group, strict=True))
        return [readings[place] for place in range(len(prompts))]

    def _read(self, prompts: Sequence[Sequence[int]], depths: Sequence[int]) -> list[Reading]:
        start = len(self.form.prefix)
        ids, present = _right_padded(prompts, self._device)
        cache = self._cache([UNREAD] * len(prompts))
        mask = torch.cat([present.new_ones(len(prompts), start), present], 1)
        out = self.model.base_model(
            ids, past_key_values=cache, attention_mask=mask, output_hidden_states=bool(depths)
        )
        readings = []
        for row, prompt in enumerate(prompts):
            own = slice(start, start + len(prompt))
            layers = tuple(
                (keys[row, :, own].clone(), values[row, :, own].clone())
                for keys, values in _layers(cache)
            )
            text = len(prompt) - len(self.form.user_end)
            states = _states_at(depths, out.hidden_states, row, text) if depths else None
            readings.append(Reading(tuple(prompt), layers, states))
        return readings

    @torch.no_grad()
    def states(
        self,
        prompts: Sequence[Sequence[int]],
        depths: Sequence[int],
        report: CountReport = silent,
    ) -> list[torch.Tensor]:
        """The hidden states of prompts that :meth:`read` would keep: [len(depths), tokens, d] each.

        Only the user's text is read, and only by the first ``max(depths) + 1`` layers.
        """
        prompts = [prompt[: len(prompt) - len(self.form.user_end)] for prompt in prompts]
        states: dict[int, torch.Tensor] = {}
        self.ensure_prefix()  # before the model is cut
        with shallow(self.model, max(depths) + 1):  # the last layer's states are normalised
            for places in rows_by_length(list(map(len, prompts)), 64):
                hidden = self.hidden([prompts[place] for place in places])
                for row, place in enumerate(places):
                    states[place] = _states_at(depths, hidden, row, len(prompts[place]))
                report(len(states), len(prompts))
        return [states[place] for place in range(len(prompts))]

    def hidden(
        self, texts: Sequence[Sequence[int]], *, alone: bool = False
    ) -> Sequence[torch.Tensor]:
        """The hidden states of texts at every depth, each [batch, longest, d].

        alone: without the prefix.
        """
        ids, mask = _right_padded(texts, self._device)
        cache = None
        if not alone:
            cache = self._cache([UNREAD] * len(texts))
            mask = torch.cat([mask.new_ones(len(texts), len(self.form.prefix)), mask], 1)
        hidden: Sequence[torch.Tensor] = self.model.base_model(
            ids, past_key_values=cache, attention_mask=mask, output_hidden_states=True
        ).hidden_states
        return hidden

    def answer_logits(
        self,
        readings: Sequence[Reading],
        answers: Sequence[Sequence[int]],
        behind: Sequence[Sequence[int]] | None = None,
    ) -> AnswerLogits:
        """The logits of answers (tokens of :meth:`ChatForm.answer`), from one teacher-forced pass.

        behind: the tokens between each reading and its answer, by default the invocation.
        """
        between = [self.form.invocation] * len(answers) if behind is None else behind
        tokens = [[*row, *answer[:-1]] for row, answer in zip(between, answers, strict=True)]
        ids, present = _right_padded(tokens, self._device)
        owner = [place for place, answer in enumerate(answers) for _ in answer]
        # The last token before an answer predicts its first.
        columns = [
            len(row) - 1 + place
            for row, answer in zip(between, answers, strict=True)
            for place in range(len(answer))
        ]
        return AnswerLogits(
            self._pass(self._cache(readings), readings, ids, present, (owner, columns)),
            torch.tensor([token for answer in answers for token in answer], device=self._device),
            torch.tensor(owner, device=self._device),
            tuple(sorted(self.form.stops)),
        )

    @torch.no_grad()
    def margins(
        self, readings: Sequence[Reading], answers: Sequence[Sequence[int]], batch: int = 32
    ) -> list[float]:
        """The :meth:`AnswerLogits.margins` of answers, ``batch`` in a pass."""
        margins: list[float] = []
        for begin in range(0, len(answers), batch):
            group = slice(begin, begin + batch)
            margins += self.answer_logits(readings[group], answers[group]).margins().tolist()
        return margins

    @torch.no_grad()
    def decode(self, readings: Sequence[Reading], limit: int, batch: int = 32) -> list[list[int]]:
        """Decode greedily up to a stop token, which is left out, or ``limit`` tokens."""
        decoded: list[list[int]] = [[] for _ in readings]
        for places in rows_by_length([reading.length for reading in readings], batch):
            for tokens in self.steps([readings[place] for place in places], limit):
                for place, token in zip(places, tokens, strict=True):
                    if token is not None:
                        decoded[place].append(token)
        return decoded

    @torch.no_grad()
    def steps(
        self,
        readings: Sequence[Reading],
        limit: int,
        choose: Callable[[torch.Tensor, int], torch.Tensor] = lambda logits, _: logits.argmax(-1),
        begin: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[list[int | None]]:
        """Decode all readings in one batch, and yield each step's tokens, None for ended answers.

        The adapter may change between steps. choose: returns the next tokens [batch] for logits
        [batch, vocabulary] and the step's number. begin: tokens in place of the invocation, equally
        many in every row.
        """
        first = [self.form.invocation] * len(readings) if begin is None else begin
        ids = torch.tensor([list(row) for row in first], device=self._device)
        cache, present = self._cache(readings), torch.ones_like(ids)
        done = [False] * len(readings)
        for step in range(limit):
            last = range(len(readings)), [ids.shape[1] - 1] * len(readings)
            following = choose(self._pass(cache, readings, ids, present, last), step)
            tokens = following.tolist()
            done = [
                ended or token in self.form.stops for ended, token in zip(done, tokens, strict=True)
            ]
            if all(done):
                return
            yield [None if ended else token for ended, token in zip(done, tokens, strict=True)]
            ids = following[:, None]
            present = torch.cat([present, torch.ones_like(ids)], 1)

    def _pass(
        self,
        cache: DynamicCache,
        readings: Sequence[Reading],
        ids: torch.Tensor,
        present: torch.Tensor,
        places: tuple[Sequence[int], Sequence[int]],
    ) -> torch.Tensor:
        """Logits [places, vocabulary] of new tokens ``ids`` after the prompts and cached tokens.

        present: [batch, tokens after the prompts, the new ones included], 0 where padded; places:
        the rows and the columns of ``ids`` whose logits are computed.
        """
        start, longest = len(self.form.prefix), max(reading.length for reading in readings)
        lengths = torch.tensor([reading.length for reading in readings], device=ids.device)
        padded = torch.arange(longest, device=ids.device) >= (longest - lengths)[:, None]
        prefix = present.new_ones(len(readings), start)
        mask = torch.cat([padded.to(present.dtype), prefix, present], 1)
        place = torch.arange(present.shape[1] - ids.shape[1], present.shape[1], device=ids.device)
        with logits_at(self.model, *places):
            logits: torch.Tensor = self.model(
                ids,
                past_key_values=cache,
                attention_mask=mask,
                position_ids=start + lengths[:, None] + place,
            ).logits
        return logits[0]

    def _cache(self, readings: Sequence[Reading]) -> DynamicCache:
        """A cache that holds the prefix and each prompt, padded on the left.

        No padding parts the two: a sliding window counts padded places, too.
        """
        longest = max(reading.length for reading in readings)
        cache = DynamicCache()
        for number, prefix in enumerate(self.ensure_prefix()):
            sides = []
            for side, shared in enumerate(prefix):
                if not longest:
                    sides.append(shared.expand(len(readings), -1, -1, -1))
                    continue
                rows = [
                    F.pad(
                        torch.cat([shared[0], reading.layers[number][side]], 1),
                        (0, 0, longest - reading.length, 0),
                    )
                    for reading in readings
                ]
                sides.append(torch.stack(rows))
            cache.update(sides[0], sides[1], number)
        return cache

    @contextlib.contextmanager
    def own_prefix(self) -> Iterator[None]:
        """Within the block, use a common prefix read by the model as it is now, adapter included.

        After the block, its keys and values are the untouched model's again.
        """
        with torch.no_grad():
            untouched, self._prefix = self._prefix, self._read_prefix()
        try:
            yield
        finally:
            self._prefix = untouched

    @contextlib.contextmanager
    def trained_prefix(self) -> Iterator[None]:
        """As :meth:`own_prefix`, with gradients that flow through the reading of the prefix, too.

        Backward passes within the block give gradients in the prefix's keys and values, which are
        sent on through its reading when the block ends without an error.
        """
        with torch.enable_grad():
            read = self._read_prefix()
        leaves = tuple((k.detach().requires_grad_(), v.detach().requires_grad_()) for k, v in read)
        untouched, self._prefix = self._prefix, leaves
        try:
            yield
        finally:
            self._prefix = untouched
        pairs = zip(chain.from_iterable(read), chain.from_iterable(leaves), strict=True)
        reached = [
            (side, leaf) for side, leaf in pairs if side.requires_grad and leaf.grad is not None
        ]
        torch.autograd.backward([side for side, _ in reached], [leaf.grad for _, leaf in reached])

    def ensure_prefix(self) -> tuple[Layer, ...]:
        """The keys and values of the common prefix, computed at the first call."""
        if self._prefix is None:
            with torch.no_grad():
                self._prefix = self._read_prefix()
        return self._prefix

    def _read_prefix(self) -> tuple[Layer, ...]:
        cache = DynamicCache()
        ids = torch.tensor([self.form.prefix], device=self._device)
        # When states are first asked for, transformers hooks the layers it finds: all of them now.
        self.model.base_model(ids, past_key_values=cache, output_hidden_states=True)
        return _layers(cache)


def rows_by_length(lengths: Sequence[int], batch: int) -> Iterator[list[int]]:
    """Yield the indices of rows with these lengths, shortest first, ``batch`` at a time."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), batch):
        yield order[begin : begin + batch]


def _layers(cache: Any) -> tuple[Layer, ...]:
    return tuple((layer.keys, layer.values) for layer in cache.layers)


def _states_at(
    depths: Sequence[int], hidden: Sequence[torch.Tensor], row: int, tokens: int
) -> torch.Tensor:
    """The hidden states of a row's first ``tokens``: [len(depths), tokens, d]."""
    return torch.stack([hidden[depth][row, :tokens] for depth in depths])


def _right_padded(
    tokens: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [batch, longest], padded with 0 on the right, and their mask, 1 for a token."""
    longest = max(map(len, tokens))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in tokens], device=device)
    lengths = torch.tensor([len(row) for row in tokens], device=device)
    return ids, (torch.arange(longest, device=device) < lengths[:, None]).long()


@contextlib.contextmanager
def logits_at(model: Any, rows: Sequence[int], columns: Sequence[int]) -> Iterator[None]:
    """Within the block, passes give logits [1, places, vocabulary], at these rows and columns only.

    transformers' own ``logits_to_keep`` takes the same columns of every row, and torch then
    multiplies by a copy of the head for each row.
    """

    def gather(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        places = torch.tensor([rows, columns], device=inputs[0].device)
        return inputs[0][places[0], places[1]][None]

    with model.get_output_embeddings().register_forward_pre_hook(gather):
        yield
