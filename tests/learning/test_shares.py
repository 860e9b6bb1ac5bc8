"""What forms see of a change: every row against plain sums over dense matrices, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.recorded import Recorded
from holdfast.learning.shares import shares, shares_of
from holdfast.learning.task import learn_task
from holdfast.learning.trajectory import Trajectory
from holdfast.streams import Task
from tests.tiny import exact_backbone, exact_gpt2, short_sequences

TAU, QUESTIONS, RHO = 1.5, 0.25, 2.0
PROBES = TaskData(short_sequences(5, seed=9), prompts=[1, 2, 1, 1, 2])


def new_learner(method: str, turned: bool) -> Learner:
    """turned: whether the model stores its matrices [d_in, d_out]."""
    targets = ("c_attn", "c_fc") if turned else ("q_proj", "down_proj")
    values: dict[str, Any] = {
        "method": method,
        "lora": {"rank": 2, "alpha": 2 * RHO, "dropout": 0.0, "targets": targets},
        "optim": {"epochs": 1, "batch_size": 2, "lr": 1e-3},
        "sampling": {"general": 0},
        "curvature": {"temperature": TAU, "questions": QUESTIONS},
        "pairs": {"positions": 7, "general": 0},
    }
    backbone = exact_gpt2() if turned else exact_backbone()
    learner = Learner(RunConfig.of(values), backbone)
    learn_task(learner, TaskData(short_sequences(4, seed=1), [1] * 4), Progress())
    return learner


def weights() -> Tensor:
    """Of the probes' predicting positions."""
    pairs = zip(PROBES.sequences, PROBES.prompts, strict=True)
    return torch.tensor(
        [
            QUESTIONS if place < prompt else 1.0
            for sequence, prompt in pairs
            for place in range(1, len(sequence))
        ],
        dtype=torch.float64,
    )


def logits(learner: Learner) -> Tensor:
    model = learner.backbone.model.eval()
    with torch.no_grad():
        every = [model(torch.tensor([sequence])).logits[0, :-1] for sequence in PROBES.sequences]
    return torch.cat(every)


def whole_matrices(learner: Learner, turned: bool) -> dict[str, Tensor]:
    """Of every map, [d_out, d_in]."""
    layers, whole = learner.workspace.layers, {}
    for name, dense in learner.workspace.dense().items():
        dW = layers[name].scale * layers[name].lora_B @ layers[name].lora_A
        whole[name] = ((dense.t() if turned else dense) + dW).detach()
    return whole


@pytest.mark.parametrize(
    ("method", "turned"),
    [("kfac_pairs_merge", False), ("kfac_pairs", False), ("kfac_pairs_merge", True)],
)
def test_every_row_is_the_plain_one(method: str, turned: bool) -> None:
    """Merged, and with a shared adapter, whose change begins where the last task left it."""
    before, student, untouched = (new_learner(method, turned) for _ in range(3))
    data = TaskData(short_sequences(4, seed=2), [1] * 4, past_items=4)
    rows, forms = shares_of(before, student, data, {"answers": PROBES}, lambda *_: None)
    values = {row.what: row.values["answers"] for row in rows}

    start, end = (whole_matrices(learner, turned) for learner in (untouched, student))
    change = {name: end[name] - start[name] for name in start}
    p, q = ((logits(learner) / TAU).log_softmax(1) for learner in (untouched, student))
    each = TAU**2 * (p.exp() * (p - q)).sum(1)
    whole = float((weights() * each).mean())
    torch.testing.assert_close(values["the change itself"], whole, rtol=1e-9, atol=0)
    # Of so small a change nothing but second order is left.
    torch.testing.assert_close(values["to second order"], whole, rtol=0.05, atol=0)

    at = untouched.positions_on(PROBES.sequences, "shares 0", PROBES.prompts, 10**6)
    each_map = {
        name: torch.stack(
            [g @ dW @ x for g, x in zip(at.gradients[name], at.inputs[name], strict=True)]
        )
        for name, dW in change.items()
    }
    layers: dict[str, list[Tensor]] = {}
    for name, each_position in each_map.items():
        layers.setdefault(name.split(".")[2], []).append(each_position)
    assert len(layers) == 2 and len(each_map) == 4
    groups = {
        "positions apart": [list(each_map.values())],
        "positions and layers apart": list(layers.values()),
        "positions and maps apart": [[part] for part in each_map.values()],
    }
    plain = {
        label: sum(float(torch.stack(maps).sum(0).square().mean() / 2) for maps in parts)
        for label, parts in groups.items()
    }
    for label, value in plain.items():
        torch.testing.assert_close(values[label], value, rtol=1e-9, atol=0)

    def form(curvature: Any) -> float:
        total = 0.0
        for name, dW in change.items():
            factors = curvature[name]
            S, G = (moment.parts()[""] for moment in (factors.inputs, factors.outputs))
            total += float(0.5 * (G @ dW @ S @ dW.t()).trace())
        return total

    taken = untouched.curvature_on(PROBES.sequences, "shares", PROBES.prompts)
    now = values["Kronecker factors, taken now"]
    torch.testing.assert_close(now, form(taken), rtol=1e-9, atol=0)
    past = untouched.states["kfac"]["past"]
    torch.testing.assert_close(forms["kfac"], form(past), rtol=1e-9, atol=0)
    state = untouched.states["pairs"]
    squares = torch.stack(
        [
            sum(
                state["learned_g"][name][row] @ dW @ state["learned_x"][name][row]
                for name, dW in change.items()
            )
            ** 2
            for row in range(7)
        ]
    )
    torch.testing.assert_close(forms["pairs"], float(squares.mean() / 2), rtol=1e-9, atol=0)


