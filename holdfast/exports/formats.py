"""Write a trajectory's model: complete, or its updates as a PEFT adapter of the backbone.

The sum of all tasks' updates is one low-rank update: all lora_A stacked, all lora_B side by side.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.pytorch_utils import Conv1D

from holdfast.allocation import ALLOCATIONS
from holdfast.backbone.model import Backbone
from holdfast.core.errors import HoldfastError
from holdfast.exports.asking import greedy, write_asking
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit, Store, factors_file
from holdfast.model.fetch import has_short_name
from holdfast.model.quiet import quiet

Format = Literal["peft", "hf", "gguf"]

BASE = "base"  # the folder of an export that holds the embedded backbone
_ADAPTER = "default"
_SEED_ROW = "seed_row"


def check_format(to: str) -> None:
    """Raise HoldfastError for an unknown format."""
    if to not in get_args(Format):
        raise HoldfastError(f'--to {to}: is no format; give "peft", "hf" or "gguf"')


def write_model(recorded: Recorded, commit: Commit, folder: Path) -> None:
    """Write a commit's complete model, all updates merged, and the files of ``write_asking``."""
    config, limit = recorded.config, recorded.config.evaluation.max_new_tokens
    if config.allocation().after_task == "keep":
        # This merge is not a step of the method, so it is done in float32.
        lora = config.lora.model_copy(update={"merge_precision": "float32"})
        recorded = replace(recorded, config=config.model_copy(update={"lora": lora}))
    backbone = recorded.learner(commit).backbone
    backbone.merge_and_unload()
    gc.collect()  # frees the learner: it has reference cycles and packs matrices in one storage
    # safetensors refuses views; save_pretrained would copy all parameters at once.
    for parameter in backbone.model.parameters():
        if parameter.untyped_storage().nbytes() > parameter.nbytes:
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    backbone.model.generation_config = greedy(backbone, limit)
    with quiet():
        backbone.model.save_pretrained(folder)
    write_asking(backbone, config.template, limit, folder)


def check_peft(recorded: Recorded, commit: Commit) -> None:
    """Raise HoldfastError, before anything is loaded, if no adapter can be written."""
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


def check_known_base(recorded: Recorded) -> None:
    """Raise HoldfastError if an adapter's base has no name that others can load."""
    name = recorded.config.backbone.name
    if name != "embedded" and (has_short_name(name) or Path(name).is_dir()):
        raise HoldfastError(
            f"{recorded.directory}: an adapter needs its base, and {name} has no place on the hub; "
            "push a whole model with --to hf"
        )


def write_adapter(recorded: Recorded, commit: Commit, folder: Path, home: str) -> None:
    """Write the adapter from backbone to a commit's model, and the files of ``write_asking``.

    home: where the export will lie. The embedded backbone, which is on no hub, is copied into its
    folder ``base``.
    """
    config = recorded.config
    backbone = recorded.backbone()
    if config.has_replay_token:
        backbone.add_replay_token()
    write_asking(backbone, config.template, config.evaluation.max_new_tokens, folder)
    tasks = _tasks(recorded, commit)
    load = partial(Store(recorded.directory).load, commit)
    last = load(factors_file(tasks[-1]))
    names = [key.removesuffix(".lora_A") for key in last if key.endswith(".lora_A")]
    maps = map(backbone.model.get_submodule, names)
    trained_row = last.get(_SEED_ROW)
    source = backbone.model.name_or_path
    base = os.path.abspath(source) if Path(source).is_dir() else source  # else a hub name
    if config.backbone.name == "embedded":
        shutil.copytree(source, folder / BASE, copy_function=shutil.copyfile)
        base = os.path.join(home, BASE)
    alpha = config.lora.alpha * len(tasks)
    settings = LoraConfig(
        r=config.lora.rank * len(tasks),
        lora_alpha=int(alpha) if alpha == int(alpha) else alpha,  # type: ignore[arg-type]
        lora_dropout=config.lora.dropout,
        target_modules=_targets(backbone.model, names),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in maps),
        trainable_token_indices=_token_rows(backbone, trained_row is not None),
        task_type="CAUSAL_LM",
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        model: Any = get_peft_model(backbone.model, settings, adapter_name=_ADAPTER)
    _fill(model, load, tasks, config.lora.rank)
    if trained_row is not None:
        table: Any = backbone.model.get_input_embeddings()
        with torch.no_grad():
            table.token_adapter.trainable_tokens_delta[_ADAPTER][0] = trained_row
    written = model.peft_config[_ADAPTER]
    written.base_model_name_or_path, written.revision = base, config.backbone.revision
    with quiet():
        model.save_pretrained(folder, save_embedding_layers=False)


def load_adapted(folder: Path, precision: str) -> Any:
    """Load an adapter that was written to ``folder``, as PEFT's ``AutoPeftModel`` loads it.

    precision: of the backbone. Returns PEFT's model, on the CPU.
    """
    beside, config = folder / BASE, PeftConfig.from_pretrained(str(folder))
    with quiet(), torch.random.fork_rng(devices=[]):
        base: Any = AutoModelForCausalLM.from_pretrained(
            beside if beside.is_dir() else config.base_model_name_or_path,
            dtype=getattr(torch, precision),
            revision=config.revision or "main",
        )
        rows = len(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
        if rows > len(base.get_input_embeddings().weight):
            base.resize_token_embeddings(rows, mean_resizing=False)
        model: Any = PeftModel.from_pretrained(base, folder)
    # As an argument of generate, what it does not set would come from the backbone's settings.
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def _tasks(recorded: Recorded, commit: Commit) -> range:
    """The tasks whose updates sum to the model's update."""
    first = commit.completed if recorded.config.allocation().after_task == "keep" else 1
    return range(first, commit.completed + 1)


def _targets(model: nn.Module, names: list[str]) -> list[str]:
    """The last parts of ``names`` if only these modules have them, else ``names`` (for PEFT)."""
    endings = {name.rpartition(".")[2] for name in names}
    matches = {name for name, _ in model.named_modules() if name.rpartition(".")[2] in endings}
    return sorted(endings if matches == set(names) else names)


def _token_rows(backbone: Backbone, trained: bool) -> dict[str, list[int]] | None:
    """The token rows stored with the adapter, by table: the replay token's; None without one.

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
def _fill(model: Any, load: Callable[[str], dict[str, Tensor]], tasks: range, rank: int) -> None:
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
