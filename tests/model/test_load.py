"""What is loaded is plain, frozen and quiet; what cannot be adapted is one line."""

from __future__ import annotations

import json
import os
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from holdfast.core.errors import HoldfastError
from holdfast.model import load
from holdfast.model.layers import keeps_keys_and_values, maps_of_layers, shallow
from holdfast.model.load import load_model, read_config
from holdfast.model.sources import fingerprint as digests
from holdfast.model.sources.fetch import fetch
from holdfast.model.sources.fingerprint import fingerprint
from tests.model.standins import tiny_model, tiny_tokenizer, write_gguf
from tests.refused import line_of
from tests.tiny import tiny_gemma_of_images


@pytest.fixture
def directory(cache: Path, tmp_path: Path) -> Path:
    tiny_model().to(torch.bfloat16).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


one_line = partial(line_of, load_model)


def test_a_model_is_float32_frozen_and_in_evaluation_mode(directory, capfd) -> None:
    model, tokenizer = load_model(directory)
    assert not model.training
    expected = tiny_model().to(torch.bfloat16).state_dict()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32 and not parameter.requires_grad
        assert torch.equal(parameter, expected[name].float())
    assert tokenizer("the").input_ids == tiny_tokenizer()("the").input_ids
    assert capfd.readouterr() == ("", "")


def test_a_converted_file_is_loaded_by_its_name(cache, tmp_path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", seed=1)
    assert one_line(path) == f"{path}: is not here; `holdfast fetch {path}` makes it ready"
    fetch(path)
    model, _ = load_model(path)
    assert torch.equal(model.model.norm.weight, tiny_model(1).model.norm.weight)


def test_the_maps_of_the_layers() -> None:
    names = maps_of_layers(tiny_model())
    assert len(names) == 2 * 7 and names[0] == "model.layers.0.self_attn.q_proj"
    small = {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9}
    assert "transformer.h.1.mlp.c_fc" in maps_of_layers(GPT2LMHeadModel(GPT2Config(**small)))
    bloom = BloomConfig(hidden_size=8, n_layer=2, n_head=2, vocab_size=9)
    assert "transformer.h.0.mlp.dense_h_to_4h" in maps_of_layers(BloomForCausalLM(bloom))
    mamba = MambaConfig(hidden_size=8, num_hidden_layers=2, state_size=4, vocab_size=9)
    assert "backbone.layers.0.mixer.in_proj" in maps_of_layers(MambaForCausalLM(mamba))


def test_an_image_tower_of_as_many_layers_is_neither_adapted_nor_cut() -> None:
    model = tiny_gemma_of_images()
    names = maps_of_layers(model)
    assert len(names) == 2 * 7
    assert all(name.startswith("model.language_model.layers.") for name in names)
    with shallow(model, 1):
        assert len(model.model.language_model.layers) == 1
        assert len(model.model.vision_tower.encoder.layers) == 2


def test_a_model_without_linear_maps_cannot_be_adapted(directory, monkeypatch) -> None:
    def bare(*_: object, **__: object) -> tuple[nn.Module, dict[str, set[str]]]:
        model = tiny_model()
        model.model.layers = nn.ModuleList([nn.LayerNorm(4), nn.LayerNorm(4)])
        return model, {"missing_keys": set(), "mismatched_keys": set()}

    monkeypatch.setattr(load.AutoModelForCausalLM, "from_pretrained", bare)
    assert "cannot be adapted: the layers of its LlamaForCausalLM hold no" in one_line(directory)


def test_a_model_that_keeps_a_state_is_refused(cache, tmp_path) -> None:
    """Also one of which a layer has keys and values, as the others here."""
    small = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9}
    mamba = MambaForCausalLM(MambaConfig(**small, state_size=4))
    heads = {"intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
    kinds = ["conv", "full_attention"]
    hybrid = Lfm2ForCausalLM(Lfm2Config(**small, **heads, layer_types=kinds, pad_token_id=0))
    for model in (mamba, hybrid):
        place = tmp_path / type(model).__name__
        model.save_pretrained(place)
        tiny_tokenizer().save_pretrained(place)
        assert f"is a {place.name}, which keeps a state of what it has read" in one_line(place)
    gemma = Gemma3TextConfig(**small, **heads, head_dim=4, sliding_window=4, pad_token_id=0)
    assert keeps_keys_and_values(Gemma3ForCausalLM(gemma))
    bloom = BloomForCausalLM(BloomConfig(hidden_size=8, n_layer=2, n_head=2, vocab_size=9))
    assert keeps_keys_and_values(bloom)
    assert keeps_keys_and_values(tiny_model())


def test_an_adapter_beside_a_model_is_refused(directory) -> None:
    with warnings.catch_warnings():  # PEFT reads what transformers has renamed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        adapted = get_peft_model(tiny_model(), LoraConfig(target_modules="all-linear"))
    adapted.save_pretrained(directory)  # beside a model, which transformers would load with it
    for weights in ("adapter_model.safetensors", "adapter_model.bin"):
        (directory / weights).write_bytes(b"no pickle")
        assert "holds an adapter beside the model; merge it" in one_line(directory)


def test_weights_that_the_files_lack_are_not_drawn_at_random(directory) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))
    assert "its files lack model.layers." in one_line(directory)
    (directory / "config.json").write_text(json.dumps(config | {"intermediate_size": 5}))
    assert "has the shape" in one_line(directory)


