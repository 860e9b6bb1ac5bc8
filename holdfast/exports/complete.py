"""Export a complete model, with all low-rank updates merged into its matrices."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from holdfast.backbone.model import Backbone
from holdfast.exports.asking import Asking, greedy, write_asking
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit


def write_model(recorded: Recorded, commit: Commit, folder: Path) -> Asking:
    """Write a commit's model with ``save_pretrained``; return how to ask it."""
    backbone = _folded(recorded, commit)
    gc.collect()  # frees the learner: it has reference cycles and packs matrices in one storage
    _apart(backbone.model)
    limit = recorded.config.evaluation.max_new_tokens
    backbone.model.generation_config = greedy(backbone, limit)
    backbone.model.save_pretrained(folder)
    return write_asking(backbone, limit, folder)


def _folded(recorded: Recorded, commit: Commit) -> Backbone:
    """The learner's model as a backbone with plain modules, all updates merged."""
    config = recorded.config
    if config.allocation().after_task == "keep":
        # This merge is not a step of the method, so it is done in float32.
        lora = config.lora.model_copy(update={"merge_precision": "float32"})
        recorded = replace(recorded, config=config.model_copy(update={"lora": lora}))
    backbone = recorded.learner(commit).backbone
    backbone.merge_and_unload()
    return backbone


def _apart(model: nn.Module) -> None:
    """Give every parameter its own storage, one at a time: safetensors refuses views.

    ``save_pretrained`` does so too, but holds a second copy of all parameters at once.
    """
    for parameter in model.parameters():
        if parameter.untyped_storage().nbytes() > parameter.nbytes:
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
