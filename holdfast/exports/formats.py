"""Write a trajectory's model, complete or as a PEFT adapter, and what plain transformers needs.

The sum of all tasks' updates is one low-rank update: all lora_A stacked, all lora_B side by side.
Holdfast puts the replay token, or nothing, before a question, and decodes greedily. The tokenizer,
chat template and settings that are written do the same, whatever the backbone's own do.
``apply_chat_template`` tokenizes without special tokens, so the template writes the replay token.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.pytorch_utils import Conv1D

from holdfast.allocation import ALLOCATIONS
from holdfast.core.errors import HoldfastError
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit, Store, factors_file
from holdfast.model.backbone import REPLAY_TOKEN, Backbone
from holdfast.model.chat import template_for, with_one_date
from holdfast.model.quiet import quiet
from holdfast.model.sources.fetch import has_short_name
from holdfast.streams import Item, Template
from holdfast.streams.template import PAPER

Format = Literal["peft", "hf", "gguf"]

BASE = "base"  # the folder of an export that holds the embedded backbone
_ADAPTER = "default"
_SEED_ROW = "seed_row"
_QUESTIONS = ("Who?", "two  spaces, 1 234 and \N{SNOWMAN}")
# A message is a text, or a list of parts whose texts are joined. Only the last one of the user
# counts, since no training sequence had a system's text, or earlier questions and answers.
_LAST_QUESTION = """\
{%- set last = namespace(question="") -%}
{%- for message in messages -%}
{%- if message["role"] == "user" -%}
{%- set last.question = message["content"] -%}
{%- endif -%}
{%- endfor -%}
{%- if last.question is not string -%}
{%- set said = namespace(text="") -%}
{%- for part in last.question -%}
{%- set said.text = said.text + (part["text"] or "") -%}
{%- endfor -%}
{%- set last.question = said.text -%}
{%- endif -%}
"""
_MARK = "HERE"


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
    if name != "embedded" and (has_short_name(name) or Path(name).exists()):
        raise HoldfastError(
            f"{recorded.directory}: an adapter needs its base, and {name} has no place on the hub; "
            "push a whole model with --to hf"
        )


def write_adapter(recorded: Recorded, commit: Commit, folder: Path, home: str) -> None:
    """Write the adapter from backbone to a commit's model, and the files of ``write_asking``.

    The embedded backbone, which is on no hub, is copied into ``base``. home: where that will lie.
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
        modules_to_save=_whole_head(backbone),
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
    """Load an adapter that was written to ``folder``, as PEFT's ``AutoPeftModel`` loads it."""
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
    if _whole_head(backbone) is None:
        if not tied:
            rows[_name_of(model, head)] = [token]
        elif trained:
            rows[_name_of(model, head)] = [token, 0 if token else 1]
    return rows


def _whole_head(backbone: Backbone) -> list[str] | None:
    """The name of a head that is stored whole: PEFT would drop its bias with the token's row.

    Raises HoldfastError if it is tied, too, since PEFT cannot store that.
    """
    model, head = backbone.model, backbone.head
    if backbone.seed_token is None or getattr(head, "bias", None) is None:
        return None
    if head.weight is model.get_input_embeddings().weight:
        raise HoldfastError(
            f"{model.name_or_path}: no adapter can hold the replay token of its tied head with a "
            "bias; use --to hf"
        )
    return [_name_of(model, head)]


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


def write_asking(
    backbone: Backbone, settings: Template.Config, max_new_tokens: int, folder: Path
) -> None:
    """Write a model's tokenizer, with its chat template, and ``generation_config.json``.

    For the paper's form the chat template is ours. Raises HoldfastError for a tokenizer written in
    Python, which cannot be made to put the replay token, or nothing, first.
    """
    tokenizer = backbone.tokenizer
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise HoldfastError(
            f"{backbone.model.name_or_path}: its tokenizer, {type(tokenizer).__name__}, is written "
            "in Python, and only those with a tokenizer.json can be exported; ask it here"
        )
    token = backbone.seed_token
    first = "" if token is None else REPLAY_TOKEN
    begin = "" if token is None else f"{REPLAY_TOKEN}:0 "
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin}$A:0",
        pair=f"{begin}$A:0 $B:1",
        special_tokens=[] if token is None else [(REPLAY_TOKEN, token)],
    )
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    template = template_for(settings, backbone)
    if template.form == PAPER:
        tokenizer.chat_template = _chat_template(backbone)
    else:
        tokenizer.chat_template = first + with_one_date(tokenizer.get_chat_template())
    tokenizer.save_pretrained(folder)
    _take_as_written(folder / "tokenizer_config.json")
    greedy(backbone, max_new_tokens).save_pretrained(folder)


def greedy(backbone: Backbone, max_new_tokens: int) -> GenerationConfig:
    """Settings for greedy decoding with Holdfast's stop tokens, not the backbone's own settings."""
    defaults = backbone.model.generation_config
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        bos_token_id=defaults.bos_token_id,
        eos_token_id=sorted(backbone.stop_tokens) or None,
        pad_token_id=backbone.pad_token,
    )


def _take_as_written(path: Path) -> None:
    """Make transformers load ``tokenizer.json`` unchanged: some classes would prepend a token.

    Also pad batches on the left, as a decoder-only model needs.
    """
    settings: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for key in ("add_bos_token", "add_eos_token", "auto_map"):
        settings.pop(key, None)
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _chat_template(backbone: Backbone) -> str | None:
    """The Jinja template; None if no text gives the tokens that Holdfast asks with.

    Some tokenizers mark a space before a text, but not after a special token; for these the
    template writes a space.
    """
    before, _, after = Template().prompt(Item(_MARK, "?")).partition(_MARK)
    prompts = [Template().prompt(Item(question, "?")) for question in _QUESTIONS]
    seed = [] if backbone.seed_token is None else [backbone.seed_token]
    for opening in (REPLAY_TOKEN, f"{REPLAY_TOKEN} ") if seed else ("",):
        if all(
            backbone.tokenize(opening + prompt) == [*seed, *backbone.tokenize(prompt)]
            for prompt in prompts
        ):
            # Jinja reads JSON's string literals.
            begin, end = json.dumps(opening + before), json.dumps(after)
            return f"{_LAST_QUESTION}{{{{- {begin} + last.question | trim + {end} -}}}}"
    return None
