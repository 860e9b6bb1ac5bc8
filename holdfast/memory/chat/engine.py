"""A loaded model with what a memory does to it: read questions, swap adapters, answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from holdfast.memory.chat.gate_tuning import GateTuning, prepared_tuning
from holdfast.memory.chat.lesson import LessonSettings, shape_for
from holdfast.memory.chat.limits import LONGEST_ANSWER, check_fact, question_tokens
from holdfast.memory.chat.words import Naming
from holdfast.model.adapter import State, adapted, attach, load_state
from holdfast.model.chat import chat_form
from holdfast.model.fingerprint import fingerprint
from holdfast.model.load import load_model
from holdfast.model.reading import PromptReader, Reading

_ADAPTERS = 16  # kept in RAM, at most 4 MB each


class Engine:
    """The untouched model, an adapter that lessons fill, and the gate's tuning for this model."""

    def __init__(
        self,
        directory: Path,
        settings: LessonSettings | None = None,
        report: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """directory: the model's; report(done, total): the preparation, once a model."""
        self.settings = settings or LessonSettings()
        self.fingerprint = fingerprint(directory)
        model, tokenizer = load_model(directory)
        self.form = chat_form(tokenizer)
        self.reader = PromptReader(model, self.form)
        attach(model, shape_for(self.reader, self.settings))
        self.naming = Naming(lambda word: len(tokenizer(word, add_special_tokens=False).input_ids))
        self.tuning: GateTuning = prepared_tuning(
            self.reader, self.naming, self.fingerprint, report
        )
        self._states: OrderedDict[str, State] = OrderedDict()
        self._loaded: str | None = None

    def prompt(self, question: str) -> list[int]:
        """A question's tokens. Raises HoldfastError when it is empty or too long."""
        return question_tokens(self.form, question)

    def check_fact(self, question: str, answer: str) -> None:
        """Raise HoldfastError for a fact that this model cannot be taught."""
        check_fact(self.form, question, answer)

    def read(self, questions: Sequence[str]) -> tuple[list[Reading], torch.Tensor]:
        """Read questions with the untouched model; also their vectors for the gate [n, d]."""
        prompts = [self.prompt(question) for question in questions]
        readings = self.reader.read(prompts, depths=self.tuning.depths)
        states = torch.stack([r.states for r in readings if r.states is not None])
        return readings, self.tuning.vectors(states)

    def untouched_answers(self, readings: Sequence[Reading]) -> list[str]:
        """What the untouched model answers, at most 256 tokens each."""
        decoded = self.reader.decode(readings, LONGEST_ANSWER)
        return [self.form.text(tokens) for tokens in decoded]

    @torch.no_grad()
    def gives(
        self,
        name: str,
        load: Callable[[], State],
        readings: Sequence[Reading],
        answers: Sequence[str],
    ) -> list[bool]:
        """Whether greedy decoding with an adapter gives each answer and ends, by one pass.

        name: of the adapter; load: reads its factors, called when they are not in RAM.
        """
        self._use(name, load)
        with adapted(self.reader.model):
            tokens = [self.form.answer(answer) for answer in answers]
            return (self.reader.answer_logits(readings, tokens).margins() > 0).tolist()

    def _use(self, name: str, load: Callable[[], State]) -> None:
        if name not in self._states:
            self._states[name] = load()
            while len(self._states) > _ADAPTERS:
                self._states.popitem(last=False)
        self._states.move_to_end(name)
        if self._loaded != name:
            load_state(self.reader.model, self._states[name])
            self._loaded = name

    def adapter_changed(self) -> None:
        """The adapter was trained, so it holds none of those that were loaded."""
        self._loaded = None
