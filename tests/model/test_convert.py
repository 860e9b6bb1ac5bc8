"""A converted model is the model of the GGUF file, to the bit, and as small as that allows."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.model.sources.convert import convert
from tests.model.standins import tiny_model, tiny_tokenizer, write_gguf


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory):
    """Convert the tiny model stored in a given type; give the directory."""
    done: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in done:
            folder = tmp_path_factory.mktemp(kind)
            (folder / "out").mkdir()
            convert(write_gguf(folder / "tiny.gguf", kind), folder / "out", lambda *_: None)
            done[kind] = folder / "out"
        return done[kind]

    return of


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[5, 9, 200, 17, 1, 30]])).logits


def test_the_model_is_the_one_that_was_written(converted) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(converted("F32"), dtype=torch.float32)
    assert torch.equal(logits(loaded), logits(tiny_model()))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("F32", torch.float32),
        ("F16", torch.float16),
        ("BF16", torch.bfloat16),
        ("Q4_1", torch.float32),
    ],
)
def test_every_weight_is_exact_in_the_narrowest_type(converted, kind: str, dtype) -> None:
    stored = load_file(converted(kind) / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    for name, weights in tiny_model().state_dict().items():
        if name not in stored:
            assert name == "lm_head.weight"  # the same as the embedding
            continue
        of = gguf.GGMLQuantizationType["F32" if weights.dim() == 1 else kind]
        expected = gguf.dequantize(gguf.quantize(weights.numpy(), of), of)
        # llama.cpp has the rows of these two in another order; the blocks are within a row.
        assert torch.equal(stored[name].float(), torch.from_numpy(expected)), name


def test_no_trace_of_the_file_is_left_and_the_tokenizer_comes_along(converted) -> None:
    config = json.loads((converted("Q4_1") / "config.json").read_text())
    assert "quantization_config" not in config
    loaded, ours = AutoTokenizer.from_pretrained(converted("Q4_1")), tiny_tokenizer()
    text = "the théâtre, 7 – <|reply|>ok"
    assert loaded(text).input_ids == ours(text).input_ids
    turn = [{"role": "user", "content": "who?"}]
    assert loaded.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) == (
        "<|user|>who?<|reply|>"
    )
    assert [loaded.bos_token, loaded.eos_token, loaded.pad_token] == [
        "<|user|>",
        "<|endoftext|>",
        "<|endoftext|>",
    ]
    generation = json.loads((converted("Q4_1") / "generation_config.json").read_text())
    assert generation["eos_token_id"] == 0


def test_nothing_beside_the_file_is_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A configuration and a tokenizer in its folder are not its own; nothing is printed."""
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "other"}')
    (tmp_path / "out").mkdir()
    convert(tmp_path / "tiny.gguf", tmp_path / "out", lambda *_: None)
    assert capfd.readouterr() == ("", "")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"
    assert "other" not in (tmp_path / "out" / "chat_template.jinja").read_text()


@pytest.mark.parametrize("damage", ["not a GGUF", "cut", "unknown architecture"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, architecture="xyz" if damage == "unknown architecture" else "llama")
    if damage == "not a GGUF":
        path.write_bytes(b"something else entirely")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:20_000])
    (tmp_path / "out").mkdir()
    with pytest.raises(HoldfastError, match=r"tiny\.gguf: cannot be converted") as raised:
        convert(path, tmp_path / "out", lambda *_: None)
    assert "\n" not in str(raised.value)
