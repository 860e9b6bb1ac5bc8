"""Load the stream of a configuration; check, without weights, that a backbone can learn it."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.model.backbone import Backbone
from holdfast.model.chat import template_of
from holdfast.model.hardware import check_available, device_of
from holdfast.model.layers import context_of, target_maps
from holdfast.model.load import load_shape, load_tokenizer
from holdfast.model.sources.check import check_vocabulary
from holdfast.model.sources.fetch import find, has_short_name, is_made_ready
from holdfast.streams import Stream, load_stream


def stream_of(config: RunConfig) -> Stream:
    """Load the stream that a configuration names; :func:`fitting` may drop items."""
    return fitting(config, load_stream(config.stream))


def fitting(config: RunConfig, stream: Stream, backbone: Backbone | None = None) -> Stream:
    """With ``template.overlong: drop`` the stream without its overlong items, otherwise all of it.

    backbone: the one that will learn it; None: load its tokenizer.
    Raises HoldfastError if a task has no other items.
    """
    if config.template.overlong != "drop":
        return stream
    named = config.backbone
    tokenizer = backbone.tokenizer if backbone else load_tokenizer(named.name, named.revision)
    seed = 0 if config.has_replay_token else None  # any token: only lengths count
    return template_of(config.template, tokenizer).fitting(stream, tokenizer, seed, eos=0)


def check_without_weights(config: RunConfig, stream: Stream, learned: int = 0) -> str | None:
    """Check the device, the adapted maps and the length of every item, and load no weights.

    learned: how many tasks have been learned already.
    Returns None, or why maps and lengths could not be checked: the backbone is not fetched yet, or
    cannot be read from the hub. Raises HoldfastError for what a run would refuse.
    """
    device_of(config.backbone)
    check_available(config.backbone)
    name, revision = config.backbone.name, config.backbone.revision
    is_there = has_short_name(name) or Path(name).exists()
    if is_made_ready(name) and is_there and find(name) is None:
        return f"{name} is not here; `holdfast fetch {name}` makes it ready"
    try:
        model, tokenizer = load_shape(name, revision), load_tokenizer(name, revision)
    except HoldfastError as error:
        if is_made_ready(name) or Path(name).exists() or Path(name).is_absolute():
            raise
        return str(error).partition(";")[0]
    check_vocabulary(model, tokenizer)
    target_maps(model, config.lora)
    seed = 0 if config.has_replay_token else None
    eos = tokenizer.eos_token_id if config.template.append_eos else None
    template_of(config.template, tokenizer).check_stream(
        stream,
        tokenizer,
        seed,
        eos,
        longest_answer=config.evaluation.max_new_tokens,
        learned=learned,
        context=context_of(model.config),
    )
    return None


def items_in(stream: Stream) -> int:
    """The number of items of a stream."""
    return sum(len(task.items) for task in stream.tasks)
