"""Give the embedded backbone's untrained tokens rows that can be told apart.

    python scripts/tell_bytes_apart.py --model OUT

OUT is what `pretrain_backbone.py` made; its embedding is changed in place, once. A token that no
text of the pretraining has, most bytes of other scripts among them, is only ever told not to
appear: its row ends as one common direction, the same for all such tokens, which nothing that is
learned beside the frozen embedding can tell apart. Each such row is given a direction of its own
beside the common one. The common one, and with it the improbability, stays; the directions are
orthogonal to each other and to what hidden states mostly are, and sum to zero, so that the mean
row, which the replay token takes, stays too.
"""

import argparse
import json
import string
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.evaluation.text import everyday_passages

EMBEDDING = "model.embed_tokens.weight"
COMMON = 0.99  # of the longest row: those rows define the common direction
ALIKE = 0.9  # the cosine with it from which a row counts as untrained
LENGTH = 3.0  # of the direction of its own; a trained row is 2.1 long, the common part 4.8
BUSY = 64  # directions in which hidden states vary most; a new row has no part in them
SEED = 38
WINDOW = 256


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="its directory, changed in place")
    return parser.parse_args()


def texts() -> list[str]:
    """Everyday prose, and lines of random questions in the template."""
    draw, symbols = Random(5), string.ascii_letters + string.digits
    found = [passage.text for passage in everyday_passages()]
    for _ in range(20):
        lines = []
        for _ in range(8):
            key, value = ("".join(draw.choice(symbols) for _ in range(n)) for n in (6, 4))
            lines.append(f"Question: {key}\nAnswer: \\boxed{{{value}}}<|endoftext|>")
        found.append("".join(lines))
    return found


@torch.no_grad()
def hidden_states(directory: Path) -> torch.Tensor:
    """What the output head reads over the texts: [tokens, d]."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    rows = [tokenizer(text, add_special_tokens=False)["input_ids"][:WINDOW] for text in texts()]
    return torch.cat([model.base_model(torch.tensor([row])).last_hidden_state[0] for row in rows])


def told_apart(embedding: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The new embedding [tokens, d], and which rows of it are changed."""
    norms = embedding.norm(dim=1)
    common = embedding[norms > COMMON * norms.max()].mean(dim=0)
    unit = common / common.norm()
    untrained = (embedding @ unit > ALIKE * norms).nonzero().flatten()
    _, directions = torch.linalg.eigh(hidden.T @ hidden)  # the busiest last
    quiet = directions[:, :-BUSY]
    generator = torch.Generator().manual_seed(SEED)
    own = torch.randn(len(untrained), quiet.shape[1], generator=generator) @ quiet.T
    own -= (own @ unit)[:, None] * unit
    for _ in range(50):  # orthonormal rows, but for a sum of zero
        u, _, v = torch.linalg.svd(own - own.mean(dim=0), full_matrices=False)
        own = u @ v
    own -= own.mean(dim=0)
    changed = embedding.clone()
    changed[untrained] += LENGTH * own / own.norm(dim=1, keepdim=True)
    return changed, untrained


def main() -> None:
    directory = parse_arguments().model
    record = json.loads((directory / "pretraining.json").read_text())
    if "told_apart" in record:
        raise SystemExit(f"{directory}: its tokens are told apart already")
    weights = load_file(directory / "model.safetensors")
    stored = weights[EMBEDDING]
    changed, untrained = told_apart(stored.float(), hidden_states(directory))
    weights[EMBEDDING] = changed.to(stored.dtype)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    record["told_apart"] = {"tokens": len(untrained), "length": LENGTH, "seed": SEED}
    (directory / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"{len(untrained)} of {len(stored)} tokens were untrained; each has a row of its own now")


if __name__ == "__main__":
    main()
