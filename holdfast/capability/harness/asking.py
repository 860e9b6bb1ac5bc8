"""Ask a model by the lm-evaluation-harness, and store each answer as it arrives.

A module of its own, because the harness takes seconds to import.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from lm_eval import evaluate
from lm_eval.api import model as harness_model
from lm_eval.api import task as harness_task
from lm_eval.models import huggingface
from lm_eval.tasks import TaskManager
from transformers import GenerationConfig

from holdfast.capability.harness import FOLDER
from holdfast.capability.problems import LETTERS, Problem
from holdfast.capability.stored import stored_lines
from holdfast.core.files import append
from holdfast.model.backbone import REPLAY_TOKEN, Backbone

_ROWS = 32  # generated at once
_LOGITS = 2**26  # at once, 256 MiB in float32: the harness computes them at every position
_NO_LIMIT = 2**30  # tokens


def ask(
    backbone: Backbone,
    tasks: Mapping[str, Sequence[Problem]],
    room: int,
    stored: Path,
    answered: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """The harness's record of each answer.

    tasks: by the names in the task files; room: tokens of a generated answer at most, 0 for
    letters; stored: file of the answers so far; answered: called with their number.
    """
    context = backbone.positions or _NO_LIMIT
    room = min(room, context // 2)
    opening = "" if backbone.seed_token is None else REPLAY_TOKEN

    def fits(prompt: str) -> bool:
        return len(backbone.tokenize(prompt)) + room <= context

    with _silent(), _plain_generation(backbone), backbone.answering():
        items = list(chain(*tasks.values()))
        manager = TaskManager(
            include_path=str(FOLDER),
            include_defaults=False,
            metadata={"items": items, "opening": opening, "fits": fits},
        )
        loaded = manager.load(list(tasks))
        rows = _ROWS
        if room:
            for task in loaded["tasks"].values():
                task.set_config("generation_kwargs", {"max_gen_toks": room}, update=True)
        else:
            prompts = (row["prompt"] for task in loaded["tasks"].values() for row in task.eval_docs)
            longest = len(backbone.tokenize(max(prompts, key=len)))
            rows = max(1, _LOGITS // (longest * backbone.head.weight.shape[0]))
        model = huggingface.HFLM(
            pretrained=backbone.model,
            tokenizer=backbone.tokenizer,
            add_bos_token=False,
            max_length=context,
            batch_size=rows,
        )
        cached = StoredAnswers(model, stored, 1 if room else len(LETTERS), answered)
        results = evaluate(lm=cached, task_dict=loaded, bootstrap_iters=0)
    yield from chain(*results["samples"].values())


class StoredAnswers(harness_model.CachingLM):  # type: ignore[misc]
    """The harness's cache of answers in lines of JSON; its own file can hold code.

    each: answers of an item; answered: called with the number of items.
    """

    def __init__(self, model: Any, path: Path, each: int, answered: Callable[[int], None]) -> None:
        self.lm = model
        self.cache_db = str(path)
        self.dbdict = _Lines(path, each, answered)
        model.set_cache_hook(self.get_cache_hook())


class _Lines(dict[str, Any]):
    """Answers by the hash of their request; those of an item are appended to the file at once."""

    def __init__(self, path: Path, each: int, answered: Callable[[int], None]) -> None:
        super().__init__(stored_lines(path, tuple))
        self._path = path
        self._each = each
        self._answered = answered
        self._unwritten: list[str] = []

    def __setitem__(self, request: str, answer: Any) -> None:
        if request not in self:  # the harness stores an answer when it comes, and once more
            super().__setitem__(request, answer)
            self._unwritten.append(json.dumps([request, answer]) + "\n")
            if len(self._unwritten) == self._each:
                self.commit()

    def commit(self) -> None:
        """Write what is new; the harness calls it at the end."""
        if self._unwritten:
            append(self._path, "".join(self._unwritten))
            self._unwritten.clear()
            self._answered(len(self) // self._each)


@contextmanager
def _plain_generation(backbone: Backbone) -> Iterator[None]:
    """Without the model's own settings of generation, such as penalties and limits."""
    own = backbone.model.generation_config
    backbone.model.generation_config = GenerationConfig(eos_token_id=sorted(backbone.stop_tokens))
    try:
        yield
    finally:
        backbone.model.generation_config = own


@contextmanager
def _silent() -> Iterator[None]:
    """Without progress bars, warnings and log lines of the harness and of what it calls."""
    modules = (harness_model, harness_task, huggingface)
    bar, disabled = huggingface.tqdm, logging.root.manager.disable

    def hidden_bar(*args: Any, **options: Any) -> Any:
        return bar(*args, **{**options, "disable": True})

    try:
        logging.disable(logging.WARNING)
        for module in modules:
            module.tqdm = hidden_bar
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for module in modules:
            module.tqdm = bar
