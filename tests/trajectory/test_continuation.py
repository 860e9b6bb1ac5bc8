"""More tasks later are a continuation: later calls, longer streams, sparser snapshots."""

from __future__ import annotations

import gc
import shutil

import pytest
import torch
from safetensors.torch import load_file

from holdfast import Trajectory, load_backbone, load_stream
from holdfast.core.errors import HoldfastError
from holdfast.learning import trajectory as trajectory_module
from holdfast.learning.progress import Progress
from holdfast.learning.state import factors_file
from tests.tiny import flat
from tests.trajectory.outcome import (
    assert_same_learner,
    commit_of,
    contents_of,
    numbers_of,
    result_of,
    tasks_logged,
    tensors_of,
)

STATEFUL = "si_online_ewc_kfac_sd_replay_merge"
SEED_ROW = {"replay": {"trainable_seed_row": True}}
BFLOAT16 = {"backbone": {"precision": "bfloat16"}}

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize(
    "method",
    [STATEFUL, "si_replay_olora", "pairs_sd_general_osrm", "online_ewc_pairs", "joint", "stored"],
)
def test_every_call_continues_the_last(method, config, undisturbed, tmp_path):
    for horizon in (2, 3, 4):
        matrix = Trajectory(config(method), tmp_path / "opened anew").advance(horizon)
        assert matrix.horizon == horizon
    trajectory = Trajectory(config(method), tmp_path / "kept open")
    for horizon in (1, 4):
        trajectory.advance(horizon)
    for name in ("opened anew", "kept open"):
        assert result_of(tmp_path / name) == result_of(undisturbed(method, 4))
        assert tasks_logged(tmp_path / name) == [1, 2, 3, 4]


def test_two_objects_take_turns(config, undisturbed, tmp_path):
    """Each notices that the other has moved on."""
    left, right = (Trajectory(config(STATEFUL), tmp_path) for _ in range(2))
    left.advance(1)
    right.advance(2)
    left.advance(3)
    right.advance(4)
    assert result_of(tmp_path) == result_of(undisturbed(STATEFUL, 4))


def test_a_backbone_that_is_loaded_already(config, undisturbed, tmp_path):
    settings = config(STATEFUL)
    backbone = load_backbone(settings.backbone)
    trajectory = Trajectory(settings, tmp_path / "given", backbone=backbone)
    trajectory.advance(2)
    trajectory.advance(4)
    assert result_of(tmp_path / "given") == result_of(undisturbed(STATEFUL, 4))
    with pytest.raises(HoldfastError, match="in use by a trajectory"):
        Trajectory(settings, tmp_path / "second", backbone=backbone).advance(1)


def test_a_stream_may_grow(config, undisturbed, tmp_path):
    """Three tasks now and two more tomorrow are the five of a stream that had them all along."""
    Trajectory(config(STATEFUL, stream={"tasks": 3}), tmp_path).advance()
    longer = Trajectory(config(STATEFUL, stream={"tasks": 5}), tmp_path)
    assert longer.advance().horizon == 5
    assert result_of(tmp_path) == result_of(undisturbed(STATEFUL, 5, stream={"tasks": 5}))


def test_a_shorter_stream_leaves_what_was_learned(config, undisturbed, tmp_path):
    place = shutil.copytree(undisturbed("vanilla", 4), tmp_path / "run")
    before = contents_of(place)
    shorter = Trajectory(config("vanilla", stream={"tasks": 2}), place)
    assert shorter.advance().horizon == 4
    assert contents_of(place) == before


