"""`holdfast capability`: trajectories at every boundary that was kept, backbones, and mistakes."""

from __future__ import annotations

import csv
import json

import pytest
import torch

from holdfast import RunConfig, Trajectory
from holdfast.capability.run import trajectory_model
from holdfast.core.errors import HoldfastError
from holdfast.learning.recorded import Recorded
from holdfast.results import read_capability


@pytest.fixture(scope="module")
def config(backbone_directory):
    def of(method="replay_merge", **sections):
        values = {
            "method": method,
            "seed": 5,
            "backbone": {"name": str(backbone_directory)},
            "stream": {"tasks": 3, "items_per_task": 4},
            "lora": {"rank": 2, "alpha": 8, "dropout": 0.1},
            "optim": {"epochs": 2, "batch_size": 2, "lr": 0.03},
            "sampling": {"samples": 4, "max_new_tokens": 6},
            "evaluation": {"max_new_tokens": 24},
            **sections,
        }
        return RunConfig.of(values)

    return of


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    """A trajectory of three tasks that kept every boundary."""
    place = tmp_path_factory.mktemp("runs") / "kept"
    Trajectory(config(keep={"factors": True, "snapshot_every": 2}), place).advance()
    return place


def logits_of(backbone):
    with torch.no_grad():
        return backbone.logits(backbone.hidden(torch.tensor([[9, 8, 7, 6]])))[..., :257]


@pytest.mark.parametrize("method", ["vanilla", "replay_merge", "olora", "osrm"])
def test_an_earlier_boundary_is_the_model_of_then(config, method, tmp_path):
    """Rebuilt from a longer run: bit for bit the one that a shorter run ended with."""
    keep = {"factors": True, "snapshot_every": 2}
    settings = config(method, keep=keep, evaluation={"rows": "horizon", "max_new_tokens": 16})
    Trajectory(settings, tmp_path / "long").advance(3)
    rebuilt = [logits_of(trajectory_model(tmp_path / "long", task).load()) for task in (1, 2, 3)]
    for task in (1, 2, 3):
        Trajectory(settings, tmp_path / "short").advance(task)
        expected = logits_of(trajectory_model(tmp_path / "short", None).load())
        assert torch.equal(rebuilt[task - 1], expected)
    assert not torch.equal(rebuilt[0], rebuilt[1]) and not torch.equal(rebuilt[1], rebuilt[2])


def test_what_was_kept_from_some_task_on_is_there(config, tmp_path):
    """Shared factors are the model by themselves, whatever was not kept before them."""
    place = tmp_path / "run"
    Trajectory(config("vanilla"), place).advance(2)
    Trajectory(config("vanilla", keep={"factors": True}), place).advance(3)
    early = logits_of(trajectory_model(place, 2).load())
    assert not torch.equal(early, logits_of(trajectory_model(place, 3).load()))
    with pytest.raises(HoldfastError, match="after task 1 was not kept"):
        trajectory_model(place, 1)


def test_a_run_that_went_on_is_not_called_damaged(config, tmp_path):
    place = tmp_path / "run"
    Trajectory(config("vanilla"), place).advance(1)
    recorded = Recorded.read(place)
    Trajectory(config("vanilla"), place).advance(2)
    with pytest.raises(HoldfastError, match="has learned another task meanwhile; repeat"):
        recorded.learner(recorded.last)


def test_text_of_a_trajectory_and_its_change(holdfast, run):
    options = (["--after-task", 0], ["--limit", 4], ["--after-task", 1])
    _, after, early = (holdfast("capability", run, "--tasks", "text", *each) for each in options)
    assert after.out.splitlines()[-1].endswith("after_3")
    # Four texts are not the ten that were asked before.
    assert after.out.splitlines()[-2].split()[-1] == "-"
    rows = {row.after_task: row for row in read_capability(run)}
    assert {task: row.items for task, row in rows.items()} == {0: 10, 1: 10, 3: 4}
    cells = early.out.splitlines()[-2].split()
    change = rows[1].bits_per_byte - rows[0].bits_per_byte
    assert cells[-1] == f"{change:+.3f}" and abs(change) > 1e-3
    samples = (run / "capability" / "after_3" / "text.samples.jsonl").read_text().splitlines()
    assert len(samples) == 4


