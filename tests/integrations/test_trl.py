"""Anchors in TRL's SFTTrainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from holdfast.integrations.hf_trainer import with_anchors
from holdfast.integrations.reader import BOUNDS
from tests.integrations.test_hf_trainer import TARGETS, arguments, method, tokenizer_of
from tests.tiny import tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def conversations(task: int) -> Dataset:
    words = ["red", "blue", "green", "grey"]
    return Dataset.from_list(
        [
            {"prompt": f"Q{task}: colour of {place}? ", "completion": words[(place + task) % 4]}
            for place in range(8)
        ]
    )


def two_tasks_of_sft(anchored: Any, place: Path, **options: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = tiny_llama(layers=1)
    lora: Any = LoraConfig(r=2, lora_alpha=4, target_modules=TARGETS, task_type="CAUSAL_LM")
    plain = {**arguments(place).to_dict(), "output_dir": str(place), "max_length": 64}
    for task in (1, 2):
        trainer = with_anchors(SFTTrainer)(
            model=model,
            args=SFTConfig(**{**plain, "gradient_checkpointing": False, **options}),
            train_dataset=conversations(task),
            processing_class=tokenizer_of(),
            peft_config=lora,
            anchored=anchored,
        )
        trainer.train()
        model, lora, anchored = trainer.model, None, trainer.anchored
    return trainer


@pytest.mark.parametrize("loss_type", ["nll", "chunked_nll"])
def test_trl(loss_type: str, tmp_path: Path) -> None:
    """Losses without logits; the prompt is not trained on, so anchors leave it out too."""
    trainer = two_tasks_of_sft(method("si", "kfac", "sd", "replay"), tmp_path, loss_type=loss_type)
    logged = [line for line in trainer.state.log_history if "loss" in line]
    assert all(logged[-1][f"anchors/{name}"] > 0 for name in ("si", "kfac", "sd", "replay"))
    assert logged[0]["anchors/sd"] == pytest.approx(0, abs=1e-6)
    assert trainer.anchored.completed == 2


@pytest.mark.parametrize("name", ["replay", "kfac"])
def test_an_anchor_acts_in_trls_trainer(name: str, tmp_path: Path) -> None:
    """Its gradient arrives: strong and weak teach the second task other factors."""
    setting = "weight" if name == "replay" else "strength"
    learned_by = []
    for value in (0.1, 0.9) if name == "replay" else (0.0, 500.0):
        anchored = {**method(rule="shared"), "anchors": {name: {setting: value}}}
        learned_by.append(two_tasks_of_sft(anchored, tmp_path).anchored.workspace.copied())
    weak, strong = learned_by
    assert max(float((weak[key] - strong[key]).abs().max()) for key in weak) > 1e-3


def test_the_previous_model_is_told_where_packed_sequences_begin(tmp_path: Path) -> None:
    """Layers with convolutions take it from ``seq_idx`` alone; attention from ``position_ids``."""
    passes: list[dict[str, Any]] = []

    def note(_: Any, __: Any, given: dict[str, Any]) -> None:
        if given.get("position_ids") is not None:
            passes.append(given)

    trainer = two_tasks_of_sft(method("sd"), tmp_path, padding_free=True, max_length=None)
    trainer.model.get_base_model().model.register_forward_pre_hook(note, with_kwargs=True)
    trainer.train()
    teacher, student = passes[:2]
    assert int(student["seq_idx"].max()) == 3
    for name in BOUNDS:
        assert torch.equal(torch.tensor(teacher[name]), torch.tensor(student[name])), name
