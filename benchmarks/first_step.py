"""The plain recipe's first training step, for a process that does nothing else."""

from __future__ import annotations

from importlib.resources import files

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.backbone.adapters.workspace import PAPER_TARGETS
from reference.learner import run_task
from reference.sequences import render, tokenise
from reference.state import Settings, State, Task


def take() -> float:
    """Load the embedded model as the recipe would and take one step; its loss."""
    source = str(files("holdfast.backbone") / "embedded")
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    texts = [render(f"What is {number}?", str(number)) for number in range(8)]
    eos = tokenizer.eos_token_id
    sequences = [tokenise(tokenizer, text, eos_id=eos) for text in texts]
    settings = Settings(target_modules=PAPER_TARGETS, rank=32, alpha=64, pad_id=eos)
    result = run_task(State(model), settings, Task(sequences, [sequences]))
    loss: float = result.steps[0]["sft"]
    return loss
