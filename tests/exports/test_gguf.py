"""One file for llama.cpp: read by transformers, and run by llama.cpp itself where it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, Qwen3ForCausalLM

from holdfast.core.errors import HoldfastError
from holdfast.exports import gguf
from holdfast.exports.export import export
from tests.exports.exported import configured, facts, family, learned, saved
from tests.model.chat_models import chat_llama, chat_tokenizer, write_chat_model
from tests.tiny import byte_tokenizer


def directory(place: Path, kind: str) -> Path:
    if kind == "chat llama":
        return write_chat_model(place)
    tokenizer = chat_tokenizer()
    model = family(kind, len(tokenizer))
    if kind == "qwen3":  # transformers reads no other width of a head than Qwen's
        model.config.head_dim = 128
        model = Qwen3ForCausalLM(model.config)
    return saved(place, model, tokenizer)


@pytest.mark.parametrize("kind", ["chat llama", "qwen2", "qwen3", "llama untied"])
def test_every_matrix_and_token_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    """Biases, norms of heads, tied and untied heads; Llamas' rotation in llama.cpp's order."""
    source = directory(tmp_path / "model", kind)
    gguf.convert(source, tmp_path / "model.gguf")
    model: Any = AutoModelForCausalLM.from_pretrained(source)
    read: Any = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf")
    ids = torch.tensor([[5, 9, 2, 30, 7]])
    with torch.no_grad():
        ours, theirs = model(input_ids=ids).logits, read(input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=float(ours.abs().max()) / 100)


def test_a_model_in_bfloat16_is_written_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And in silence, transformers' progress bars included."""
    chat_llama().bfloat16().save_pretrained(tmp_path / "model")
    chat_tokenizer().save_pretrained(tmp_path / "model")
    capsys.readouterr()
    gguf.convert(tmp_path / "model", tmp_path / "model.gguf")
    assert capsys.readouterr() == ("", "")
    read: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    )
    for name, tensor in chat_llama().bfloat16().state_dict().items():
        assert read.state_dict()[name].equal(tensor.float()), name


def test_a_wrong_order_of_rows_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "_interleaved", lambda rows, _: rows)
    source = directory(tmp_path / "model", "chat llama")
    with pytest.raises(HoldfastError, match=r"q_proj\.weight is read otherwise"):
        gguf.convert(source, tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("split", "name"),
    [
        (pre_tokenizers.ByteLevel(add_prefix_space=False), "gpt-2"),
        (
            pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            ),
            "smollm",
        ),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        (pre_tokenizers.Whitespace(), None),
    ],
)
def test_how_a_tokenizer_splits(split: Any, name: str | None) -> None:
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = split
    if name is not None:
        assert gguf._splitting(tokenizer) == name
        return
    with pytest.raises(HoldfastError, match=r"llama\.cpp has no name for"):
        gguf._splitting(tokenizer)


def test_a_tokenizer_without_merges_is_no_byte_pair_encoding() -> None:
    with pytest.raises(HoldfastError, match=r"llama\.cpp has no name for"):
        gguf._splitting(byte_tokenizer())


def test_what_transformers_cannot_read_is_said(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", family("qwen3", len(chat_tokenizer())), chat_tokenizer())
    with pytest.raises(HoldfastError, match="transformers cannot read what was written"):
        gguf.convert(source, tmp_path / "model.gguf")
    gguf.convert(source, tmp_path / "model.gguf", checked=False)


def test_biases_that_transformers_does_not_read_are_said(tmp_path: Path) -> None:
    config = chat_llama().config
    config.attention_bias = True
    source = saved(tmp_path / "model", LlamaForCausalLM(config), chat_tokenizer())
    with pytest.raises(HoldfastError, match=r"q_proj\.bias is read otherwise"):
        gguf.convert(source, tmp_path / "model.gguf")


def test_what_is_not_written_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="kind gpt2 are not written; give --to hf"):
        gguf.convert(directory(tmp_path / "gpt2", "gpt2"), tmp_path / "model.gguf")
    model = chat_llama()
    model.config.hidden_act = "gelu"
    model.save_pretrained(tmp_path / "gelu")
    chat_tokenizer().save_pretrained(tmp_path / "gelu")
    with pytest.raises(HoldfastError, match="the activation gelu is not written"):
        gguf.convert(tmp_path / "gelu", tmp_path / "model.gguf")
    model.config.hidden_act = "silu"
    model.config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    model.save_pretrained(tmp_path / "scaled")
    chat_tokenizer().save_pretrained(tmp_path / "scaled")
    with pytest.raises(HoldfastError, match="rotary embeddings of the kind linear"):
        gguf.convert(tmp_path / "scaled", tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def run_by_llama_cpp(file: Path) -> Any:
    llama = pytest.importorskip("xllamacpp", reason="pip install xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = str(file)
    settings.n_ctx, settings.n_parallel, settings.cpuparams.n_threads = 256, 1, 1
    return llama.Server(settings)


@pytest.mark.parametrize("form", ["chat", "paper"])
def test_llama_cpp_answers_as_the_run_did(form: str, tmp_path: Path) -> None:
    """A run on a chat model, exported, loaded by llama.cpp and asked through its own template."""
    config = configured(
        write_chat_model(tmp_path / "base"),
        facts(tmp_path),
        "replay_merge" if form == "paper" else "merge",
        template={"form": form, "append_eos": True},
        lora={"rank": 8, "alpha": 16, "dropout": 0.0},
        optim={"epochs": 30, "lr": 0.02},
    )
    run = learned(tmp_path / "run", config, 1)
    export(run, "gguf", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", "model.gguf"]
    assert "llama-cli -m" in (tmp_path / "out" / "README.md").read_text()
    export(run, "hf", tmp_path / "hf", checked=False)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "hf")
    server = run_by_llama_cpp(tmp_path / "out" / "model.gguf")
    answers = []
    for question in ("red", "sky", "tin"):
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        written = model.generate(**ids, max_new_tokens=12, do_sample=False)
        ours = tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
        answer = server.handle_chat_completions(
            {"messages": chat, "temperature": 0, "max_tokens": 12, "cache_prompt": False}
        )
        theirs = answer["choices"][0]["message"]["content"]
        answers.append((ours.strip(), theirs.strip()))
    assert all(ours == theirs for ours, theirs in answers), answers
    assert {ours for ours, _ in answers} == (
        {"a", "b", "c"} if form == "chat" else {rf"\boxed{{{letter}}}" for letter in "abc"}
    )