def test_asking_again_is_free(config, undisturbed, tmp_path, monkeypatch):
    place = shutil.copytree(undisturbed("vanilla", 3), tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    with monkeypatch.context() as patch:
        patch.setattr(trajectory_module, "load_backbone", lambda _: pytest.fail("loaded"))
        for horizon in (3, 1, 2, 3):
            assert Trajectory(config("vanilla"), place).advance(horizon).horizon == 3
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
    assert contents_of(place) == contents_of(undisturbed("vanilla", 3))


@pytest.mark.parametrize(
    ("method", "sections"),
    [
        (STATEFUL, {}),
        ("si_osrm", {}),
        ("replay_merge", SEED_ROW),
        ("si_replay_olora", SEED_ROW),
        ("merge", BFLOAT16),
    ],
)
def test_a_reload_is_bitwise_whatever_the_snapshots(method, sections, config, tmp_path):
    whole = Trajectory(config(method, **sections), tmp_path / "whole")
    whole.advance(3)
    after_three = {name: tensor.clone() for name, tensor in tensors_of(whole.learner()).items()}
    whole.advance(4)
    folded = method.endswith(("merge", "osrm"))
    # The last copy is of the third task, of the second, or there is none.
    for every in (2, 3, 100) if folded else (1, 100):
        place = tmp_path / f"every-{every}"
        settings = config(method, **sections, keep={"snapshot_every": every})
        Trajectory(settings, place).advance(3)
        again = Trajectory(settings, place)
        restored = tensors_of(again.learner())
        assert restored.keys() == after_three.keys()
        assert [k for k in restored if not torch.equal(restored[k], after_three[k])] == []
        again.advance(4)
        assert_same_learner(again.learner(), whole.learner())
        assert numbers_of(place) == numbers_of(tmp_path / "whole")
        copies = [4 - 4 % every] if folded and every <= 4 else []
        assert sorted(commit_of(place)["files"]) == sorted(
            str(path.relative_to(place)) for path in place.rglob("*.safetensors")
        )
        dense = sorted(path.name for path in (place / "state").glob("dense-*"))
        assert dense == [f"dense-{task:04d}.safetensors" for task in copies]
        first = {"merge": 1, "osrm": 1, "olora": 1}.get(method.rpartition("_")[2], 4)
        if copies:
            first = min(copies[0] + 1, 4)
        factors = sorted(path.name for path in (place / "factors").iterdir())
        assert factors == [f"task-{task:04d}.safetensors" for task in range(first, 5)]


def test_what_to_keep_may_change_on_the_way(config, undisturbed, tmp_path):
    for task, keep in enumerate(
        (
            {"snapshot_every": 100},
            {"snapshot_every": 2, "factors": True},
            {"snapshot_every": 3},
            {"snapshot_every": 100, "factors": True},
        ),
        start=1,
    ):
        Trajectory(config(STATEFUL, keep=keep), tmp_path).advance(task)
    assert numbers_of(tmp_path) == numbers_of(undisturbed(STATEFUL, 4))
    assert_same_learner(
        Trajectory(config(STATEFUL), tmp_path).learner(),
        Trajectory(config(STATEFUL), undisturbed(STATEFUL, 4)).learner(),
    )


@pytest.mark.parametrize("method", ["si_merge", "olora"])
def test_all_factors_are_kept_on_request(method, config, undisturbed, tmp_path):
    """One file a task, from which the dense matrices can be built again."""
    keep = {"factors": True, "snapshot_every": 2}
    trajectory = Trajectory(config(method, keep=keep), tmp_path)
    trajectory.advance()
    assert len(list((tmp_path / "factors").iterdir())) == 4
    assert numbers_of(tmp_path) == numbers_of(undisturbed(method, 4))
    untouched = Trajectory(config(method), tmp_path / "elsewhere").learner()
    workspace = untouched.workspace
    store, commit = trajectory._store, trajectory._store.last_commit()
    for task in range(1, 5):
        workspace.write(store.load(commit, factors_file(task)))
        untouched.allocation.retire({}, workspace)
    learned = trajectory.learner().workspace
    ours, theirs = workspace.dense(), learned.dense()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(flat(workspace.copied()), flat(learned.copied()))


def test_files_may_be_read_by_whom_the_folder_admits(config, undisturbed):
    place = undisturbed(STATEFUL, 4)
    modes = {path.stat().st_mode & 0o777 for path in place.rglob("*") if path.suffix}
    assert modes == {place.stat().st_mode & 0o666}


def test_a_stream_of_ones_own(config, tmp_path):
    stream = load_stream("symbol_qa", tasks=2, items_per_task=3, seed=9)
    trajectory = Trajectory(config("vanilla"), tmp_path, stream=stream)
    assert trajectory.advance().entry(2, 2).items == 3
    assert commit_of(tmp_path)["tasks"] == [task.fingerprint for task in stream.tasks]


def test_replay_samples_are_a_log_and_change_nothing(config, undisturbed, tmp_path):
    settings = config("replay_merge", sampling={"keep": True})
    Trajectory(settings, tmp_path).advance(3)
    logs = sorted((tmp_path / "replay").iterdir())
    assert [path.name for path in logs] == [f"task-{task:04d}.jsonl" for task in (1, 2, 3)]
    assert logs[0].read_text() == ""
    assert 0 < len(logs[1].read_text().splitlines()) <= 3
    # The next task draws its own samples: without the log the future is the same.
    for path in logs:
        path.unlink()
    Trajectory(settings, tmp_path).advance(4)
    assert result_of(tmp_path) == result_of(undisturbed("replay_merge", 4))


def test_the_reference_point_is_not_written_twice(config, tmp_path):
    """Both weight anchors hold the task's factors, which have a file of their own."""
    method = "si_online_ewc_merge"
    learner = Trajectory(config(method), tmp_path)
    learner.advance(2)
    for name, entries in (("si", 1), ("online_ewc", 1)):
        (path,) = (tmp_path / "state").glob(f"{name}-*.safetensors")
        sizes = [tensor.numel() for tensor in load_file(path).values() if tensor.dim()]
        assert sum(sizes) == entries * len(flat(learner.learner().workspace.parameters()))
    again = Trajectory(config(method), tmp_path).learner()
    for name, state in learner.learner().states.items():
        ours, theirs = state["reference"], again.states[name]["reference"]
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        assert flat(theirs).any()


class Tensors(Progress):
    """The bytes of all tensors after each task."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def task_done(self, task, horizon, matrix) -> None:
        gc.collect()
        tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
        self.held.append(sum(storage.untyped_storage().nbytes() for storage in storages.values()))


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("source", ["own", "written"])
def test_no_tensor_outlives_its_task(config, source, tmp_path):
    """What a run holds in memory does not grow with the tasks that it has learned."""
    tensors = Tensors()
    chosen = config("si_online_ewc_kfac_sd_replay_merge", kfac={"source": source})
    Trajectory(chosen, tmp_path / "run").advance(progress=tensors)
    before, after = tensors.held[1], tensors.held[3]
    # Samples of other lengths have states of other sizes; a graph that stays is many times larger.
    assert after - before < before / 100, tensors.held
