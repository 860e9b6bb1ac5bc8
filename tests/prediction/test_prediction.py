"""What is predicted beside what a run takes: its seconds, its memory and its files."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.progress import OptimiserStep, Progress
from holdfast.learning.stream import stream_of
from holdfast.learning.trajectory import Trajectory
from holdfast.model.chat import template_of
from holdfast.model.kronecker import named_tensors
from holdfast.model.load import load_tokenizer
from holdfast.prediction.seconds import Seconds, _timed
from holdfast.prediction.space import LiveTensors, PredictedMemory, at_end, written
from holdfast.prediction.workload import Workload
from holdfast.recipes import recipe
from tests.forked import Forked
from tests.tiny import save_tiny_mixture

WITHIN = 2.5  # either way
FILES = 0.02
# Of each phase enough to stand out of what is always there.
SHORT = (
    "stream.tasks=3", "stream.items_per_task=16", "optim.epochs=2", "sampling.samples=16",
    "sampling.max_new_tokens=160", "evaluation.max_new_tokens=16",
)  # fmt: skip
SMALL = (
    "stream.tasks=3", "stream.items_per_task=2", "optim.epochs=1", "sampling.samples=2",
    "sampling.max_new_tokens=8", "evaluation.max_new_tokens=14", "keep.snapshot_every=2",
)  # fmt: skip
POSITIONS = ("sampling.general=4", "pairs.positions=16", "pairs.general=20")
WRITTEN = ("sampling.general=3", "kfac.source=written")


def configured(method: str, *settings: str) -> RunConfig:
    return RunConfig.of(recipe("paper"), ["backbone.name=embedded", f"method={method}", *settings])


def memory_of(config: RunConfig, precision: str = "float32") -> PredictedMemory:
    stream, tokenizer = stream_of(config), load_tokenizer("embedded")
    return PredictedMemory(Workload.of(config, stream, tokenizer), precision, None)


@pytest.fixture(scope="module")
def plain() -> PredictedMemory:
    return memory_of(configured("vanilla", *SHORT))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_a_short_run_takes_about_what_is_said(tmp_path: Path) -> None:
    """Processor time, which other programs do not lengthen; memory of a process of its own."""
    settings = ("backbone.name=embedded", "method=si_sd_replay_merge", *SHORT, "stream.tasks=2")
    observed = Forked(
        [tmp_path / "run", *settings], module="tests.prediction.observing", path=[Path.cwd()],
        stdout="pipe",
    )  # fmt: skip
    spent, gained = json.loads(observed.communicate(timeout=300)[0].splitlines()[-1])
    memory = memory_of(RunConfig.of(recipe("paper"), settings))
    predicted = Seconds.measured(memory, torch.device("cpu"), time.process_time)
    assert 1 / WITHIN < predicted.whole() / spent < WITHIN
    tensors = max(sum(parts.values()) for parts in memory.phases.values())
    assert 1 / WITHIN < (tensors - memory.weights) / gained < WITHIN
    assert gained > 50 * 2**20  # else the comparison would say nothing


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("vanilla", ()),
        ("si_sd_replay_merge", ()),
        ("si_online_ewc_olora", ("lora.targets=[q_proj,v_proj]",)),
        ("kfac_merge", ("backbone.precision=bfloat16", "lora.merge_precision=model")),
        ("pairs_merge", POSITIONS),
        ("pairs", (*POSITIONS, "backbone.precision=bfloat16")),
        ("osrm", ("lora.rank=8", "keep.factors=true")),
    ],
)
def test_the_files_are_those_of_a_run(method, settings, tmp_path):
    config = configured(method, *SMALL, *settings)
    run = Trajectory(config, tmp_path / "run")
    memory = memory_of(config, config.backbone.precision.replace("auto", "float32"))
    before: set[Path] = set()
    for task in (1, 2, 3):
        run.advance(task)
        stored = {path for path in run.directory.rglob("*.safetensors") if path.is_file()}
        new = sum(path.stat().st_size for path in stored - before)
        assert sum(written(memory, task).values()) == pytest.approx(new, rel=FILES), task
        before = stored
    files = [path for path in run.directory.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    assert sum(at_end(memory).values()) == pytest.approx(size, rel=FILES)


class CurvatureHeld(Progress):
    """The bytes of the S and G that ``kfac`` holds while a task is trained, shared ones once."""

    def __init__(self, run: Trajectory) -> None:
        self._run = run
        self.sizes: dict[int, int] = {}

    def optimised(self, step: OptimiserStep) -> None:
        parts = self._run.learner().states["kfac"]
        curvatures = [parts[name] for name in ("past", "prior", "penalty") if name in parts]
        tensors = {
            tensor.data_ptr(): tensor.nbytes
            for curvature in curvatures
            for tensor in named_tensors(curvature).values()
        }
        self.sizes[step.task] = sum(tensors.values())


@pytest.mark.parametrize("settings", [(), ("sampling.general=3",), WRITTEN])
def test_s_and_g_are_as_many_as_a_task_with_a_past_holds(settings, tmp_path):
    config = configured("kfac_merge", *SMALL, *settings)
    run = Trajectory(config, tmp_path / "run")
    held = CurvatureHeld(run)
    run.advance(2, held)
    memory = memory_of(config)
    assert memory.always["S and G"] == held.sizes[2] > 0
    assert ("new S and G" in memory.phases["boundary"]) == (config.kfac.source == "own")


def test_what_matters_to_memory_moves_it(plain: PredictedMemory) -> None:
    """Each of these settings changes the phase that it should, and the numbers are no constants."""

    def training(*settings: str, method: str = "vanilla", precision: str = "float32") -> int:
        memory = memory_of(configured(method, *SHORT, *settings), precision)
        return sum(memory.phases["training"].values())

    base, replayed = sum(plain.phases["training"].values()), training(method="replay")
    assert training("optim.batch_size=2") < 0.8 * base
    assert training("backbone.checkpointing=true") < 0.8 * base
    assert training("lora.rank=128") > 1.5 * base
    assert training(precision="bfloat16") < 0.8 * base
    assert training("sampling.max_new_tokens=320", method="replay") > 1.3 * replayed > 1.3 * base


def test_further_layers_are_counted_by_the_second(plain: PredictedMemory) -> None:
    """The embedded model whole, on fake tensors: what the first two layers say of it."""
    assert plain.layers > 2
    assert plain.passes[0] == pytest.approx(plain._on_layers(plain.layers)[0], rel=0.02)


def test_live_tensors_are_counted_once_and_no_longer_than_they_live() -> None:
    with LiveTensors() as counted:
        tensor = torch.zeros(1000)
        view, other = tensor[10:], tensor + 1
        assert counted.live == 8000
        del tensor, other
        assert (counted.live, counted.peak, len(view)) == (4000, 8000, 990)


def test_samples_take_half_of_what_is_free() -> None:
    memory = memory_of(configured("replay_merge", *SHORT))
    room = sum(memory.always.values()) + 10 * memory.sample * memory.token
    small = PredictedMemory(memory.work, "float32", room)
    assert (memory.rows, small.rows) == (16, 5)


def test_a_part_is_measured_and_the_rest_taken_in_proportion() -> None:
    now, parts = [0.0], list[int]()

    def make(rows: int):  # type: ignore[no-untyped-def]
        parts.append(rows)
        return lambda: now.__setitem__(0, now[0] + 0.3 * rows)

    device = torch.device("cpu")
    assert _timed(device, lambda: now[0], make, 100) == pytest.approx(30.0)
    assert parts == [1, 4]
    assert _timed(device, lambda: now[0], make, 2) == pytest.approx(0.6)


def test_a_stream_is_its_tasks_and_its_rows() -> None:
    """The first task without a past, the others with one, and rows that grow."""
    work = memory_of(configured("si_sd_replay_merge", *SHORT)).work
    predicted = Seconds(
        work, step=1.0, verifying=work.verified.rows / work.items, sampling=5.0 / work.writes
    )
    first, last = predicted.of_task(1), predicted.of_task(3)
    assert "sampling" not in first and last["sampling"] == 5.0
    assert first["training"] < last["training"] == 4.0  # two epochs of two minibatches
    assert (first["evaluation"], last["evaluation"]) == (2.0, 4.0)  # with a task to come
    learning = (
        sum(phases["training"] for phases in (first, last, last)) + 10.0 + 2 * last["teacher"]
    )
    assert predicted.whole() == pytest.approx(learning + (1 + 2 + 3) + 3)
    joint = replace(work, config=configured("joint", *SHORT, "optim.cooldown=1"))
    assert [joint.minibatches(task) for task in (1, 3)] == [6, 18]
    assert work.verified.rows == 3 * 16  # all fit into a batch
    few = replace(work, lengths=(10, 20, 30, 40))
    assert [few.minibatch(rows)[0].length for rows in (1, 2, 8)] == [30, 40, 40]


@pytest.mark.parametrize("method", ["vanilla", "replay"])
@pytest.mark.parametrize("ends", [True, False])
def test_sequences_are_as_long_as_those_of_a_run(method: str, ends: bool) -> None:
    config = configured(method, *SHORT, f"template.append_eos={ends}")
    stream, tokenizer = stream_of(config), load_tokenizer("embedded")
    template = template_of(config.template, tokenizer)
    seed = 0 if config.has_replay_token else None
    items = [item for task in stream.tasks for item in task.items]
    lengths = sorted(len(template.encode(item, tokenizer, seed, 0)) for item in items)
    assert Workload.of(config, stream, tokenizer).lengths == tuple(lengths)


@pytest.mark.parametrize(
    ("method", "source", "sampled", "own", "kinds"),
    [
        ("kfac", "own", (6, 0), 1, 1),
        ("pairs", "own", (6, 0), 1, 1),
        ("kfac", "written", (6, 22), 0, 1),
        ("kfac_pairs", "written", (6, 22), 1, 2),
    ],
)
def test_general_text_is_sampled_before_the_first_task_and_with_samples(
    method: str, source: str, sampled: tuple[int, int], own: int, kinds: int
) -> None:
    """Curvature of it and of samples, and of a task's own sequences, takes four passes each."""
    work = memory_of(configured(method, *SHORT, "sampling.general=6", f"kfac.source={source}")).work
    passed = work.verified.rows * work.verified.length  # so that a token of a pass takes a second
    first, later = map(Seconds(work, step=0.0, verifying=passed, sampling=1.0).of_task, (1, 2))
    assert (first["sampling"], later.get("sampling", 0)) == sampled
    read_first = kinds * sampled[0] * 161 + own * work.items * work.mean
    read_later = sampled[1] * 161 + own * work.items * work.mean
    assert first["curvature"] == pytest.approx(4 * read_first)
    assert later["curvature"] == pytest.approx(4 * read_later)


def test_a_mixture_of_experts_is_counted_in_bfloat16_alone(tmp_path: Path) -> None:
    save_tiny_mixture(tmp_path)
    config = configured("vanilla", f"backbone.name={tmp_path}", "lora.rank=1", *SMALL)
    work = Workload.of(config, stream_of(config), load_tokenizer(str(tmp_path)))
    assert PredictedMemory(work, "bfloat16", None).phases["training"]["a step"] > 0
    with pytest.raises(HoldfastError, match="cannot be predicted in float32"):
        PredictedMemory(work, "float32", None)
