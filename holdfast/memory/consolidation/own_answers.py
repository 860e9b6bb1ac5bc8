"""The untouched model's logits at the answers of its own texts, kept as last hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from holdfast.model.layers import shallow
from holdfast.model.reading import UNREAD, AnswerLogits, PromptReader


@dataclass(frozen=True)
class Turn:
    """The token ids of a question after the prefix, and of its answer after the invocation."""

    question: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.question) + len(self.answer)


def answers_behind(reader: PromptReader, turns: Sequence[Turn]) -> AnswerLogits:
    """Logits at the answers, in one pass; an adapter that acts reads the questions too."""
    behind = [[*turn.question, *reader.form.invocation] for turn in turns]
    return reader.answer_logits([UNREAD] * len(turns), [turn.answer for turn in turns], behind)


def passes(turns: Iterable[Turn], tokens: int) -> Iterator[list[Turn]]:
    """Group turns by length; a group has at most ``tokens`` tokens with padding, or one turn."""
    group: list[Turn] = []
    for turn in sorted(turns, key=lambda turn: turn.length):
        if group and (len(group) + 1) * turn.length > tokens:
            yield group
            group = []
        group.append(turn)
    if group:
        yield group


class UntouchedAnswers:
    """The untouched model's last hidden states at the answers of some turns."""

    def __init__(
        self,
        reader: PromptReader,
        turns: Iterable[Turn],
        tokens: int,
        report: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """No adapter may act. tokens: the most in a pass; report(done, total): turns."""
        self._model = reader.model
        self._states: dict[Turn, torch.Tensor] = {}
        read: list[torch.Tensor] = []
        head = reader.model.get_output_embeddings()
        turns = dict.fromkeys(turns)
        with torch.no_grad(), head.register_forward_hook(lambda _, given, __: read.extend(given)):
            for group in passes(turns, tokens):
                answers_behind(reader, group)
                states = read.pop()[0].split([len(turn.answer) for turn in group])
                self._states |= zip(group, (part.clone() for part in states), strict=True)
                report(len(self._states), len(turns))

    @torch.no_grad()
    def logits(self, turns: Sequence[Turn]) -> torch.Tensor:
        """Logits [tokens, vocabulary] at the answers of some of the turns, one after another."""
        states = torch.cat([self._states[turn] for turn in turns])
        head = self._model.get_output_embeddings()
        # The model without its layers, not the head alone: it may cap the logits behind the head.
        with shallow(self._model, 0), head.register_forward_pre_hook(lambda *_: (states[None],)):
            ids = torch.zeros(1, 1, dtype=torch.long, device=states.device)
            logits: torch.Tensor = self._model(ids, use_cache=False).logits
        return logits[0]
