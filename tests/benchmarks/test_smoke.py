"""Every benchmark at its smallest: what it compares is the same work. No time is judged."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import (
    boundary,
    card,
    curvature,
    disk_written,
    growth,
    one_task,
    peak_memory,
    profiling,
    recall_row,
    sampling,
    start_up,
    ten_tasks,
    training_step,
)
from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import Report, markdown, write
from benchmarks.twins import METHODS, Twins, configuration, items
from holdfast.anchors.kfac import quadratic_form
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.generation.steps import can_cache
from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone
from holdfast.learning.training import updates_since
from holdfast.prediction import work as task_work
from holdfast.prediction.rates import Rates
from holdfast.prediction.shape import Shape, Work
from reference import adapters
from reference.sequences import logits_of, sft_loss
from tests.tiny import exact_backbone

SMOKE = Plan(rounds=1, smoke=True)


@pytest.fixture(autouse=True)
def _quick_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times do not matter here, so the machine's rates need not be measured."""
    monkeypatch.setattr(
        "holdfast.prediction.rates.processor_rates", lambda working_set: Rates(1e11, 1e10)
    )


@pytest.mark.parametrize("method", [*METHODS, "kfac_merge"])
def test_a_step_is_the_same_on_both_sides(method: str) -> None:
    config = training_step.step_configuration(method)
    values = config.model_dump() | {
        "lora": {"rank": 2, "alpha": 4, "dropout": 0.0},
        "sampling": {**config.sampling.model_dump(), "samples": 5, "max_new_tokens": 6},
        "si": {"strength": 0.7},
    }
    steps = training_step.second_task(type(config).of(values), 8, exact_backbone)
    ours, theirs = steps.engine(), steps.reference()
    assert steps.count == len(theirs) == 1
    for name, engine_name in {
        "sft": "sft",
        "replay": "replay",
        "function": "sd",
        "kfac": "kfac",
    }.items():
        if name in theirs[0]:
            assert ours[0][engine_name] == pytest.approx(theirs[0][name], rel=1e-8)
    assert ("replay" in theirs[0]) == ("replay" in method)
    learner = steps.twins.learner
    live = adapters.factors(steps.student)
    gradients = learner.adapters.split(learner.adapters.gradient)
    for name, pair in learner.adapters.split(learner.adapters.parameters.detach()).items():
        for own, other in zip(pair, live[name], strict=True):
            torch.testing.assert_close(own, other.detach(), rtol=1e-8, atol=1e-10)
        for own, other in zip(gradients[name], live[name], strict=True):
            torch.testing.assert_close(own, other.grad, rtol=1e-7, atol=1e-12)


