"""What the settings that save memory save, and what they cost in time, on a deep random model.

`python -m benchmarks.card` prints one line for each setting; every one has a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.children import ask
from holdfast.backbone.load import load_backbone
from holdfast.backbone.projection import token_cross_entropy
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Part
from holdfast.learning.schedule import TaskOptimizer

SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "checkpointing": {"checkpointing": True},
    "int8": {"quantization": "int8"},
    "nf4": {"quantization": "nf4"},
    "nf4, checkpointing": {"quantization": "nf4", "checkpointing": True},
}
_VOCABULARY = 1000


def write_model(folder: Path, layers: int, width: int) -> None:
    """A random Llama with its tokenizer."""
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=width,
        intermediate_size=11 * width // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64 or 1,
        tie_word_embeddings=True,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = {str(token): token for token in range(_VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="0").save_pretrained(folder)


def measured(name: str, folder: str, length: int = 128, steps: int = 4) -> dict[str, float]:
    """Of training steps on four sequences of ``length`` tokens, in this process.

    Returns MiB of the frozen weights, MiB that the process holds at the highest point of a step
    above what it held before, and the seconds of a step, a median without the first.
    """
    backbone = {"name": folder, "device": "cpu", **SETTINGS[name]}
    config = RunConfig.of({"method": "vanilla", "backbone": backbone, "lora": {"rank": 8}})
    learner = Learner(config, load_backbone(config.backbone))
    learner.adapters.fresh(1, 1)
    optimizer = TaskOptimizer(learner.adapters.parameters, config.optim, steps)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # give back what the dense weights have left
    loaded = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest point is now
    source = torch.Generator().manual_seed(1)
    sequences = torch.randint(1, _VOCABULARY, (4, length), generator=source).tolist()
    seconds = []
    for step in range(steps):
        begun = time.perf_counter()
        learner.adapters.gradient.zero_()
        with learner.backbone.learning(step):
            passed, (projection,) = learner.project(Part(sequences, None))
            loss = projection.mean(token_cross_entropy)
            passed.backward((loss, learner.adapters.gradient))
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
    return {
        "weights": sum(part.nbytes for part in _frozen(learner)) / 2**20,
        "added": _resident("VmHWM") - loaded,
        "seconds": statistics.median(seconds[1:]),
    }


def _frozen(learner: Learner) -> list[torch.Tensor]:
    """The tensors of the model but for its factors."""
    model = learner.backbone.model
    factors = learner.adapters.parameters.untyped_storage().data_ptr()
    parts = {part.data_ptr(): part for part in (*model.parameters(), *model.buffers())}
    return [one for one in parts.values() if one.untyped_storage().data_ptr() != factors]


def _resident(which: str) -> float:
    """MiB of this process, as Linux counts them: now (VmRSS), or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith(f"{which}:"))
    return int(line.split()[1]) / 1024


def main(layers: int = 24, width: int = 512) -> None:
    print("| setting | weights, MiB | a step adds, MiB | seconds a step |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), layers, width)
        for name in sys.argv[1:] or SETTINGS:
            found = ask("benchmarks.card", "measured", name, folder)
            cells = f"{found['weights']:.0f} | {found['added']:.0f} | {found['seconds']:.2f}"
            print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
