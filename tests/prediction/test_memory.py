"""What is predicted, beside the tensors that live, the process that holds them, and the files.

Tensors within 15% in every phase, the memory that a process gains within 25%, files within 2%.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import prediction_error
from benchmarks.children import ask
from benchmarks.prediction_error import (
    HUNDRED_MILLION,
    SMALL,
    configured,
    observed,
    predicted,
    write_hundred_million,
)
from holdfast.backbone.load import load_backbone
from holdfast.learning.state import Commit, Store
from holdfast.learning.trajectory import Trajectory
from holdfast.prediction.predict import Prediction

TENSORS, PROCESS, FILES = 0.15, 0.25, 0.02

# Settings that bring other parts into memory: S and G thrice, whole attention, pages, features.
METHODS = {
    "vanilla": (),
    "si_sd_replay_merge": (),
    "kfac_merge": (),
    "kfac_sd_replay": ("sampling.general=8", "stream.items_per_task=8"),
    "kfac_merge written": ("kfac.source=written", "lora.dropout=0", "stream.items_per_task=8"),
    "si_online_ewc_replay_olora": ("lora.targets=[q_proj,v_proj]", "stream.items_per_task=8"),
    "si_sd_replay_merge checkpointed": ("backbone.checkpointing=true", "backbone.attention=sdpa"),
    "si_merge quantized": ("backbone.quantization=int8", "stream.items_per_task=8"),
    "osrm": ("lora.rank=8", "stream.items_per_task=8"),
}


def compared(found: dict[str, Any], said: Prediction) -> dict[str, float]:
    """Predicted over measured, by phase."""
    peaks = {"load": found["ready"], **found["peaks"]}
    totals = {phase: peak.total for phase, peak in said.memory.items()}
    totals["load"] -= said.memory["load"].device["working memory"]  # it is gone by then
    assert totals.keys() <= peaks.keys()
    return {phase: total / peaks[phase] for phase, total in totals.items()}


def check(found: dict[str, Any], said: Prediction) -> None:
    ratios = compared(found, said)
    assert all(abs(ratio - 1) < TENSORS for ratio in ratios.values()), ratios
    state = sum(said.disk.state(said.lengths.tasks).values())
    assert state == pytest.approx(found["state"], rel=FILES)
    assert sum(said.disk.end().values()) == pytest.approx(found["disk"], rel=FILES)


@pytest.mark.parametrize("name", METHODS)
def test_the_embedded_model(name: str) -> None:
    method = name.partition(" ")[0]
    settings = (*SMALL, *METHODS[name], "sampling.keep=true", "evaluation.items=true")
    found = observed("embedded", method, settings)
    check(found, predicted("embedded", method, settings, found["undecided"]))


def test_a_hundred_million_parameters_in_a_process_of_their_own(tmp_path: Path) -> None:
    write_hundred_million(tmp_path)
    settings = (*HUNDRED_MILLION, "stream.items_per_task=4", "optim.batch_size=4")
    given = (str(tmp_path), "si_sd_replay_merge", settings)
    found = ask("benchmarks.prediction_error", "observed", *given)
    said = predicted(*given, found["undecided"])
    assert 95e6 < said.shape.parameters < 105e6
    check(found, said)
    # The child had loaded the libraries, which are not counted here.
    assert said.needed == pytest.approx(found["resident"] * 2**20, rel=PROCESS)


def test_the_benchmarks_table_has_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here instead of in processes of their own, which would measure nothing more."""
    monkeypatch.setattr(prediction_error, "ask", lambda _, __, *given: observed(*given))
    monkeypatch.setattr(prediction_error, "peak_resident", lambda: next(grown))
    grown = iter(range(1, 9))
    table = prediction_error.beside("embedded", "The embedded model", ("vanilla",), SMALL)
    phases = [row[1] for row in table.rows]
    wanted = ["load", "training", "boundary", "evaluation", "commit"]
    assert phases == [*wanted, "whole process", "state on disk"]
    assert all(len(row) == len(table.header) for row in table.rows)


def test_what_matters_to_memory_moves_it() -> None:
    """Each of these settings changes the phase that it should, and the numbers are no constants."""
    base = predicted("embedded", "si_sd_replay_merge", SMALL)

    def bytes_under(phase: str, *overrides: str) -> float:
        return base.under(*overrides).memory[phase].total / base.memory[phase].total

    assert bytes_under("training", "optim.batch_size=2") < 0.7
    assert bytes_under("training", "lora.dropout=0") < 0.95
    assert bytes_under("training", "lora.rank=64") > 1.2
    assert bytes_under("teacher", "sampling.samples=64") > 1.5
    assert bytes_under("evaluation", "evaluation.tokens_in_cache=64") < 0.95
    longer = replace(base, lengths=replace(base.lengths, item=100.0, longest=120, sample=385))
    for phase in ("sampling", "teacher", "training"):
        assert longer.memory[phase].total > 1.4 * base.memory[phase].total


@pytest.mark.parametrize("merges", ["float32", "model"])
def test_what_each_commit_writes_and_what_stands_there_at_once(
    merges: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dense matrices are copied after every second task, in the precision of merges."""
    settings = (
        *SMALL, "stream.tasks=5", "stream.items_per_task=2", "evaluation.rows=horizon",
        "backbone.precision=bfloat16", f"lora.merge_precision={merges}",
    )  # fmt: skip
    stood: list[dict[Path, int]] = []
    sweep = Store.sweep

    def swept(self: Store, commit: Commit) -> None:
        stood.append(sizes(self.directory))
        sweep(self, commit)
        stood.append(sizes(self.directory))

    monkeypatch.setattr(Store, "sweep", swept)
    Trajectory(configured("embedded", "si_merge", settings), tmp_path / "run").advance()
    disk = predicted("embedded", "si_merge", settings).disk
    before, after = stood[2::2], stood[1::2]
    for task, (full, left) in enumerate(zip(before, after, strict=False), start=1):
        new = sum(full.values()) - sum(left.get(path, 0) for path in full)
        assert disk.written(task) == pytest.approx(new, rel=FILES), task
    assert max(map(disk.written, (2, 4))) > 2 * disk.written(3)
    assert disk.most() == pytest.approx(max(sum(full.values()) for full in before), rel=FILES)
    assert disk.most() > 1.2 * sum(disk.end().values())


def sizes(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in directory.rglob("*.safetensors")}


def test_only_a_quantized_base_that_is_merged_into_has_masters() -> None:
    for method, quantization, has in (
        ("vanilla", "int8", False), ("merge", "int8", True), ("merge", "none", False),
    ):  # fmt: skip
        said = predicted("embedded", method, (*SMALL, f"backbone.quantization={quantization}"))
        assert ("float32 masters" in said.memory["training"].device) == has, method


@pytest.mark.parametrize("kind", ["none", "int8", "nf4"])
def test_the_weights_are_those_of_the_loaded_model(kind: str) -> None:
    settings = (*SMALL, f"backbone.quantization={kind}")
    model = load_backbone(configured("embedded", "vanilla", settings).backbone).model
    stored = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
    said = predicted("embedded", "vanilla", settings)
    assert said.shape.stored(kind) == pytest.approx(stored, rel=0.01)


def test_the_largest_minibatch_is_not_the_mean_one() -> None:
    lengths = replace(predicted("embedded", "vanilla", SMALL).lengths, item=50.0, longest=200)
    assert replace(lengths, deviation=0.0).rows(8) == 8 * 49
    assert 8 * 49 < replace(lengths, deviation=20.0).rows(8) < 8 * 199
    assert replace(lengths, deviation=500.0).rows(8) == 8 * 199