def test_the_count_is_that_of_torch() -> None:
    """A pass with attention over all pairs, of sequences of one length, as torch counts them."""
    backbone: Backbone = load_backbone()
    backbone.model.set_attn_implementation("eager")
    shape = Shape.of(backbone.model, Adapters.Config(rank=4))
    targets = tuple(shape.maps)
    student = adapters.attach(backbone.model, targets, rank=4, alpha=8)
    ids = torch.randint(1, 500, (3, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids, dtype=torch.bool)
    lengths, tokens = [16] * 3, 48
    with FlopCounterMode(display=False) as forward:
        loss = sft_loss(logits_of(student, ids, mask), ids, mask)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    for counted, work in (
        (forward, shape.forward(lengths, tokens, branch=True, causal=False)),
        (backward, shape.backward(lengths, tokens, causal=False)),
    ):
        # torch also counts the product that makes the rotary angles, a few thousand operations.
        assert counted.get_total_flops() == pytest.approx(work.flops, rel=1e-4)
    assert shape.trainable == sum(p.numel() for p in student.parameters() if p.requires_grad)


@pytest.mark.parametrize("method", METHODS)
def test_a_task_does_hardly_more_than_is_counted(method: str) -> None:
    """Products of the engine by torch's own count; it pads, and attends to what is masked."""
    sampling = {"samples": 12, "max_new_tokens": 10, "temperature": 1.0}
    config = configuration(method, optim={"epochs": 2}, sampling=sampling)
    twins = Twins(config)
    first, second = (twins.learner.encode(task) for task in items(2, 20).tasks)
    twins.engine_learns(first)
    assert can_cache(twins.learner.backbone)  # tries it, once
    in_place = {torch.ops.aten.addmm_: _addmm}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counted:
        replay = twins.engine_learns(second).replay
    shape = twins.shape
    works = task_work.learning(shape, config, second, replay)
    assert 1 <= counted.get_total_flops() / sum(work.flops for work in works) < 1.03


def _addmm(_: Any, left: Any, right: Any, **__: Any) -> int:
    """Operations of a product that is added in place; torch counts the one that is not."""
    return int(2 * left[0] * left[1] * right[1])


def test_curvature_does_hardly_more_than_is_counted() -> None:
    """The Fisher pass pads nothing; it draws tokens, and its products are all counted."""
    steps = training_step.second_task(training_step.step_configuration("kfac_merge"), 8)
    shape = steps.twins.shape
    learner = steps.twins.learner
    in_place = {torch.ops.aten.addmm_: _addmm}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counted:
        known = learner.curvature_on(steps.sequences, "own curvature")
    works = task_work.fisher_pass(shape, steps.sequences)
    assert 0.97 < counted.get_total_flops() / sum(work.flops for work in works) < 1.1
    updates = updates_since(learner.adapters)(learner.adapters.parameters)
    with FlopCounterMode(display=False) as counted:
        quadratic_form(updates, known)  # its gradient comes with it
    assert counted.get_total_flops() == task_work.term(shape).flops


def test_a_floor_waits_for_arithmetic_or_for_bytes() -> None:
    rates = Rates(flops=10.0, bytes=2.0)
    assert rates.seconds([Work(100, 2), Work(10, 8)]) == 10 + 4


def test_both_sides_of_every_round_are_timed_in_turn() -> None:
    heard: list[str] = []
    taken = alternate(2, lambda: heard.append("a"), lambda: heard.append("b"))
    assert "".join(heard) == "ab" + "ab" + "ba"
    assert [len(side) for side in taken] == [2, 2]


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    one = Measurement("step", "s", [1.0, 2.0, 4.0], [3.0, 4.0, 40.0], floor=0.5)
    assert (one.ratio, one.over_floor) == (3.0, 4.0)
    assert Measurement("alone", "s", [1.0]).ratio is None


def checked(measure: Callable[[Plan], Report], folder: Any) -> Report:
    """The report of a smoke run, whose files say what it says."""
    report = measure(SMOKE)
    write(folder, report.name, [report])
    written = json.loads((folder / f"{report.name}.json").read_text())
    assert written["machine"]["torch"] == torch.__version__
    (values,) = written["reports"]
    for one, measured in zip(values["measurements"], report.measurements, strict=True):
        assert all(value > 0 for value in (*measured.engine, *(measured.reference or [])))
        if measured.reference:
            ratios = [b / a for a, b in zip(one["engine"], one["reference"], strict=True)]
            assert one["ratio"] == statistics.median(ratios)
    assert (folder / f"{report.name}.md").read_text() == markdown([report]) + "\n"
    return report


def test_training_step(tmp_path):
    (one,) = checked(training_step.measure, tmp_path).measurements
    assert one.floor


def test_curvature(tmp_path):
    report = checked(curvature.measure, tmp_path)
    assert all(one.floor for one in report.measurements)
    assert [row[1] for row in report.tables[0].rows] == ["merge", "replay_merge"]


def test_sampling(tmp_path):
    """Counts, lengths and the vocabulary are asserted where the sequences are drawn."""
    assert len(checked(sampling.measure, tmp_path).measurements) == 2


def test_recall_row(tmp_path):
    report = checked(recall_row.measure, tmp_path)
    assert [one.name for one in report.measurements] == list(recall_row.VARIANTS)
    for one in report.measurements:
        agreeing, _, asked = one.note.partition(" verdicts agree")[0].split("; ")[-1].split()
        assert agreeing == asked != "0"


@pytest.mark.parametrize("measured", [boundary, one_task, ten_tasks, disk_written])
def test_pairs(measured, tmp_path):
    assert checked(measured.measure, tmp_path).measurements


def test_peak_memory(tmp_path, monkeypatch):
    # A process that has done all of the above may not exceed its own peak.
    peaks = iter(range(1, 1000))
    monkeypatch.setattr(peak_memory, "peak_resident", lambda: float(next(peaks)))
    assert len(checked(peak_memory.measure, tmp_path).measurements) == 2


def test_start_up(tmp_path):
    assert len(checked(start_up.measure, tmp_path).measurements) == 2


def test_growth(tmp_path):
    """On disk is what the storage formula says: nothing grows but O-LoRA's factors and features."""
    state = checked(growth.measure, tmp_path).tables[1].rows
    kept = {(rule, int(task)): float(size.replace(",", "")) for rule, task, size, _ in state}
    assert kept["shared", 2] == kept["shared", 4]
    assert kept["olora", 4] == pytest.approx(2 * kept["olora", 2], rel=0.01)


def test_profile(tmp_path):
    for table in checked(profiling.measure, tmp_path).tables:
        calls = {row[0]: float(row[3].replace(",", "")) for row in table.rows}
        # Four layers of four groups of maps, there and back but for the first, and the head.
        assert calls["products with frozen matrices"] == 4 * 4 * 2 - 1 + 2
        # The input sides by group, the output sides by map: there, back and their gradients.
        assert calls["products with factors"] == 4 * (4 * 3 + 7 * 3) - 1
        assert calls["losses"] >= 1
        assert calls["optimiser"] >= 1
        assert all(0 <= float(row[2].rstrip("%")) <= 200 for row in table.rows)


def test_what_saves_memory_is_measured(tmp_path: Path) -> None:
    """Of a small model; every setting loads and takes its steps."""
    card.write_model(tmp_path, layers=2, width=16)
    for name in card.SETTINGS:
        found = card.measured(name, str(tmp_path), length=8, steps=2)
        assert found.keys() == {"weights", "added", "seconds"} and found["seconds"] > 0
