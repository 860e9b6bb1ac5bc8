"""A model with a table of positions: nothing goes beyond its last one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from holdfast import RunConfig, Trajectory
from holdfast.core.errors import HoldfastError
from holdfast.learning.stream import check_without_weights
from holdfast.streams import Item, Stream, Task
from tests.model.standins import tiny_tokenizer

POSITIONS = 40
FACTS = (Item("red", "7"), Item("blue", "9"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    size = {
        "vocab_size": len(tokenizer),
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": POSITIONS,
    }
    size |= {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    GPT2LMHeadModel(GPT2Config(**size)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def configured(directory: Path) -> RunConfig:
    return RunConfig.of(
        {
            "method": "si_sd_replay_merge",
            "backbone": {"name": str(directory)},
            "lora": {"rank": 2, "targets": ["c_attn"]},
            "optim": {"epochs": 1, "batch_size": 2},
            "sampling": {"samples": 4, "max_new_tokens": 384},
            "evaluation": {"max_new_tokens": 256},
        }
    )


def test_what_it_writes_ends_where_its_positions_end(directory: Path, tmp_path: Path) -> None:
    stream = Stream((Task("x", FACTS), Task("y", (Item("green", "3"),))), "s")
    run = Trajectory(configured(directory), tmp_path / "run", stream=stream)
    assert run.advance(2).horizon == 2


def test_an_item_that_needs_more_positions_is_refused(directory: Path, tmp_path: Path) -> None:
    config = configured(directory)
    stream = Stream((Task("x", (*FACTS, Item("a" * POSITIONS, "7"))),), "s")
    message = f'task "x" item 3: .* and the model takes {POSITIONS} together; shorten it'
    with pytest.raises(HoldfastError, match=message):
        check_without_weights(config, stream)
    with pytest.raises(HoldfastError, match=message):
        Trajectory(config, tmp_path / "run", stream=stream).advance(1)
