"""Convert a GGUF file to a directory that any program loads with ``from_pretrained``."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils

from holdfast.core.errors import HoldfastError, described
from holdfast.core.reporting import NoteReport
from holdfast.model.quiet import quiet
from holdfast.model.sources.cache import cache_directory, unwritable

_CONVERTING = "converting (20 seconds for 100 MB)"  # measured on one core


def convert(gguf: Path, folder: Path, report: NoteReport) -> None:
    """Write the model of a GGUF file, with its tokenizer and chat template, into ``folder``.

    Weights are stored in the narrowest of bfloat16, float16 and float32 that holds each of them
    exactly; only float32 does for Q4_1 and most other quantized types. Raises HoldfastError for a
    file that transformers cannot read, and for a full disk.
    """
    size = gguf.stat().st_size
    report(0, size, _CONVERTING)
    try:
        with quiet(), no_bar_of_tensors(), _alone_in_a_folder(gguf) as place:
            model: Any = AutoModelForCausalLM.from_pretrained(
                place.parent, gguf_file=place.name, dtype=torch.float32
            )
            report(size * 3 // 4, size, _CONVERTING)
            tokenizer: Any = AutoTokenizer.from_pretrained(place.parent, gguf_file=place.name)
    # The reader's exceptions for damaged files are of every kind: ValueError, IndexError,
    # struct.error, UnicodeDecodeError, AttributeError.
    except Exception as error:
        raise HoldfastError(
            f"{gguf}: cannot be converted ({described(error, 200)}); it has to be the GGUF file of "
            "a causal language model whose architecture transformers reads"
        ) from error
    _name_special_tokens(tokenizer, model.config)
    plain = _without_quantization(model)
    report(size * 19 // 20, size, _CONVERTING)
    try:
        with quiet():
            plain.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except (OSError, SafetensorError) as error:
        raise unwritable(cache_directory(), error) from error
    report(size, size, _CONVERTING)


def _name_special_tokens(tokenizer: Any, config: Any) -> None:
    """Set a tokenizer's special tokens to those whose ids are in the configuration.

    Older versions of transformers choose others for some files, such as another end of sequence.
    """
    for name in ("bos", "eos", "unk", "pad"):
        number = getattr(config, f"{name}_token_id", None)
        if isinstance(number, int) and 0 <= number < len(tokenizer):
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))


def _without_quantization(model: Any) -> Any:
    """The same weights in a model whose configuration does not mention the GGUF file."""
    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    state = model.state_dict()
    dtype = _narrowest(state)
    state = {name: tensor.to(dtype) for name, tensor in state.items()}
    with torch.device("meta"):
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(state, assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain


def _narrowest(state: dict[str, torch.Tensor]) -> torch.dtype:
    """The first of bfloat16, float16 and float32 that holds every weight exactly."""
    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(weight, weight.to(dtype).to(weight.dtype)) for weight in state.values()):
            return dtype
    return torch.float32


@contextmanager
def _alone_in_a_folder(gguf: Path) -> Iterator[Path]:
    """Yield a link to the file in a temporary folder without other configurations or tokenizers."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        place = Path(folder) / "model.gguf"
        try:
            place.symlink_to(os.path.realpath(gguf))
        except OSError:  # no links on this file system
            shutil.copyfile(gguf, place)
        yield place


@contextmanager
def no_bar_of_tensors() -> Iterator[None]:
    """Suppress transformers' progress bar for a GGUF file; no setting of transformers does."""
    if not hasattr(modeling_gguf_pytorch_utils, "tqdm"):
        yield
        return
    bar = modeling_gguf_pytorch_utils.tqdm
    modeling_gguf_pytorch_utils.tqdm = lambda tensors, **_: tensors
    try:
        yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = bar
