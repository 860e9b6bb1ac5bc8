"""Which settings make a run fit: each is tried, and what is offered does fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.prediction_error import SMALL, predicted
from holdfast.prediction.fitting import OTHER_DRAWS, SLOWER, remedies
from holdfast.prediction.predict import Machine, Prediction

WIDE = (*SMALL, "sampling.max_new_tokens=384", "sampling.samples=300")


def within(share: float, method: str = "si_sd_replay_merge") -> Prediction:
    """A run on a GPU that has room for this share of its tensors."""
    said = on_a_gpu(method)
    tensors = round(share * said.memory[said.highest].total)
    return replace(said, machine=Machine("cuda", tensors + said.machine.beside(tensors)))


def on_a_gpu(method: str = "si_sd_replay_merge") -> Prediction:
    said = predicted("embedded", method, WIDE)
    return replace(said, machine=Machine("cuda")).under()  # in its precision


def test_what_is_offered_fits() -> None:
    said = within(0.9)
    assert said.fits is False
    found = remedies(said)
    assert found
    for one in found:
        under = said.under(*one.overrides)
        assert under.fits
        assert under.needed == one.needed < said.needed


def test_smaller_minibatches_take_as_many_items_a_step() -> None:
    said = on_a_gpu().under("optim.batch_size=8", "optim.accumulation=3")
    tensors = said.memory["training"].total - 1
    room = Machine("cuda", tensors + said.machine.beside(tensors))
    found = [one for one in remedies(replace(said, machine=room)) if one.says == OTHER_DRAWS]
    assert found
    for one in found:
        optim = said.under(*one.overrides).config.optim
        assert optim.batch_size < 8 and optim.batch_size * optim.accumulation == 8 * 3


def test_settings_are_joined_where_none_is_enough() -> None:
    said = within(0.78)
    (one,) = remedies(said)
    assert len(one.overrides) >= 2 and one.says == SLOWER
    assert said.under(*one.overrides).fits
    keys = [text.partition("=")[0] for text in one.overrides]
    assert len(keys) == len(set(keys))


def test_nothing_is_offered_where_nothing_helps() -> None:
    assert remedies(within(0.01)) == []


def test_what_is_offloaded_stands_in_the_hosts_memory() -> None:
    said = on_a_gpu()
    moved = said.under("backbone.offload=true")
    vector = 4 * said.shape.trainable
    assert "AdamW" not in said.memory["training"].host
    assert moved.memory["training"].host["AdamW"] == 2 * vector
    for phase, before in said.memory.items():
        after = moved.memory[phase]
        assert after.total <= before.total
        assert sum(after.host.values()) >= sum(before.host.values())
    saved = said.memory["training"].total - moved.memory["training"].total
    states = said.memory["training"].device["teacher's states"]
    assert saved == 2 * vector + vector + states  # the moments, where SI began, the states
    assert "S and G" in on_a_gpu("kfac_merge").under("backbone.offload=true").memory["commit"].host


def test_a_gpu_samples_as_many_rows_as_fit() -> None:
    """The engine asks how much is free, so sampling never needs more than there is."""
    known = on_a_gpu()
    small = replace(known, machine=Machine("cuda", 100 * 2**20))
    assert small.memory["sampling"].total < known.memory["sampling"].total
    assert small.memory["sampling"].total < 100 * 2**20


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("bfloat16", 2), ("float64", 8)])
def test_precision_is_that_of_the_device(precision: str, size: int) -> None:
    said = predicted("embedded", "replay_merge", (*SMALL, f"backbone.precision={precision}"))
    assert said.memory["load"].device["weights"] == size * said.shape.parameters
    has_masters = "float32 masters" in said.memory["training"].device
    assert has_masters == (precision == "bfloat16")