def test_a_tokenizer_of_another_model_is_refused(directory) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["more"])
    tokenizer.save_pretrained(directory)
    assert one_line(directory).startswith(f"{directory}: its tokenizer has token ")


def test_damaged_weights_and_an_unknown_kind_are_one_line(directory) -> None:
    weights = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(weights[:1000])
    assert "model.safetensors: is damaged (" in one_line(directory)
    (directory / "model.safetensors").write_bytes(weights)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text('{"model_type": "never heard of"}')
    assert "no causal language model could be loaded" in one_line(directory)
    with pytest.raises(HoldfastError, match="no configuration could be loaded"):
        read_config(directory)
    (directory / "config.json").write_text("[]")
    assert "is no configuration of a model" in one_line(directory)
    (directory / "config.json").write_text(json.dumps(config | {"num_attention_heads": "two"}))
    assert "model could be loaded (Validation error for field" in one_line(directory)


def test_a_fingerprint_is_of_the_weights_and_the_configuration(directory) -> None:
    before = fingerprint(directory)
    assert before == fingerprint(str(directory))
    config = json.loads((directory / "config.json").read_text())
    for changed, same in [
        ({"transformers_version": "0", "_name_or_path": "elsewhere"}, True),
        ({"rms_norm_eps": 0.5}, False),
    ]:
        (directory / "config.json").write_text(json.dumps({**config, **changed}))
        assert (fingerprint(directory) == before) is same
    (directory / "config.json").write_text(json.dumps(config))
    tiny_model(seed=1).to(torch.bfloat16).save_pretrained(directory)
    assert fingerprint(directory) != before
    before = fingerprint(directory)
    (directory / "model.safetensors").rename(directory / "other.safetensors")
    assert fingerprint(directory) != before  # shards that change places are another model


def test_weights_are_read_once_for_their_fingerprint(directory, monkeypatch) -> None:
    before = fingerprint(directory)
    monkeypatch.setattr(digests, "sha256_of_file", lambda path: pytest.fail("read again"))
    assert fingerprint(directory) == before
    monkeypatch.undo()
    os.utime(directory / "model.safetensors", ns=(1, 1))
    seen: list[Path] = []
    monkeypatch.setattr(digests, "sha256_of_file", lambda path: seen.append(path) or "0")
    assert fingerprint(directory) != before and len(seen) == 1


def test_the_cache_keeps_the_fingerprint_of_its_models(cache, tmp_path, monkeypatch) -> None:
    made = fetch(write_gguf(tmp_path / "tiny.gguf"))
    expected = digests.computed_fingerprint(made)
    monkeypatch.setattr(digests, "computed_fingerprint", lambda *_: pytest.fail("read again"))
    assert fingerprint(made) == expected
