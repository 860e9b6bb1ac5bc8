"""Small trajectories that know something, and exports as plain transformers and PEFT load them."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import AutoPeftModelForCausalLM
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from holdfast import RunConfig, Trajectory
from holdfast.exports.export import export
from tests.tiny import SMALL, byte_tokenizer, exact_gpt2, tiny_llama

QUESTIONS = [[("red", "a"), ("sky", "b"), ("tin", "c")], [("oak", "d"), ("fox", "e"), ("sea", "f")]]
TOKENS = 257


def facts(folder: Path) -> Path:
    """Two tasks of three items."""
    lines = [
        json.dumps({"task": f"task {number}", "question": question, "answer": answer})
        for number, task in enumerate(QUESTIONS)
        for question, answer in task
    ]
    path = folder / "facts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def configured(base: Path, stream: Path, method: str, **sections: Any) -> RunConfig:
    values: dict[str, Any] = {
        "method": method,
        "seed": 5,
        "backbone": {"name": str(base), "device": "cpu", "precision": "float32"},
        "stream": {"name": str(stream)},
        "lora": {"rank": 2, "alpha": 7.5, "dropout": 0.1, "targets": "all-linear"},
        "optim": {"epochs": 1, "batch_size": 3, "lr": 0.02},
        "sampling": {"samples": 4, "max_new_tokens": 8},
        "evaluation": {"max_new_tokens": 16, "rows": "horizon"},
        "keep": {"factors": True},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    return RunConfig.of(values)


def learned(place: Path, config: RunConfig, tasks: int = 2) -> Path:
    Trajectory(config, place).advance(tasks)
    return place


def family(name: str, rows: int = TOKENS) -> Any:
    """A random model of one architecture; rows: of its embedding, for 257 tokens."""
    sizes = {**SMALL, "vocab_size": rows, "tie_word_embeddings": True}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "gpt2":
            config = exact_gpt2().model.config
            config.vocab_size = rows
            return GPT2LMHeadModel(config)
        if name == "llama untied":
            llama = tiny_llama().config
            llama.vocab_size, llama.tie_word_embeddings = rows, False
            return LlamaForCausalLM(llama)
        if name.startswith("phi"):  # its head has a bias
            sizes |= {"pad_token_id": 0, "tie_word_embeddings": name == "phi tied"}
            return PhiForCausalLM(PhiConfig(**sizes))
        if name == "qwen2":
            return Qwen2ForCausalLM(Qwen2Config(**sizes))
        return Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=8))


def saved(folder: Path, model: Any, tokenizer: Any = None) -> Path:
    model.save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return folder


def export_but_for_the_last_step(run: Path, out: Path) -> None:
    """Killed there: for a process of its own."""
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    export(run, "hf", out, checked=False)


def load_hf(out: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)


def load_peft(out: Path, dtype: str) -> tuple[Any, Any]:
    """As the card says."""
    with warnings.catch_warnings():
        # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        model = AutoPeftModelForCausalLM.from_pretrained(out, dtype=dtype).eval()
    model.generation_config = GenerationConfig.from_pretrained(out)
    return model, AutoTokenizer.from_pretrained(out)


@torch.no_grad()
def logits(model: Any, ids: list[int]) -> torch.Tensor:
    output: torch.Tensor = model(input_ids=torch.tensor([ids])).logits
    return output[0]


def answers(model: Any, tokenizer: Any) -> list[list[str]]:
    """What each question is answered, by plain generate; several questions at a time."""
    return [generated(model, tokenizer, [question for question, _ in task]) for task in QUESTIONS]


def generated(model: Any, tokenizer: Any, questions: list[str]) -> list[str]:
    prompts = [f"Question: {question}\nAnswer:" for question in questions]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    output = model.generate(**inputs, generation_config=model.generation_config)
    texts: list[str] = tokenizer.batch_decode(
        output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return texts
