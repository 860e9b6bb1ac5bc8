"""Export a trajectory's updates as a PEFT adapter of the unmodified backbone.

The sum of all tasks' updates is one low-rank branch: all A stacked, all B concatenated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.pytorch_utils import Conv1D

from holdfast.allocation import ALLOCATIONS
from holdfast.backbone.load import silence_bitsandbytes
from holdfast.backbone.model import Backbone
from holdfast.core.errors import HoldfastError
from holdfast.exports.asking import Asking, write_asking
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit, Store, factors_file

Load = Callable[[str], dict[str, Tensor]]

BASE = "base"  # the folder of an export that holds the embedded backbone
_ADAPTER = "default"
_SEED_ROW = "seed_row"


def check_peft(recorded: Recorded, commit: Commit) -> None:
    """Raise HoldfastError, before anything is loaded, when no adapter can be written."""
    _peft()
    name = recorded.config.composition.allocation
    if name not in ALLOCATIONS:
        raise HoldfastError(
            f"{recorded.directory}: whether updates of the rule {name} add up is not known; "
            "use --to hf"
        )
    missing = [t for t in _tasks(recorded, commit) if factors_file(t) not in commit.files]
    if missing:
        raise HoldfastError(
            f"{recorded.directory}: an adapter needs the factors of every task, and those of task "
            f"{missing[0]} were not kept; use --to hf, or learn with keep.factors=true"
        )


def write_adapter(recorded: Recorded, commit: Commit, folder: Path, home: str) -> Asking:
    """Write the adapter that turns the backbone into a commit's model; return how to ask it.

    home: where the export will lie, or empty; the embedded backbone, which no hub has, is written
    into its folder ``base``.
    """
    peft = _peft()
    config = recorded.config
    backbone = recorded.backbone()
    rows = len(backbone.model.get_input_embeddings().weight)
    if any(anchor.needs.replay for anchor in config.anchors()):
        backbone.add_replay_token()
    asking = write_asking(backbone, config.evaluation.max_new_tokens, folder)
    needed = len(backbone.model.get_input_embeddings().weight)
    tasks = _tasks(recorded, commit)
    load = partial(Store(recorded.directory).load, commit)
    last = load(factors_file(tasks[-1]))
    names = [key.removesuffix(".lora_A") for key in last if key.endswith(".lora_A")]
    maps = map(backbone.model.get_submodule, names)
    trained_row = last.get(_SEED_ROW)
    beside = config.backbone.name == "embedded"
    base = os.path.join(home, BASE) if beside else _base(backbone)
    settings = peft.LoraConfig(
        r=config.lora.rank * len(tasks),
        lora_alpha=_whole(config.lora.alpha * len(tasks)),
        lora_dropout=config.lora.dropout,
        target_modules=_targets(backbone.model, names),
        fan_in_fan_out=any(isinstance(one, Conv1D) for one in maps),
        trainable_token_indices=_token_rows(backbone, trained_row is not None),
        task_type="CAUSAL_LM",
    )
    with _quiet(), torch.random.fork_rng(devices=[]):
        model = peft.get_peft_model(backbone.model, settings, adapter_name=_ADAPTER)
    _fill(model, load, tasks, config.lora.rank)
    if trained_row is not None:
        _set_row(backbone.model.get_input_embeddings(), trained_row)
    model.peft_config[_ADAPTER].base_model_name_or_path = base
    model.peft_config[_ADAPTER].revision = revision = config.backbone.revision
    with _quiet():
        model.save_pretrained(folder, save_embedding_layers=False)
    if beside:
        (folder / BASE).mkdir()
        for path in Path(_base(backbone)).iterdir():
            shutil.copyfile(path, folder / BASE / path.name)
    more_rows = needed if needed > rows else None
    return replace(asking, base=base, revision=revision, beside=beside, rows=more_rows)


def load_adapted(folder: Path, asking: Asking, precision: str) -> Any:
    """Load an adapter that was written to ``folder`` as its card says; precision: of the backbone.

    Returns PEFT's model, on the CPU.
    """
    source = folder / BASE if asking.beside else asking.base
    base = AutoModelForCausalLM.from_pretrained(
        source, dtype=getattr(torch, precision), revision=asking.revision or "main"
    )
    if asking.rows is not None:
        with torch.random.fork_rng(devices=[]):
            base.resize_token_embeddings(asking.rows, mean_resizing=False)
    with _quiet():
        model = _peft().PeftModel.from_pretrained(base, folder)
    # Given to generate, it would leave to the backbone's own settings what it does not set.
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def _base(backbone: Backbone) -> str:
    """Where the unmodified backbone is loaded from: a hub name or an absolute path."""
    source: str = backbone.model.name_or_path
    return os.path.abspath(source) if Path(source).is_dir() else source


def _peft() -> Any:
    try:
        silence_bitsandbytes()
        import peft
    except ImportError:
        raise HoldfastError("adapters are written by PEFT; pip install peft") from None
    return peft


def _tasks(recorded: Recorded, commit: Commit) -> range:
    """The tasks whose updates sum to the model's update."""
    first = commit.completed if recorded.config.allocation().after_task == "keep" else 1
    return range(first, commit.completed + 1)


def _targets(model: nn.Module, names: list[str]) -> list[str]:
    """Suffixes that match ``names`` alone, else ``names`` in full; PEFT matches by suffix."""
    endings = {name.rpartition(".")[2] for name in names}
    met = {name for name, _ in model.named_modules() if name.rpartition(".")[2] in endings}
    return sorted(endings if met == set(names) else names)


def _token_rows(backbone: Backbone, trained: bool) -> dict[str, list[int]] | None:
    """The token rows stored with the adapter, by table: those of the replay token.

    A trained input row differs from the output row even when the two tables are tied. PEFT unties
    such rows only if their tables list different ones, so the head lists one more row.
    """
    token = backbone.seed_token
    if token is None:
        return None
    model, head = backbone.model, backbone.head
    table = model.get_input_embeddings()
    tied = head.weight is table.weight
    rows = {_name_of(model, table): [token]}
    # PEFT would drop the bias of a head, and no answer needs the replay token's logit.
    if getattr(head, "bias", None) is None:
        if not tied:
            rows[_name_of(model, head)] = [token]
        elif trained:
            rows[_name_of(model, head)] = [token, 0 if token else 1]
    return rows


def _name_of(model: Any, wanted: Any) -> str:
    names: dict[Any, str] = {module: name for name, module in model.named_modules()}
    return names[wanted]


@torch.no_grad()
def _fill(model: Any, load: Load, tasks: range, rank: int) -> None:
    """Copy each task's factors into its slice of the adapter, one file at a time."""
    inner = model.get_base_model()
    for place, task in enumerate(tasks):
        span = slice(place * rank, (place + 1) * rank)
        for key, factor in load(factors_file(task)).items():
            name, _, letter = key.rpartition(".")
            if letter == "lora_A":
                inner.get_submodule(name).lora_A[_ADAPTER].weight[span] = factor
            elif letter == "lora_B":
                inner.get_submodule(name).lora_B[_ADAPTER].weight[:, span] = factor


@torch.no_grad()
def _set_row(table: Any, row: Tensor) -> None:
    table.token_adapter.trainable_tokens_delta[_ADAPTER][0] = row


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield
