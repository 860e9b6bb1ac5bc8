"""Suites of questions that the lm-evaluation-harness asks: mathematics and knowledge.

Source: app:res-capability.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.capability.harness import NO_ANSWER, VERSION
from holdfast.capability.problems import LETTERS, Errors, Problem, Sample, problems
from holdfast.capability.prompts import examples_file, few_shot
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import NO_NUMBERS
from holdfast.model.backbone import Backbone

NEW_TOKENS = 512  # of an answer at most, as in the task files


@dataclass(frozen=True)
class HarnessSuite:
    """A suite that the harness asks and scores by the tasks in ``harness/``.

    Answers are generated greedily, or in the suites of multiple choice are the likeliest letter
    after a space. If the model's context is too short, an answer has half of it, and examples are
    dropped, the first one first, until prompt and answer fit; a question that is too long by itself
    loses its beginning. The replay token begins the prompt of a model that was trained with it.

    errors: see :func:`mmlu_redux`. Source: app:res-capability, app:replay-seed.
    """

    name: str
    errors: Errors = "drop"

    @property
    def is_choice(self) -> bool:
        """Whether the answer is a letter, which is not generated."""
        return self.name.startswith("mmlu")

    @property
    def settings(self) -> dict[str, Any]:
        examples = hashlib.sha256(examples_file(self.name).encode()).hexdigest()
        settings = {"tasks": VERSION, "examples": examples}
        if not self.is_choice:
            settings["new_tokens"] = NEW_TOKENS
        return settings | ({"errors": self.errors} if self.name == "mmlu_redux" else {})

    def items(self, data_root: Path | None) -> list[Problem]:
        """All problems.

        HoldfastError if they are missing, damaged or in a language without examples, or if the
        harness is not installed.
        """
        if importlib.util.find_spec("lm_eval") is None:
            raise HoldfastError(
                f"{self.name}: is asked by lm-evaluation-harness, which is not installed; "
                'pip install "holdfast[capability]"'
            )
        items = problems(self.name, data_root, self.errors)
        for language in {self._language(item) for item in items}:
            few_shot(self.name, language)
        return items

    def check(self, backbone: Backbone) -> None:
        """Raise HoldfastError for a tokenizer that the harness cannot use."""
        if backbone.tokenizer.eos_token is None:
            raise HoldfastError(
                f"{self.name}: this model's tokenizer names no end of a text, which the harness "
                'needs; set "eos_token" in its tokenizer_config.json'
            )

    def answer(
        self,
        backbone: Backbone,
        items: Sequence[Problem],
        stored: Path,
        answered: Callable[[int], None],
    ) -> Iterator[Sample]:
        """Yield a sample of each item once all are answered.

        stored: file of the answers so far; answered: called with their number after each one.
        """
        if not items:
            return
        from holdfast.capability.harness.asking import ask

        by_id = {item.id: item for item in items}
        tasks: dict[str, list[Problem]] = {}
        for item in items:
            language = f"_{item.group}" if self.name == "mgsm" else ""
            tasks.setdefault(f"holdfast_{self.name}{language}", []).append(item)
        room = 0 if self.is_choice else NEW_TOKENS
        for row in ask(backbone, tasks, room, stored, answered):
            yield self._sample(by_id[row["doc"]["id"]], row)

    def _language(self, item: Problem) -> str:
        return item.group if self.name == "mgsm" else "en"

    def _sample(self, item: Problem, row: dict[str, Any]) -> Sample:
        prompt, details = row["doc"]["prompt"], {"shots": row["doc"]["shots"]}
        if not self.is_choice:
            found = row["filtered_resps"][0]
            extracted = None if found == NO_ANSWER else found
            right, output = bool(row["exact_match"]), row["resps"][0][0]
            return Sample(
                item.id, item.group, prompt, output, extracted, item.target, right, details
            )
        values = [log_probability for log_probability, _ in row["filtered_resps"]]
        if any(map(math.isnan, values)):
            raise HoldfastError(NO_NUMBERS)
        scores = dict(zip(LETTERS, values, strict=True))
        letter = max(scores, key=scores.__getitem__)
        details["log_probabilities"] = scores
        right = bool(row["acc"])
        return Sample(item.id, item.group, prompt, "", letter, item.target, right, details)
