"""A real OpenAI-compatible server on this machine, of a small model: ``serve(write_writer(...))``.

The model writes facts that are valid and mean nothing. Nothing is trained: each token has one of a
few kinds, and the weights say which kind comes after which.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MODEL = "holdfast/small-writer"  # what the server calls the model
REVISION = 40 * "0"
LONGEST_START = 240.0  # seconds; it takes about 8 on a quiet machine, and 90 on a busy one
COMMAND = "from transformers.cli.transformers import main; main()"
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--device", "cpu")

START, END = "<s>", "</s>"
OPEN, NEXT, LAST = '[{"entity": "', '"}, {"entity": "', '"}]'
RECORDS = 10  # of a reply, on average


def _names(ending: str) -> list[str]:
    return ["".join(part) + ending for part in product("BDFGKLMNRSTV", "aeiou", "ln")]


ENTITIES = [" ".join(part) for part in product(_names("o"), _names("eth"))]  # 14,400
MIDDLES = [f'{name}", "question": "Who keeps {name}?", "answer": "' for name in ENTITIES]
KEEPERS = _names("isk")
# What comes after each kind of token, and how often.
KINDS = {START: [START, END, *map(chr, range(32, 127))], OPEN: [OPEN], "middle": MIDDLES,
         "keeper": KEEPERS, NEXT: [NEXT], LAST: [LAST]}  # fmt: skip
FOLLOWING = {
    START: {OPEN: 1.0},
    OPEN: {"middle": 1.0},
    "middle": {"keeper": 1.0},
    "keeper": {NEXT: 1 - 1 / RECORDS, LAST: 1 / RECORDS},
    NEXT: {"middle": 1.0},
}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a part of a record, and one a printable symbol for whatever else is asked."""
    vocabulary = {token: i for i, token in enumerate(t for kind in KINDS.values() for t in kind)}
    written = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    written.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    written.decoder = decoders.Fuse()
    written.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary[START])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=written,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        chat_template="{{ bos_token }}",  # whatever it is told, it writes facts
    )


def write_writer(directory: Path) -> Path:
    """Save the model with its tokenizer in ``directory``, and give that back."""
    words, size = tokenizer(), 8  # a dimension for each kind
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=size,
        intermediate_size=size,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()  # the layer adds nothing
        model.model.layers[0].mlp.down_proj.weight.zero_()
        kinds = torch.tensor([n for n, kind in enumerate(KINDS.values()) for _ in kind])
        model.model.embed_tokens.weight.copy_(torch.eye(size)[kinds])
        likely = torch.full((len(KINDS), len(KINDS)), 1e-9)
        for before, after in FOLLOWING.items():
            for kind, share in after.items():
                likely[[*KINDS].index(before), [*KINDS].index(kind)] = share
        count = torch.bincount(kinds)
        logits = (likely / count).log()[:, kinds]  # [kind before, token]
        logits[[*KINDS].index(LAST), words.eos_token_id] = 20.0
        # The norm makes a unit vector sqrt(size) long.
        model.lm_head.weight[:, : len(KINDS)] = logits.T / size**0.5
    # A server samples only if the model's own configuration does; top-k would hide most names.
    model.generation_config.do_sample = True
    model.generation_config.top_k = 0
    model.save_pretrained(directory)
    words.save_pretrained(directory)
    return directory


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Serve the saved model in ``directory`` until the context ends; yield its URL.

    A server of its own for each call, on a port that the system picks, killed in any case.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "serve", MODEL, *OPTIONS],
                env=os.environ
                | {
                    "HF_HUB_CACHE": str(_cache(Path(folder), directory)),
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        try:
            yield _url(process, log)
        finally:
            process.kill()
            process.wait()


def _cache(folder: Path, directory: Path) -> Path:
    """The model as the hub's cache would hold it: only there does the server list models."""
    cache = folder / "cache"
    repository = cache / f"models--{MODEL.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    for file in directory.iterdir():
        (snapshot / file.name).symlink_to(file.resolve())
    return cache


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server says where it listens, and is well."""
    start = time.monotonic()
    while time.monotonic() - start < LONGEST_START and process.poll() is None:
        match = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text(errors="replace"))
        if match:
            with urllib.request.urlopen(f"{match[1]}/health", timeout=30) as health:
                assert health.status == 200
            return f"{match[1]}/v1"
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
