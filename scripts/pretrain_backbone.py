"""Pretrain the embedded backbone: a small Qwen3 causal LM with its own tokenizer.

    python scripts/pretrain_backbone.py --corpus CORPUS.txt.gz --work WORK --out OUT

WORK receives resumable checkpoints (run the command again to continue), OUT the finished model.
The learning rate holds until `--decay` of the steps remain and then falls to zero, so a
checkpoint taken before the fall belongs to runs of any length.
"""

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pretraining_data import (
    BENCHMARK_SEEDS,
    END_OF_TEXT,
    MIXTURE,
    ROWS,
    Blocks,
    Novel,
    benchmark_keys,
    check_tokenizer,
    collect_vocabulary,
    encode_novels,
    read_novels,
    split_held_out,
    train_tokenizer,
)
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--corpus", type=Path, default=Path("../shared/data/corpus/eltec_eng_novels.txt.gz")
    )
    parser.add_argument("--work", type=Path, required=True, help="checkpoints, resumed if present")
    parser.add_argument("--out", type=Path, required=True, help="the finished model")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--decay", type=float, default=0.4, help="share of the steps")
    parser.add_argument("--warmup", type=int, default=60, help="steps")
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--length", type=int, default=256, help="tokens in a row")
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--intermediate", type=int, default=640)
    parser.add_argument("--checkpoint-every", type=int, default=250, help="steps")
    parser.add_argument("--stop-after", type=int, help="steps; the schedule stays that of --steps")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def build_model(arguments: argparse.Namespace, end: int) -> Qwen3ForCausalLM:
    """A fresh model from the seed."""
    torch.manual_seed(arguments.seed)
    config = Qwen3Config(
        vocab_size=arguments.vocabulary,
        hidden_size=arguments.hidden,
        intermediate_size=arguments.intermediate,
        num_hidden_layers=arguments.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    return Qwen3ForCausalLM(config).float()


class Muon:
    """Momentum whose step on a matrix is replaced by its nearest orthogonal matrix.

    torch.optim.Muon computes in bfloat16, which is ten times slower than float32 on a processor
    without it. Steps are scaled to the root mean square of AdamW's, so that both share one rate.
    Source: Jordan et al. 2024 (the iteration), Liu et al. 2025 (the scale).
    """

    def __init__(self, parameters: list[torch.nn.Parameter], weight_decay: float):
        self.parameters = parameters
        self.weight_decay = weight_decay
        self.momenta = [torch.zeros_like(parameter) for parameter in parameters]
        self.shapes = sorted({tuple(parameter.shape) for parameter in parameters})

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        for shape in self.shapes:
            members = [i for i, p in enumerate(self.parameters) if tuple(p.shape) == shape]
            updates = []
            for index in members:
                gradient = self.parameters[index].grad
                self.momenta[index].lerp_(gradient, 0.05)
                updates.append(gradient.lerp(self.momenta[index], 0.95))
            scale = 0.2 * math.sqrt(max(shape))
            for index, update in zip(members, orthogonalized(torch.stack(updates)), strict=True):
                parameter = self.parameters[index]
                parameter.mul_(1 - learning_rate * self.weight_decay)
                parameter.sub_(update, alpha=learning_rate * scale)


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """Drive all singular values of [count, rows, columns] towards one, five Newton-Schulz steps."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms, at one rate."""

    def __init__(self, model: Qwen3ForCausalLM, weight_decay: float):
        named = list(model.named_parameters())
        self.muon = Muon([p for name, p in named if is_matrix(name, p)], weight_decay)
        self.others = [p for name, p in named if not is_matrix(name, p)]
        self.adamw = torch.optim.AdamW(self.others, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, learning_rate: float) -> None:
        self.muon.step(learning_rate)
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate
        self.adamw.step()

    def state(self) -> dict[str, torch.Tensor]:
        momenta = {f"muon.{index}.momentum": m for index, m in enumerate(self.muon.momenta)}
        moments = {
            f"adamw.{index}.{name}": value
            for index, parameter in enumerate(self.others)
            for name, value in self.adamw.state[parameter].items()
        }
        return momenta | moments

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        for key, value in tensors.items():
            owner, index, name = key.split(".")
            if owner == "muon":
                self.muon.momenta[int(index)].copy_(value)
            else:
                self.adamw.state[self.others[int(index)]][name] = value.clone()


def is_matrix(name: str, parameter: torch.nn.Parameter) -> bool:
    """True for the weights inside the layers; the embedding is a table of rows, not a map."""
    return parameter.ndim == 2 and "embed" not in name


def rate_at(step: int, arguments: argparse.Namespace) -> float:
    """Linear warmup, a plateau, a linear fall to zero."""
    warm = min(1.0, (step + 1) / arguments.warmup)
    fall = min(1.0, (arguments.steps - step) / (arguments.decay * arguments.steps))
    return arguments.learning_rate * min(warm, fall)


def losses(model: Callable, tokens: np.ndarray, documents: np.ndarray) -> torch.Tensor:
    """Next-token losses [rows, length]; a token sees the earlier tokens of its own document."""
    tokens_tensor = torch.from_numpy(tokens)
    document = torch.from_numpy(documents)[:, :-1]
    length = document.shape[1]
    position = torch.arange(length).expand_as(document)
    changes = F.pad(document[:, 1:] != document[:, :-1], (1, 0))
    position = position - torch.where(changes, position, 0).cummax(dim=1).values
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    visible = (document[:, :, None] == document[:, None, :]) & causal
    logits = model(
        input_ids=tokens_tensor[:, :-1],
        attention_mask=visible[:, None],
        position_ids=position,
        use_cache=False,
    ).logits
    return F.cross_entropy(
        logits.flatten(0, 1), tokens_tensor[:, 1:].flatten(), reduction="none"
    ).view_as(document)


def train(arguments: argparse.Namespace, blocks: Blocks, model: Qwen3ForCausalLM) -> dict:
    """Run or continue the steps; return what was counted on the way."""
    optimizers = Optimizers(model, arguments.weight_decay)
    progress = resume(arguments.work, model, optimizers)
    forward = torch.compile(model) if arguments.compile else model
    last = min(arguments.steps, arguments.stop_after or arguments.steps)
    started = time.monotonic()
    seconds_before = progress["seconds"]
    running = np.zeros((0, ROWS))
    for step in range(progress["step"], last):
        token_losses = losses(forward, *blocks.batch(step))
        loss = token_losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(rate_at(step, arguments))
        model.zero_grad(set_to_none=True)
        assert math.isfinite(loss.item()), f"the loss is {loss.item()} at step {step}"

        running = np.concatenate([running, token_losses.detach().mean(dim=1).numpy()[None]])
        progress["step"] = step + 1
        progress["seconds"] = seconds_before + time.monotonic() - started
        if progress["step"] % 50 == 0:
            report(progress, arguments, running.mean(axis=0))
            running = running[:0]
        if progress["step"] % arguments.checkpoint_every == 0 or progress["step"] == last:
            save_checkpoint(arguments.work, model, optimizers, progress)
    return progress


def report(progress: dict, arguments: argparse.Namespace, row_losses: np.ndarray) -> None:
    """Print one line: the loss of each kind of row, the speed, the time that is left."""
    kinds, first = [], 0
    for kind, count in MIXTURE:
        kinds.append(f"{kind} {row_losses[first : first + count].mean():.3f}")
        first += count
    pace = progress["seconds"] / progress["step"]
    minutes = pace * (arguments.steps - progress["step"]) / 60
    speed = ROWS * arguments.length / pace
    print(
        f"step {progress['step']}  {'  '.join(kinds)}  "
        f"{speed:.0f} tokens/s  {minutes:.0f} min left",
        flush=True,
    )


def resume(work: Path, model: Qwen3ForCausalLM, optimizers: Optimizers) -> dict:
    """Load the last checkpoint, if there is one."""
    pointer = work / "progress.json"
    if not pointer.exists():
        return {"step": 0, "seconds": 0.0}
    progress = json.loads(pointer.read_text())
    directory = work / f"step-{progress['step']}"
    weights = load_file(directory / "weights.safetensors")
    model.load_state_dict(weights, strict=False)
    optimizers.load(load_file(directory / "optimizer.safetensors"))
    print(f"continuing at step {progress['step']}", flush=True)
    return progress


def save_checkpoint(
    work: Path, model: Qwen3ForCausalLM, optimizers: Optimizers, progress: dict
) -> None:
    """Write weights and optimizer; the pointer moves last, so a cut leaves the one before."""
    directory = work / f"step-{progress['step']}"
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
    save_file(weights, directory / "weights.safetensors")
    state = {name: value.contiguous() for name, value in optimizers.state().items()}
    save_file(state, directory / "optimizer.safetensors")
    write_json(work / "progress.json", progress)


def write_json(path: Path, value: dict) -> None:
    """Replace a JSON file in one step."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)


@torch.no_grad()
def bits_per_byte(model: Callable, tokenizer: Tokenizer, novel: Novel, length: int) -> float:
    """Bits per UTF-8 byte of a novel, read in disjoint windows that share one token of context."""
    tokens = encode_novels([novel], tokenizer)[:-1].astype(np.int64)
    count = (len(tokens) - 1) // length
    nats = 0.0
    for first in range(0, count, ROWS):
        rows = [
            tokens[row * length : row * length + length + 1]
            for row in range(first, min(first + ROWS, count))
        ]
        nats += losses(model, np.stack(rows), np.zeros((len(rows), length + 1), int)).sum().item()
    covered = tokenizer.decode(tokens[1 : count * length + 1].tolist(), skip_special_tokens=False)
    return nats / math.log(2) / len(covered.encode())


def export(out: Path, model: Qwen3ForCausalLM, tokenizer: Tokenizer) -> None:
    """Write the model and its tokenizer as transformers reads them, each file replaced whole.

    The weights are stored in half precision for their size; the configuration says float32, so
    that loading computes in float32.
    """
    out.mkdir(parents=True, exist_ok=True)
    partial = out / ".partial"
    partial.mkdir(exist_ok=True)
    half = {name: p.detach().half().contiguous() for name, p in model.named_parameters()}
    save_file(half, partial / "model.safetensors", metadata={"format": "pt"})
    model.config.dtype = "float32"
    model.config.architectures = ["Qwen3ForCausalLM"]
    model.config.save_pretrained(partial)
    model.generation_config.save_pretrained(partial)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=model.config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(partial)
    for path in partial.iterdir():
        path.chmod(0o644)
        os.replace(path, out / path.name)
    partial.rmdir()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    arguments.work.mkdir(parents=True, exist_ok=True)
    training, held_out = split_held_out(read_novels(arguments.corpus))
    vocabulary = collect_vocabulary(training)
    excluded = benchmark_keys()

    tokenizer_file = arguments.work / "tokenizer.json"
    if not tokenizer_file.exists():
        tokenizer = train_tokenizer(
            training, vocabulary, excluded, arguments.vocabulary, arguments.seed
        )
        check_tokenizer(tokenizer, vocabulary, arguments.seed)
        tokenizer.save(str(tokenizer_file))
    tokenizer = Tokenizer.from_file(str(tokenizer_file))

    blocks = Blocks(training, vocabulary, tokenizer, excluded, arguments.length, arguments.seed)
    model = build_model(arguments, blocks.end)
    print(f"{model.num_parameters()} parameters, {len(blocks.prose)} tokens of prose", flush=True)
    progress = train(arguments, blocks, model)

    export(arguments.out, model, tokenizer)
    exported = Qwen3ForCausalLM.from_pretrained(arguments.out).eval()
    assert exported.dtype == torch.float32
    write_json(
        arguments.out / "pretraining.json",
        {
            "parameters": model.num_parameters(),
            "steps": progress["step"],
            "scheduled_steps": arguments.steps,
            "tokens": progress["step"] * ROWS * arguments.length,
            "tokens_per_step": ROWS * arguments.length,
            "mixture_rows": dict(MIXTURE),
            "length": arguments.length,
            "learning_rate": arguments.learning_rate,
            "warmup_steps": arguments.warmup,
            "decay_share": arguments.decay,
            "weight_decay": arguments.weight_decay,
            "seed": arguments.seed,
            "training_novels": len(training),
            "training_prose_tokens": len(blocks.prose),
            "held_out_bits_per_byte": {
                novel.title: round(bits_per_byte(exported, tokenizer, novel, arguments.length), 4)
                for novel in held_out
            },
            "excluded_benchmark_seeds": sorted(BENCHMARK_SEEDS),
            "excluded_keys": len(excluded),
            "training_seconds": round(progress["seconds"], 1),
            "threads": arguments.threads,
            "torch": torch.__version__,
            "machine": platform.machine(),
        },
    )


if __name__ == "__main__":
    main()