def test_what_a_run_has_measured_is_not_measured_again(holdfast, config, tmp_path):
    place = tmp_path / "run"
    Trajectory(config(evaluation={"capability": ["text"]}), place).advance(1)
    folder = place / "capability" / "after_1"
    before = (folder / "text.json").read_bytes()
    outcome = holdfast("capability", place, "--tasks", "text")
    assert outcome.status == 0, outcome.err
    assert (folder / "text.json").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["text.json"]
    rows = {row.after_task: row.bits_per_byte for row in read_capability(place)}
    assert outcome.out.splitlines()[-2].split()[-1] == f"{rows[1] - rows[0]:+.3f}"


def test_a_backbone_with_several_trajectories_is_one_command(holdfast, run, config, tmp_path):
    other = tmp_path / "other"
    Trajectory(config("vanilla"), other).advance(1)
    outcome = holdfast("capability", run, other, "--tasks", "text", "--after-task", 0)
    assert outcome.status == 0, outcome.err
    assert read_capability(other)[0].bits_per_byte == read_capability(run)[0].bits_per_byte


def questions_in(root):
    path = root / "mmlu_redux" / "mini_mmlu_fixed_csv" / "cooking" / "test.csv"
    path.parent.mkdir(parents=True)
    header = ["question", "choices", "answer", "error_type", "correct_answer"]
    choices = str(["hot", "cold", "blue", "loud"])
    rows = [["How is soup?", choices, 0, "ok", ""], ["And ice?", choices, 0, "no", "B"]]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return root


def test_the_embedded_model_answers_every_letter_question(holdfast, tmp_path):
    out, data = tmp_path / "out", questions_in(tmp_path / "data")
    out.mkdir()
    (out / "package.json").write_text('{"name": "of another program"}')
    common = ["capability", "embedded", "--tasks", "mmlu_redux,text", "--data-root", data]
    outcome = holdfast(*common, "--redux-errors", "correct", "--out", out)
    assert outcome.status == 0, outcome.err
    record = json.loads((out / "mmlu_redux.json").read_text())
    assert (record["score"]["items"], record["score"]["extracted"]) == (2, 2)
    text = json.loads((out / "text.json").read_text())["score"]["bits_per_byte"]
    assert 1.6 < text < 1.9  # it was pretrained on English
    # Other items, so another measurement: not mixed with the one that is there.
    refused = holdfast(*common, "--out", out)
    assert refused.status == 2 and 'errors: "correct" -> "drop"' in refused.err


def mistakes(run, tmp):
    return {
        ("embedded", "--tasks", "txt", "--out", tmp): 'unknown task "txt"; did you mean text?',
        ("embedded", "--tasks", "text", "--limit", 0, "--out", tmp): "--limit 0 leaves nothing",
        ("embedded", "--tasks", "text"): "add --out DIR",
        ("embedded", run, "--tasks", "text", "--out", tmp): "--out takes the results of one",
        ("embedded", "--after-task", 1, "--out", tmp): "--after-task is for trajectories",
        (run, "--tasks", "text", "--after-task", 4): "has learned 3 tasks; --after-task 4",
        (run, "--tasks", "mmlu_redux", "--data-root", run, "--out", tmp): (
            "mini_mmlu_fixed_csv is not there; give --data-root"
        ),
        (run, "--tasks", "corpus", "--out", tmp): "give it with --data-root",
    }


def test_every_mistake_is_one_line_and_writes_nothing(holdfast, run, tmp_path):
    place = tmp_path / "out"
    for arguments, message in mistakes(run, place).items():
        outcome = holdfast("capability", *arguments)
        assert (outcome.status, len(outcome.err.splitlines())) == (2, 1), outcome.err
        assert message in outcome.err
    assert not place.exists()


def test_other_weights_than_the_runs_are_refused(holdfast, config, run, tmp_path):
    """A trajectory's factors mean nothing on another backbone."""
    from tests.tiny import byte_tokenizer, tiny_llama

    model = tmp_path / "model"
    tiny_llama(seed=1, layers=1, width=32).save_pretrained(model)
    byte_tokenizer().save_pretrained(model)
    place = tmp_path / "run"
    Trajectory(config("vanilla", backbone={"name": str(model)}), place).advance(1)
    tiny_llama(seed=2, layers=1, width=32).save_pretrained(model)
    outcome = holdfast("capability", place, "--tasks", "text")
    assert outcome.status == 2 and "other weights" in outcome.err
