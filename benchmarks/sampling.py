"""Time sampling a replay set from the replay token, against `generate` in batches of 32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import Report, command
from benchmarks.twins import GENERATED_AT_ONCE, NO_TOKEN, Twins, configuration, items
from holdfast.model.backbone import Backbone
from holdfast.model.generation.sampling import Sampling, sample_continuations
from reference.replay import generate

TARGET = 4.0
_TIMED = 96  # sequences of the reference when it never stops: three batches; then scaled
_TOP_P, _TEMPERATURE = 0.9, 1.0


def measure(plan: Plan) -> Report:
    """Seconds for 300 sequences of at most 64 tokens, with stop tokens and without."""
    count, length = (8, 12) if plan.smoke else (300, 64)
    twins = Twins(configuration("replay_merge", optim={"epochs": 4}, sampling={"samples": 32}))
    (task,) = items(1, 8 if plan.smoke else 32).tasks
    twins.engine_learns(twins.learner.encode(task))
    measured = [
        _pair("as trained", twins, plan, count, length),
        _pair("never stopping", twins, plan, count, length, stops=False),
    ]
    return Report(
        "sampling",
        f"Sampling {count} sequences",
        f"Temperature {_TEMPERATURE}, top-p {_TOP_P}, at most {length} new tokens, from the model "
        "after one merged task.",
        measured,
    )


def _pair(
    name: str, twins: Twins, plan: Plan, count: int, length: int, *, stops: bool = True
) -> Measurement:
    backbone, model = twins.learner.backbone, twins.hand_over()
    seed = backbone.seed_token
    assert seed is not None
    generated = count if stops else min(count, _TIMED)
    drawn: dict[str, list[list[int]]] = {}

    def engine() -> None:
        drawn["engine"] = sample_continuations(
            backbone,
            [seed] * count,
            Sampling(temperature=_TEMPERATURE, top_p=_TOP_P, max_new_tokens=length),
            seed=1,
            purpose=("benchmark", name),
        )

    def reference() -> None:
        eos = twins.twin.eos_token if stops else NO_TOKEN
        drawn["reference"] = generate(
            model, seed, generated, _TEMPERATURE, _TOP_P, length, eos, twins.twin.pad_token,
            GENERATED_AT_ONCE, keep_eos=True,
        )  # fmt: skip

    with _stopping(backbone, stops):
        ours, theirs = alternate(plan.rounds, engine, reference, warm=stops)
    theirs = [count / generated * seconds for seconds in theirs]
    reference_rows = [sequence[1:] for sequence in drawn["reference"]]
    for rows, expected in ((drawn["engine"], count), (reference_rows, generated)):
        _check(rows, expected, length, len(twins.learner.backbone.tokenizer), stops)
    tokens = [sum(map(len, rows)) / len(rows) for rows in (drawn["engine"], reference_rows)]
    note = f"{tokens[0]:.1f} tokens a sequence by the engine, {tokens[1]:.1f} by the reference"
    if generated < count:
        note += f", which drew {generated} of the {count} sequences, scaled"
    return Measurement(name, "s", ours, theirs, TARGET, note=note)


@contextmanager
def _stopping(backbone: Backbone, stops: bool) -> Iterator[None]:
    """Take the engine's stop tokens away within the block, unless ``stops``."""
    stop_tokens: Any = backbone.stop_tokens
    if not stops:
        backbone.stop_tokens = frozenset()
    try:
        yield
    finally:
        backbone.stop_tokens = stop_tokens


def _check(rows: list[list[int]], count: int, length: int, vocabulary: int, stops: bool) -> None:
    """Assert the number of sequences, their lengths, and that their tokens exist."""
    assert len(rows) == count
    for row in rows:
        assert 1 <= len(row) <= length if stops else len(row) == length
        assert all(0 <= token < vocabulary for token in row)


if __name__ == "__main__":
    command(measure, rounds=3)
