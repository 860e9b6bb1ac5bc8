"""What only a GPU does, on one that is pretended: every machine can run this."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from holdfast import RunConfig, Trajectory
from holdfast.backbone import projection
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.generation import steps
from holdfast.backbone.generation.cached import CachedSteps
from holdfast.backbone.generation.graph import GraphSteps, recorded
from holdfast.backbone.generation.greedy import decode_greedily
from holdfast.backbone.generation.nucleus import nucleus_sample
from holdfast.backbone.generation.sampling import continue_rows, rows_that_fit
from holdfast.backbone.generation.steps import Steps, steps_for
from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone
from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.verification import follow
from holdfast.learning import training
from tests.exports.exported import configured, facts, family, saved
from tests.gpu.pretended import DEVICE, OnDevice, Pretended


def test_it_complains_as_a_gpu_does(gpu: Pretended) -> None:
    here, there = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(RuntimeError, match="on the same device"):
        here + there
    with pytest.raises(TypeError, match="numpy"):
        here.numpy()
    assert (here[torch.tensor([0, 2])] + torch.tensor(2.0)).tolist() == [3.0, 3.0]
    pinned = there.pin_memory()
    pinned.copy_(4 * here, non_blocking=True)
    assert pinned.tolist() != [4.0] * 3
    torch.cuda.synchronize()
    assert pinned.tolist() == [4.0] * 3


def test_a_graph_does_again_what_was_recorded_and_no_more(gpu: Pretended) -> None:
    x, looked = torch.ones(3, device="cuda"), []
    graph, z = torch.cuda.CUDAGraph(), torch.empty(3, device="cuda")
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
        z.copy_(y)
        looked.append(True)
    x.fill_(4)
    graph.replay()
    assert y.tolist() == z.tolist() == [10.0] * 3 and looked == [True]
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        float(x.sum())


def settings(folder: Path, name: str, method: str, device: str, **sections: Any) -> RunConfig:
    base = saved(folder / name, family(name))
    values: dict[str, Any] = {"device": device, "precision": "bfloat16"}
    sections["backbone"] = {**values, **sections.get("backbone", {})}
    sections.setdefault("evaluation", {"rows": "every"})
    return configured(base, facts(folder), method, **sections)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("qwen3", "si_kfac_sd_replay_merge"),
        ("qwen2", "si_online_ewc_sd_replay_olora"),
        ("llama untied", "si_sd_replay_osrm"),
        ("gpt2", "si_online_ewc_sd_replay_merge"),
    ],
)
def test_a_trajectory_is_learned_and_continued(
    gpu: Pretended, tmp_path: Path, name: str, method: str
) -> None:
    """Every anchor and rule; by the decoder and by the modules."""
    config = settings(tmp_path, name, method, "auto")
    Trajectory(config, tmp_path / "run").advance(1)
    trajectory = Trajectory(config, tmp_path / "run")
    trajectory.advance(2)
    assert trajectory.horizon == 2
    assert gpu.waits > 0


def test_a_run_of_one_device_is_not_continued_on_another(gpu: Pretended, tmp_path: Path) -> None:
    one, other = (
        settings(tmp_path, "qwen3", "replay_merge", device, backbone={"precision": "float32"})
        for device in ("cpu", "cuda")
    )
    Trajectory(one, tmp_path / "run").advance(1)
    with pytest.raises(HoldfastError, match='device: "cpu" -> "cuda"'):
        Trajectory(other, tmp_path / "run")


def test_a_deterministic_batch_is_not_of_what_is_free(
    gpu: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load_backbone(Backbone.Config(precision="float32", device="cuda"))

    def fitting() -> set[int]:
        found = set()
        for free in (2**31, 2**33):
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 2**34))
            found.add(rows_that_fit(backbone, 100))
        return found

    assert len(fitting()) == 2
    torch.use_deterministic_algorithms(True)
    try:
        assert len(fitting()) == 1
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_numbers_are_the_processors(gpu: Pretended, tmp_path: Path) -> None:
    """Of a method that draws nothing: what is drawn on a GPU is other."""
    found = []
    for device in ("cpu", "cuda"):
        config = settings(
            tmp_path, "qwen3", "si_sd_merge", device,
            backbone={"precision": "float64"}, lora={"dropout": 0.0},
        )  # fmt: skip
        trajectory = Trajectory(config, tmp_path / device)
        trajectory.advance(2)
        adapters = trajectory.learner().adapters
        assert isinstance(adapters.parameters, OnDevice) == (device == "cuda")
        found.append([adapters.dense(layer).cpu() for layer in adapters.layers])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("logits_at_once", [1 << 24, 1 << 10], ids=["whole", "in chunks"])
def test_a_step_of_training_waits_for_nothing(
    gpu: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logits_at_once: int
) -> None:
    monkeypatch.setitem(projection._LOGITS_AT_ONCE, "cuda", logits_at_once)
    waited = []
    step = training._Step.take

    def counted(self: Any, window: Any) -> Any:
        before = gpu.waits
        values = step(self, window)
        waited.append(gpu.waits - before)
        return values

    monkeypatch.setattr(training._Step, "take", counted)
    config = settings(tmp_path, "qwen3", "si_sd_replay_merge", "cuda")
    Trajectory(config, tmp_path / "run").advance(2)
    assert waited == [0, 0]


def test_a_row_is_read_from_the_device_once(gpu: Pretended, tmp_path: Path) -> None:
    """Whatever the number of batches; a wait for each would leave the device idle."""
    backbone = load_backbone(Backbone.Config(precision="float32", device="cuda"))
    assert backbone.adapt(Adapters.Config(rank=2)) is None
    prompts = [[40 + number, *range(50, 50 + number % 7)] for number in range(20)]
    answers = [[60, 61, 62]] * len(prompts)
    found = []
    for tokens_per_batch in (8, 1000):
        with backbone.answering():
            before = gpu.waits
            found.append(follow(backbone, prompts, answers, tokens_per_batch=tokens_per_batch))
            assert gpu.waits - before == 1
    assert found[0] == found[1]


def test_deterministic_algorithms_may_be_asked_for(gpu: Pretended) -> None:
    """What torch refuses then is not needed."""
    logits = torch.randn(300, 50, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    noise = torch.rand(300, 15, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    plain = nucleus_sample(logits, noise, 0.9, None).tolist()
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            logits.cumsum(dim=1)
        assert nucleus_sample(logits, noise, 0.9, None).tolist() == plain
        assert nucleus_sample(logits[:1], noise[:1], 0.9, None).tolist() == plain[:1]
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_recorded_steps_draw_what_plain_ones_draw(gpu: Pretended) -> None:
    """Rows leave and the cache grows beyond a block: both are recorded anew."""
    backbone = load_backbone(Backbone.Config(precision="float32", device="cuda"))
    assert backbone.adapt(Adapters.Config(rank=2)) is None
    rows, length = 66, 130
    noise = torch.rand(rows, length, 15, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    begins = torch.full((rows,), 9, device=DEVICE)
    stops = frozenset(range(20, 30))

    def drawn(steps: Steps) -> list[list[int]]:
        with backbone.answering():
            return continue_rows(steps, backbone, begins, noise, stops, 1.0, 0.9, None)

    steps = steps_for(backbone)
    assert isinstance(steps, GraphSteps)
    ours, theirs = drawn(steps), drawn(CachedSteps(backbone))
    assert steps.replays
    # Attention over all the room rounds otherwise, which turns the odd draw.
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) > 0.9 * rows
    lengths = [len(tokens) for tokens in ours]
    assert min(lengths) < 100 and max(lengths) == length


def test_greedy_decoding_says_what_the_processor_says(
    gpu: Pretended, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prompts of many lengths; a first look in plain steps, recorded ones behind it."""
    replayed: list[int] = []

    def counted(step: Any) -> Any:
        replay = recorded(step)
        return lambda: (replayed.append(1), replay())[1]

    monkeypatch.setattr(steps, "recorded", counted)
    source = torch.Generator().manual_seed(0)
    prompts = [torch.randint(20, 900, (1 + n % 9,), generator=source).tolist() for n in range(70)]
    limits = [10 + 40 * (n % 3) for n in range(70)]
    said, known = [], []
    for device in ("cpu", "cuda"):
        backbone = load_backbone(Backbone.Config(precision="float32", device=device))
        known.append(backbone.adapt(Adapters.Config(rank=2)))
        said.append(decode_greedily(backbone, prompts, limits))
    assert known == [None, None]
    # Attention over all the room rounds otherwise, which may turn a choice between equals.
    assert sum(a == b for a, b in zip(*said, strict=True)) > 0.9 * len(prompts)
    assert {len(tokens) for tokens in said[1]} >= {10, 50, 90}
    assert len(replayed) == 90 - 16 and not caplog.text


