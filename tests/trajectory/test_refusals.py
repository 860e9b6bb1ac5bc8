"""What does not belong together is refused in one line, and nothing is changed."""

from __future__ import annotations

import json
import shutil

import pytest

from holdfast import HoldfastError, Trajectory
from holdfast.learning import identity, training
from holdfast.learning import state as state_module
from holdfast.learning.recorded import Recorded
from holdfast.learning.stream import check_without_weights, stream_of
from tests.refused import line_of
from tests.tiny import byte_tokenizer, tiny_llama
from tests.trajectory.outcome import contents_of, numbers_of

METHOD = "si_replay_merge"
COPIES = {"keep": {"snapshot_every": 2}}


@pytest.fixture
def place(undisturbed, tmp_path):
    return shutil.copytree(undisturbed(METHOD, 2, **COPIES), tmp_path / "run")


def refusal(config, place, horizon: int = 3) -> str:
    """The one line with which a run is refused, having changed nothing."""
    before = contents_of(place) if place.is_dir() else place.read_bytes()
    line = line_of(lambda: Trajectory(config, place).advance(horizon))
    assert before == (contents_of(place) if place.is_dir() else place.read_bytes())
    assert str(place) in line
    return line


def test_the_precision_is_that_of_the_machine_that_learned(config, place, monkeypatch):
    """ "auto" is float32 here; on a machine where it is bfloat16 the numbers would be others."""
    assert '"precision": "float32"' in (place / "config.json").read_text()
    monkeypatch.setattr(identity, "resolved_precision", lambda _: "bfloat16")
    message = refusal(config(METHOD), place)
    assert '(precision: "float32" -> "bfloat16"); choose another directory' in message
    assert message.count(" -> ") == 1


def test_an_answer_that_could_never_be_recalled_is_refused_before_anything_is_made(
    config, tmp_path
):
    place = tmp_path / "run"
    short = config("vanilla", evaluation={"max_new_tokens": 9})
    with pytest.raises(HoldfastError, match=r'^task "1" item 1: the answer to .* needs 1\d tokens'):
        Trajectory(short, place).advance(1)
    assert not (place / "state").exists()
    with pytest.raises(HoldfastError, match=r"with evaluation.max_new_tokens = 9; shorten it"):
        check_without_weights(short, stream_of(short))


def test_what_diverged_is_not_committed(config, place, monkeypatch):
    current_loss = training.current_loss

    def diverging(*given):
        loss, measured = current_loss(*given)
        return loss, {"sft": measured["sft"] * float("nan")}

    monkeypatch.setattr(training, "current_loss", diverging)
    before = (place / "state" / "commit.json").read_bytes()
    with pytest.raises(HoldfastError, match="task 3, epoch 1: sft not finite") as refused:
        Trajectory(config(METHOD, **COPIES), place).advance(3)
    assert "\n" not in str(refused.value)
    assert (place / "state" / "commit.json").read_bytes() == before
    assert Trajectory(config(METHOD, **COPIES), place).horizon == 2


def test_factors_that_the_last_step_lost_are_not_committed(config, place, monkeypatch):
    step = training.TaskOptimizer.step

    def losing(self):
        step(self)
        self._adamw.param_groups[0]["params"][0].data[0, 0] = float("inf")

    monkeypatch.setattr(training.TaskOptimizer, "step", losing)
    once = config(METHOD, **COPIES, optim={"epochs": 1, "batch_size": 64, "lr": 0.03})
    with pytest.raises(HoldfastError, match="task 1, epoch 1: the factors not finite"):
        Trajectory(once, place.with_name("other")).advance(1)


def test_a_relative_backbone_is_found_from_anywhere(config, tmp_path, monkeypatch):
    home = tmp_path / "home"
    tiny_llama().save_pretrained(home / "model")
    byte_tokenizer().save_pretrained(home / "model")
    monkeypatch.chdir(home)
    relative = config("vanilla", backbone={"name": "model"})
    Trajectory(relative, tmp_path / "run").advance(1)
    monkeypatch.chdir(tmp_path)
    recorded = Recorded.read(tmp_path / "run")
    assert recorded.learner(recorded.last).completed == 1
    monkeypatch.chdir(home)
    assert Trajectory(relative, tmp_path / "run").horizon == 1