SMALL: dict[str, Any] = {
    "method": "kfac_merge",
    "stream": {"name": "symbol_qa", "tasks": 2, "items_per_task": 2},
    "lora": {"rank": 2, "alpha": 4},
    "optim": {"epochs": 1},
    "sampling": {"general": 3, "max_new_tokens": 4},
    "evaluation": {"max_new_tokens": 14},
}


def test_a_run_is_read_and_nothing_is_written(
    backbone_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the stream's end and at it; each row has the columns that it can have.

    Of two tasks of two items, two items are drawn, not the first two.
    """
    probed: list[set[str]] = []

    def task_data(self: Learner, tasks: Sequence[Task]) -> TaskData:
        probed.append({item.question for item in tasks[0].items})
        return data_of(self, tasks)

    data_of = Learner.task_data
    config = RunConfig.of(SMALL, [f"backbone.name={backbone_directory}"])
    trajectory = Trajectory(config, tmp_path)
    for horizon in (1, 2):
        trajectory.advance(horizon)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "task_data", task_data)
            rows = shares(Recorded.read(tmp_path), 2, lambda *_: None)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        *measured, kfac = rows
        assert (
            len(measured) == 6 and kfac.what == "what kfac holds" and set(kfac.values) == {"both"}
        )
        for row in measured:
            assert all(value > 0 for value in row.values.values())
            parts = (2 * horizon * row.values["answers"] + 3 * row.values["text"]) / (
                2 * horizon + 3
            )
            assert row.values["both"] == pytest.approx(parts)
    [once, first, drawn, _] = probed
    assert once == first and len(drawn) == 2 and drawn != first


def test_of_a_model_that_writes_nothing_answers_alone_are_measured(
    backbone_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("task", "shares"):
        monkeypatch.setattr(f"holdfast.learning.{module}.first_general_text", lambda *_: [])
    config = RunConfig.of(SMALL, [f"backbone.name={backbone_directory}"])
    Trajectory(config, tmp_path).advance(1)
    rows = shares(Recorded.read(tmp_path), 3, lambda *_: None)
    assert {column for row in rows for column in row.values} == {"answers"}


def test_a_stream_without_a_further_task_is_refused(tmp_path: Path) -> None:
    facts = tmp_path / "facts.jsonl"
    facts.write_text('{"question": "who?", "answer": "Ada"}\n')
    stream = {"name": str(facts), "tasks": 1}
    Trajectory(RunConfig.of({**SMALL, "stream": stream}), tmp_path / "run").advance()
    with pytest.raises(HoldfastError, match="has learned 1 tasks, and what one more"):
        shares(Recorded.read(tmp_path / "run"), 3, lambda *_: None)
