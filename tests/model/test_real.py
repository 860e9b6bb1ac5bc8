"""SmolLM2-135M as it is converted: the model of the GGUF file, what it answers, its recipe."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import RunConfig, Trajectory, recipe
from holdfast.model.layers import maps_of_layers
from holdfast.model.load import load_model
from holdfast.model.sources.fetch import fetch, find
from tests.model.chat_models import plain_reply

pytestmark = pytest.mark.real

OF_THE_GGUF = "3c5fdee91060c09a103a3ace048e09657659253dda455eaa5b13bcd2d5525f3b"


@pytest.fixture(scope="module")
def loaded(smollm2: Path) -> tuple[Any, Any]:
    return load_model("smollm2")


def continued(model: Any, tokenizer: Any, text: str) -> str:
    asked = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**asked, max_new_tokens=8, do_sample=False)
    return str(tokenizer.decode(ids[0, asked["input_ids"].shape[1] :]))


def test_it_knows_paris(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert "Paris" in plain_reply(model, tokenizer, "What is the capital of France?", 12)
    assert continued(model, tokenizer, "The capital of France is").startswith(" Paris")


def test_it_is_found_loaded_soon_and_can_be_adapted(smollm2: Path) -> None:
    assert find("smollm2") == fetch("smollm2") == smollm2
    began = time.perf_counter()
    model, tokenizer = load_model("smollm2")
    assert time.perf_counter() - began < 10  # 1.6 s on an idle machine
    assert len(maps_of_layers(model)) == 30 * 7
    assert tokenizer.chat_template and tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_it_is_the_model_that_transformers_reads_from_the_gguf(loaded: tuple[Any, Any]) -> None:
    """Bit for bit: the sha256 of every weight in float32 behind its name, in the order of names.

    Compared with what `from_pretrained(gguf_file=...)` of transformers 5.23 gives.
    """
    digest = hashlib.sha256()
    for name, value in sorted(loaded[0].state_dict().items()):
        digest.update(name.encode())
        digest.update(memoryview(value.float().contiguous().numpy()).cast("B"))
    assert digest.hexdigest() == OF_THE_GGUF


def test_two_tasks_are_learned_the_second_with_what_the_model_wrote(smollm2, tmp_path) -> None:
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