def test_every_difference_is_named(config, place):
    message = refusal(config("sd_merge", seed=8, lora={"rank": 1}), place)
    for field in ('method: "si_replay_merge" -> "sd_merge"', "seed: 3 -> 8", "lora.rank: 2 -> 1"):
        assert field in message
    assert "replay: {" in message
    assert "sd: null -> {" in message


def test_settings_that_change_no_number(config, undisturbed, place):
    sections = {
        "sampling": {"batch": 3, "keep": True},
        "keep": {"factors": True, "snapshot_every": 1},
        "evaluation": {"tokens_per_batch": 64, "match": "exact"},
        "sd": {"strength": 9},  # of an anchor that the method does not have
    }
    Trajectory(config(METHOD, **sections), place).advance(3)
    assert numbers_of(place) == numbers_of(undisturbed(METHOD, 3))
    recorded = json.loads((place / "config.json").read_text())
    whole = json.loads((undisturbed(METHOD, 3) / "config.json").read_text())
    assert recorded["identity"] == whole["identity"]


def test_the_same_stream_from_a_file(config, undisturbed, place, tmp_path):
    tasks = Trajectory(config(METHOD), place).stream.tasks
    lines = [
        json.dumps({"task": task.name, "question": item.question, "answer": item.answer})
        for task in tasks
        for item in task.items
    ]
    (tmp_path / "stream.jsonl").write_text("\n".join(lines))
    stream = {"name": str(tmp_path / "stream.jsonl"), "items_per_task": None}
    # A file does not say that its answers are symbols, whose case matters.
    message = refusal(config(METHOD, stream=stream), place)
    assert 'on another stream (stream.name: "symbol_qa" -> ' in message
    settings = config(METHOD, stream=stream, evaluation={"match": "exact"})
    Trajectory(settings, place).advance(3)
    assert numbers_of(place) == numbers_of(undisturbed(METHOD, 3))
    assert "evaluation.match" in refusal(config(METHOD, stream=stream), place, horizon=4)


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_of_which_one_learned_task_is_another(number, config, place, tmp_path):
    tasks = Trajectory(config(METHOD), place).stream.tasks
    changes = ["!" if number == other else "" for other in (1, 2, 3, 4)]
    lines = [
        json.dumps({"task": task.name, "question": item.question, "answer": item.answer + change})
        for task, change in zip(tasks, changes, strict=True)
        for item in task.items
    ]
    (tmp_path / "stream.jsonl").write_text("\n".join(lines))
    stream = {"name": str(tmp_path / "stream.jsonl"), "items_per_task": None}
    message = refusal(config(METHOD, stream=stream, evaluation={"match": "exact"}), place)
    assert f"task {number} of this stream is not the task {number} that was learned" in message


def save_backbone(directory, seed: int):
    tiny_llama(seed, layers=1, width=32).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return {"name": str(directory)}


def test_other_weights_under_the_same_name(config, tmp_path):
    backbone = save_backbone(tmp_path / "backbone", 0)
    Trajectory(config("vanilla", backbone=backbone), tmp_path / "run").advance(1)
    save_backbone(tmp_path / "backbone", 1)
    message = refusal(config("vanilla", backbone=backbone), tmp_path / "run")
    assert 'backbone: "' in message


def test_the_same_weights_under_another_name(config, undisturbed, place, tmp_path):
    backbone = save_backbone(tmp_path / "moved", 0)
    Trajectory(config(METHOD, backbone=backbone), place).advance(3)
    assert numbers_of(place) == numbers_of(undisturbed(METHOD, 3))


