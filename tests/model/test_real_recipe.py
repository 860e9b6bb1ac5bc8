"""The recipe `smollm2` on SmolLM2-135M itself, with one item a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import RunConfig, Trajectory, recipe

pytestmark = pytest.mark.real


def test_two_tasks_are_learned_the_second_with_what_the_model_wrote(
    smollm2: Path, tmp_path: Path
) -> None:
    few = ["stream.tasks=2", "stream.items_per_task=1", "optim.epochs=8"]
    short = ["sampling.samples=2", "sampling.max_new_tokens=20", "evaluation.max_new_tokens=10"]
    config = RunConfig.of(recipe("smollm2"), [*few, *short, "sampling.keep=true"])
    Trajectory(config, tmp_path).advance(1)
    trajectory = Trajectory(config, tmp_path)  # another process goes on
    matrix = trajectory.advance(2)
    assert matrix[1, 1] == matrix[2, 2] == 1.0
    assert matrix.observed_rows == (0, 1, 2)
    # Sampled from the replay token alone, they have the form of what was taught.
    assert any(text.startswith("Question:") for text in trajectory.samples(2))


def test_a_task_in_its_own_chat_template(smollm2: Path, tmp_path: Path) -> None:
    few = ["stream.tasks=1", "stream.items_per_task=1", "optim.epochs=7", "template.form=chat"]
    config = RunConfig.of(recipe("smollm2"), [*few, "method=vanilla"])
    assert Trajectory(config, tmp_path).advance(1)[1, 1] == 1.0
