"""Suites scored by generated text: GSM8K, MATH and MGSM.

Source: app:res-capability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.capability import problems
from holdfast.capability.checking import Checker
from holdfast.capability.extraction import Kind, extract
from holdfast.capability.outcome import OPENING, Problem, Progress, Sample, spread
from holdfast.capability.prompts import few_shot, fingerprint

if TYPE_CHECKING:
    from holdfast.backbone.model import Backbone

# Positions of all rows of a batch at their full length. Samples are stored batch by batch.
_TOKENS_IN_CACHE = 65536


@dataclass(frozen=True)
class GeneratedSuite:
    """Problems that a model solves step by step, after worked examples, by greedy decoding.

    read: reads the problems below a folder, or from the hub (None); kind: of answer;
    shots: worked examples before the question; new_tokens: the longest answer.

    When the model's context is too short, the answer is limited to half of it, and examples are
    dropped, the first one first, until prompt and answer fit. A question is never cut: if it alone
    is too long, the answer has fewer tokens, or none. The replay token precedes the prompt of a
    model that was trained with it.

    Source: app:res-capability, app:replay-seed.
    """

    name: str
    read: Callable[[Path | None], list[Problem]]
    kind: Kind
    shots: int = 4
    new_tokens: int = 512

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "shots": self.shots,
            "new_tokens": self.new_tokens,
            "examples": fingerprint(self.name),
            **OPENING,
        }

    def items(self, data_root: Path | None, limit: int | None) -> list[Problem]:
        """The first ``limit`` problems, spread evenly over languages or subjects; None: all.

        data_root: the folder of the published files; None: the Hugging Face hub.
        Raises HoldfastError in one line when they are missing or damaged, or in a language that
        has no examples.
        """
        items = spread(self.read(data_root), limit)
        for language in {self.language(item) for item in items}:
            few_shot(self.name, language)
        return items

    def check(self, backbone: Backbone) -> None:
        """Raise HoldfastError when math-verify is not installed; any model is accepted."""
        Checker()

    def answer(
        self, backbone: Backbone, items: Sequence[Problem], progress: Progress
    ) -> Iterator[Sample]:
        """Yield a sample of each item, batch by batch, the longest prompts first.

        details: ``shots``, how many examples fitted; ``tokens``, how many were generated; ``ended``
        by ``stop`` (a next problem or a stop token), ``length`` or ``no room``.
        Raises HoldfastError when math-verify is not installed.
        """
        from holdfast.backbone.generation.greedy import batches, decode_greedily

        asked = [self.asked(backbone, item) for item in items]
        lengths = [len(one.tokens) + one.room for one in asked]
        done = correct = 0
        with Checker() as checker:
            for batch in batches(lengths, _TOKENS_IN_CACHE):
                progress(done, len(items), f"{correct} correct")
                some = [asked[place] for place in batch]
                outputs = decode_greedily(
                    backbone,
                    [one.tokens for one in some],
                    [one.room for one in some],
                    _stopping(backbone, some),
                    tokens_in_cache=_TOKENS_IN_CACHE,
                )
                for one, tokens in zip(some, outputs, strict=True):
                    sample = self._sample(backbone, one, tokens, checker)
                    correct += sample.correct
                    yield sample
                done += len(batch)
        progress(done, len(items), f"{correct} correct")

    def language(self, item: Problem) -> str:
        """The language of an item's question."""
        return item.group if self.name == "mgsm" else "en"

    def asked(self, backbone: Backbone, item: Problem) -> Asked:
        """The prompt of an item for a model's context, and the room for its answer."""
        examples = few_shot(self.name, self.language(item))
        context: int | None = getattr(backbone.model.config, "max_position_embeddings", None)
        wanted = self.new_tokens if context is None else min(self.new_tokens, context // 2)
        for shots in range(self.shots, -1, -1):
            text = examples.prompt(item.prompt, shots)
            tokens = [*backbone.opening, *_token_ids(backbone, text)]
            if context is None or len(tokens) + wanted <= context:
                return Asked(item, text, tokens, shots, wanted, examples.stop)
        assert context is not None
        return Asked(item, text, tokens, 0, max(0, context - len(tokens)), examples.stop)

    def _sample(
        self, backbone: Backbone, asked: Asked, tokens: list[int], checker: Checker
    ) -> Sample:
        text = backbone.decode(tokens)
        output = text.partition(asked.stop)[0]
        item = asked.item
        extracted = extract(output, self.kind, self.language(item))
        if not asked.room:
            ended = "no room"
        elif output != text or tokens[-1] in backbone.stop_tokens:
            ended = "stop"
        else:
            ended = "length"
        return Sample(
            item.id,
            item.group,
            asked.text,
            output,
            extracted,
            item.target,
            checker.correct(extracted, item.target),
            {"shots": asked.shots, "tokens": len(tokens), "ended": ended},
        )


@dataclass(frozen=True)
class Asked:
    """A tokenized prompt; room: the most tokens that the answer may have."""

    item: Problem
    text: str
    tokens: list[int]
    shots: int
    room: int
    stop: str


GSM8K = GeneratedSuite("gsm8k", problems.gsm8k, "number")
MATH = GeneratedSuite("math", problems.math, "expression")
MGSM = GeneratedSuite("mgsm", problems.mgsm, "number")


def _token_ids(backbone: Backbone, text: str) -> list[int]:
    # As Backbone.tokenize, but without its warning for long texts, which ``asked`` handles.
    ids: list[int] = backbone.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _stopping(backbone: Backbone, asked: Sequence[Asked]) -> Callable[[int, list[int]], bool]:
    """A predicate (row, tokens) -> bool: the row has generated its stop, a next problem."""
    # A token is at least a byte, so a stop just completed lies within this many last tokens.
    tails = [len(one.stop.encode()) + 1 for one in asked]

    def stopped(row: int, tokens: list[int]) -> bool:
        return asked[row].stop in backbone.decode(tokens[-tails[row] :])

    return stopped