def test_foreign_directories(config, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    message = refusal(config("vanilla"), tmp_path)
    assert "holds thesis.tex but no trajectory" in message
    assert "is a file" in refusal(config("vanilla"), tmp_path / "thesis.tex")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert "config.json: is no trajectory's" in refusal(config("vanilla"), tmp_path)


@pytest.mark.parametrize("name", ["state/commit.json", "config.json"])
@pytest.mark.parametrize("damage", ["", "[]", "{}", "cut", "unnamed", "binary"])
def test_damaged_json(name, damage, config, place):
    content = (place / name).read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "unnamed": content.replace(b'"numbers"', b'"x"').replace(b'"completed"', b'"x"'),
        "binary": b"\xff\xfe" + content,
    }
    (place / name).write_bytes(damaged.get(damage, damage.encode()))
    message = refusal(config(METHOD), place)
    assert str(place / name) in message
    assert "restore" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("completed", 3),
        ("tasks", ["only one"]),
        ("files", {"state/si-0002.safetensors": 5}),
        ("matrix", "after_task,on_task,correct,items,boxed,accuracy\n1,1,9,4,,2.25\n"),
        ("color", "blue"),
    ],
)
def test_a_commit_that_makes_no_sense(field, value, config, place):
    path = place / "state" / "commit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert f"{path}: is no commit" in refusal(config(METHOD), place)


def test_a_missing_commit_is_no_new_beginning(config, place):
    (place / "state" / "commit.json").unlink()
    assert "commit.json: is missing" in refusal(config(METHOD), place)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state/si-0002.safetensors", "missing"),
        ("state/si-0002.safetensors", "directory"),
        ("state/dense-0002.safetensors", "short"),
        ("state/dense-0002.safetensors", "long"),
        ("factors/task-0002.safetensors", "flipped"),
    ],
)
def test_damaged_state(name, damage, config, place):
    path = place / name
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage != "missing":
        content[len(content) // 2] ^= 1 if damage == "flipped" else 0
        cut = {"short": content[:-1], "long": content + b"\0"}
        path.write_bytes(cut.get(damage, content))
    message = refusal(config(METHOD), place)
    assert str(path) in message
    assert "damaged: restore the file, or start again in a new directory" in message


def test_a_commit_that_is_replaced_while_it_is_read(config, undisturbed, place, monkeypatch):
    """A reader sees the next commit, not the gaps that this one's swept files left."""
    newer = undisturbed(METHOD, 3, **COPIES)
    real = state_module.read_commit

    def read_then_lose_the_race(path):
        values = real(path)
        monkeypatch.setattr(state_module, "read_commit", real)
        shutil.rmtree(place)
        shutil.copytree(newer, place)
        return values

    monkeypatch.setattr(state_module, "read_commit", read_then_lose_the_race)
    assert Trajectory(config(METHOD), place).horizon == 3


@pytest.mark.parametrize("horizon", [0, 5])
def test_horizons_that_are_none(horizon, config, tmp_path):
    trajectory = Trajectory(config("vanilla"), tmp_path / "run")
    with pytest.raises(HoldfastError, match=rf"horizon {horizon} .* 4 tasks; .* from 1 to 4"):
        trajectory.advance(horizon)
    assert not (tmp_path / "run").exists()


def test_places_that_cannot_be_written(config, tmp_path):
    (tmp_path / "file").write_text("")
    for directory in (
        tmp_path / "file" / "run",
        "/dev/null/run",
        "/proc/holdfast/run",
        tmp_path / ("long" * 100),
    ):
        line = line_of(lambda at: Trajectory(config("vanilla"), at).advance(1), directory)
        assert str(directory) in line and "choose another directory" in line
    assert contents_of(tmp_path) == {"file": b""}


def test_an_answer_that_would_be_cut(config, tmp_path):
    settings = config("vanilla", template={"max_length": 20})
    with pytest.raises(HoldfastError, match="max_length"):
        Trajectory(settings, tmp_path / "run").advance(1)
    assert contents_of(tmp_path) == {}