def test_what_is_recorded_finds_rows_that_change_places(gpu: Pretended) -> None:
    """Their number stays, so nothing is recorded anew: all that it reads lies where it lay."""
    backbone = load_backbone(Backbone.Config(precision="float32", device="cuda"))
    assert backbone.adapt(Adapters.Config(rank=2)) is None
    prompts = [[40, 41, 42, 43, 44, 45], [50], [60, 61, 62]]
    said = []
    with torch.no_grad():
        for steps in (steps_for(backbone), CachedSteps(backbone)):
            logits = [steps(steps.begin(prompts)).clone()]
            for number in range(8):
                ids = torch.tensor([70 + number, 80 + number, 90 + number], device=DEVICE)
                logits.append(steps(ids).clone())
                if number in (3, 5):
                    steps.keep(torch.tensor([2, 0, 1], device=DEVICE))
            said.append(torch.stack(logits))
            assert not isinstance(steps, GraphSteps) or steps.replays
    torch.testing.assert_close(*said, rtol=1e-3, atol=1e-3)


def test_doctor_names_what_is_used(gpu: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="pretended", total_memory=2**34)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    said = CliRunner().invoke(app, ["doctor"]).output
    assert "pretended, 16 GiB" in said
    assert "steps recorded as CUDA graphs" in said
    assert "the decoder written out" in said
