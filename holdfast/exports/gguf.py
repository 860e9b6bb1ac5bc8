"""Write a complete model as one GGUF file, for llama.cpp, Ollama and LM Studio.

The file has the model's settings, its tokenizer with the chat template, and its matrices: bfloat16
ones as they are, others in float16. Only Llamas and Qwens can be written, with a byte-level
tokenizer whose splitting llama.cpp knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
    quants,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.model.quiet import quiet
from holdfast.model.sources.convert import no_bar_of_tensors

FILE = "model.gguf"
_ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {_WORDS % r"\p{N}": "qwen2", _WORDS % r"\p{N}{1,3}": "llama-bpe"}
# float16's rounding: half a unit in its last place, and its smallest number.
_RELATIVE, _ABSOLUTE = 2.0**-11, 2.0**-24


def convert(source: Path, file: Path, *, checked: bool = True) -> None:
    """Write the complete model of a directory, as ``save_pretrained`` leaves it, into one file.

    checked: read the file with transformers and compare every matrix and the tokens of a text.
    Raises HoldfastError for a model that cannot be written, and for another one that is read.
    """
    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(source)
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
    _write(model, tokenizer, file)
    if checked:
        _check(model, tokenizer, file)


def only_the_file(folder: Path, *, checked: bool = True) -> None:
    """Replace the model in a directory by its GGUF file, as :func:`convert`; README.md stays."""
    convert(folder, folder / FILE, checked=checked)
    for path in folder.iterdir():
        if path.name not in (FILE, "README.md"):
            path.unlink()


def _write(model: Any, tokenizer: Any, file: Path) -> None:
    config = model.config
    arch = _ARCHITECTURES.get(config.model_type)
    if arch is None:
        raise _refusal(f"models of the kind {config.model_type} are not written")
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise _refusal(f"rotary embeddings of the kind {rope['rope_type']} are not written")
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise _refusal("attention within a sliding window is not written")
    if config.hidden_act != "silu":
        raise _refusal(f"the activation {config.hidden_act} is not written")
    splitting = _splitting(tokenizer)
    is_bfloat16 = model.dtype == torch.bfloat16
    writer = GGUFWriter(file, MODEL_ARCH_NAMES[arch])
    _settings(writer, config, rope)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16 if is_bfloat16 else LlamaFileType.MOSTLY_F16)
    _vocabulary(writer, model, tokenizer, splitting)
    kind = GGMLQuantizationType.BF16 if is_bfloat16 else GGMLQuantizationType.F16
    for name, tensor in _tensors(model, arch):
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor.numpy())
        else:
            writer.add_tensor(name, quants.quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _settings(writer: GGUFWriter, config: Any, rope: dict[str, Any]) -> None:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(rope.get("rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _splitting(tokenizer: Any) -> str:
    """llama.cpp's name for the way in which a tokenizer splits a text into words."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    described = json.loads(backend.to_str()) if backend is not None else {}
    parts = described.get("pre_tokenizer") or {}
    parts = parts["pretokenizers"] if parts.get("type") == "Sequence" else [parts]
    *first, last = parts
    model = described.get("model", {})
    is_bpe = model.get("type") == "BPE" and model["merges"] and last.get("type") == "ByteLevel"
    if is_bpe and not last["add_prefix_space"]:
        if last["use_regex"] and not first:
            return "gpt-2"
        if last["use_regex"] and first == [{"type": "Digits", "individual_digits": True}]:
            return "smollm"
        patterns = [part.get("pattern", {}).get("Regex") for part in first]
        if not last["use_regex"] and len(patterns) == 1 and patterns[0] in _SPLITS:
            return _SPLITS[patterns[0]]
    raise _refusal("its tokenizer splits texts in a way that llama.cpp has no name for")


def _vocabulary(writer: GGUFWriter, model: Any, tokenizer: Any, splitting: str) -> None:
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for number in range(model.config.vocab_size):
        token = tokenizer.convert_ids_to_tokens(number) if number < len(tokenizer) else None
        tokens.append(f"[PAD{number}]" if token is None else token)
        if token is None:
            kinds.append(TokenType.UNUSED)
        elif number in added:
            control = added[number].special
            kinds.append(TokenType.CONTROL if control else TokenType.USER_DEFINED)
        else:
            kinds.append(TokenType.NORMAL)
    merges = described["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    for add, special in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_eot_token_id, _end_of_turn(model, tokenizer)),
    ):
        if special is not None:
            add(special)
    first = tokenizer("a").input_ids[0]
    writer.add_add_bos_token(first == tokenizer.bos_token_id and first is not None)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.get_chat_template())


def _end_of_turn(model: Any, tokenizer: Any) -> int | None:
    """A token that ends an answer, other than the end of a sequence; None if there is none."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return next((int(end) for end in ends if end not in (None, tokenizer.eos_token_id)), None)


def _tensors(model: Any, arch: MODEL_ARCH) -> Iterator[tuple[str, Tensor]]:
    """Every matrix and vector in float32, by GGUF's names."""
    config = model.config
    names = get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if gguf_name is None:
            raise _refusal(f"GGUF has no name for {name}")
        wide = tensor.detach().float().contiguous()
        part = name.split(".")[-2]
        if arch == MODEL_ARCH.LLAMA and part in heads:
            wide = _interleaved(wide, heads[part])
        yield gguf_name, wide


def _interleaved(rows: Tensor, heads: int) -> Tensor:
    """Each head's rows in the order of llama.cpp's rotation, which pairs neighbours, not halves."""
    paired = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape).contiguous()


def _check(model: Any, tokenizer: Any, file: Path) -> None:
    try:
        with quiet(), no_bar_of_tensors():
            reloaded: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.float32
            )
            its_tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = reason_of(error)
        raise HoldfastError(
            f"{file}: transformers cannot read what was written ({reason}); nothing is kept; "
            "--no-check writes it all the same"
        ) from error
    tensors = reloaded.state_dict()
    for name, tensor in model.state_dict().items():
        theirs, ours = tensors.get(name), tensor.float().numpy()
        if (
            theirs is None
            or theirs.shape != tensor.shape
            or not np.allclose(ours, theirs.float().numpy(), _RELATIVE, _ABSOLUTE)
        ):
            raise HoldfastError(
                f"{file}: {name} is read otherwise than it was written; nothing is kept, please "
                "report it; --no-check writes it all the same"
            )
    text = "Who keeps Zoë's 3rd lighthouse?\n  2024 灯台"
    if tokenizer(text, add_special_tokens=False).input_ids != (
        its_tokenizer(text, add_special_tokens=False).input_ids
    ):
        raise HoldfastError(
            f"{file}: its tokenizer reads a text as other tokens; nothing is kept, please report "
            "it; --no-check writes it all the same"
        )


def _refusal(why: str) -> HoldfastError:
    return HoldfastError(f"--to gguf: {why}; give --to hf")
