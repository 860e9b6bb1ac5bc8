"""Exports against the trajectories they come from, as loaded and asked without Holdfast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from holdfast import HoldfastError, Trajectory
from holdfast.evaluation.boxed import extract_boxed
from holdfast.exports.export import export
from holdfast.learning.recorded import Recorded
from holdfast.model.generation.decoding import decode_greedily
from holdfast.streams import Item, Template
from tests.exports.exported import (
    QUESTIONS,
    TOKENS,
    answers,
    configured,
    family,
    generated,
    learned,
    load_hf,
    load_peft,
    logits,
    saved,
)
from tests.tiny import END, byte_tokenizer

# Every rule, with and without replay and a weight anchor; `kfac` has the replay token alone.
METHODS = ["vanilla", "replay_merge", "olora", "si_replay_osrm", "kfac_merge"]
# Tied and untied heads, biases, and Conv1D, which every rule must turn round; earlier boundaries.
MODELS = [
    ("qwen2", "replay", None),
    ("qwen3", "si_replay_merge", None),
    ("llama untied", "replay_olora", None),
    ("phi", "replay_merge", None),
    *(("gpt2", method, None) for method in ("si_replay_merge", "replay_olora", "osrm")),
    ("qwen3", "merge", 1),
    ("qwen3", "replay_olora", 1),
]
IDS = [5, 9, 2, 30, 7]
ROUNDING = {"float64": 1e-12, "float32": 1e-5}  # of the largest logit


def learned_backbone(directory: Path, after: int | None = None) -> Any:
    """The trajectory's own model."""
    recorded = Recorded.read(directory)
    return recorded.learner(recorded.boundary(after)).backbone


@torch.no_grad()
def own_logits(backbone: Any, ids: list[int]) -> torch.Tensor:
    output: torch.Tensor = backbone.logits(backbone.hidden(torch.tensor([ids])))
    return output[0]


def same(theirs: torch.Tensor, ours: torch.Tensor, precision: str) -> None:
    bound = ROUNDING[precision] * float(ours.abs().max())
    assert theirs.shape == ours.shape and theirs.dtype == ours.dtype
    assert float((theirs - ours).abs().max()) <= bound


@pytest.mark.parametrize("method", METHODS)
def test_plain_generate_recalls_what_the_matrix_says(
    method: str, stream: Path, backbone_directory: Path, tmp_path: Path
) -> None:
    """Of every rule, with and without replay: the same texts, and the last row of the matrix."""
    config = configured(
        backbone_directory,
        stream,
        method,
        lora={"rank": 4, "alpha": 8, "dropout": 0.0},
        optim={"epochs": 35},
    )
    directory = learned(tmp_path / "run", config)
    row = [Trajectory(config, directory).matrix[2, task] for task in (1, 2)]
    assert sum(row) > 0
    backbone = learned_backbone(directory)
    seed = [] if backbone.seed_token is None else [backbone.seed_token]
    prompts = [
        seed + backbone.tokenize(f"Question: {question}\nAnswer:")
        for task in QUESTIONS
        for question, _ in task
    ]
    rests = decode_greedily(
        backbone,
        prompts,
        [16] * 6,
        lambda *_: False,
        tokens_in_cache=config.evaluation.tokens_in_cache,
    )
    expected = [backbone.decode(rest) for rest in rests]
    export(directory, "hf", tmp_path / "hf", checked=False)
    export(directory, "peft", tmp_path / "peft", checked=False)
    for loaded in (
        load_hf(tmp_path / "hf"),
        load_peft(tmp_path / "peft", "float32"),
    ):
        texts = answers(*loaded)
        assert [text for task in texts for text in task] == expected
        for task, (replies, asked) in enumerate(zip(texts, QUESTIONS, strict=True)):
            right = [
                extract_boxed(text) == answer
                for text, (_, answer) in zip(replies, asked, strict=True)
            ]
            assert sum(right) / len(right) == row[task]


@pytest.mark.parametrize(("name", "method", "after"), MODELS)
def test_logits_are_the_trajectorys(
    name: str, method: str, after: int | None, stream: Path, tmp_path: Path
) -> None:
    """In float64, to rounding, after the last task or an earlier one."""
    backbone = saved(tmp_path / "backbone", family(name))
    settings = {"backbone": {"precision": "float64"}}
    directory = learned(tmp_path / "run", configured(backbone, stream, method, **settings))
    ours = learned_backbone(directory, after)
    ids = IDS if ours.seed_token is None else [ours.seed_token, *IDS]
    expected = own_logits(ours, ids)
    if after is None:
        other = logits(family(name).double(), IDS)
    else:
        other = own_logits(learned_backbone(directory), IDS)
    change = own_logits(ours, IDS)[:, :TOKENS] - other[:, :TOKENS]
    assert float(change.abs().max()) > (0.05 if after is None else 0.01)
    export(directory, "hf", tmp_path / "hf", after, checked=False)
    same(logits(load_hf(tmp_path / "hf")[0], ids), expected, "float64")
    export(directory, "peft", tmp_path / "peft", after)
    same(logits(load_peft(tmp_path / "peft", "float64")[0], ids), expected, "float64")


@pytest.mark.parametrize(
    ("name", "rows"), [("qwen3", TOKENS), ("qwen3", 300), ("llama untied", TOKENS)]
)
def test_a_trained_seed_row_is_exported(rows: int, name: str, stream: Path, tmp_path: Path) -> None:
    """Its input row is the trained one, its output row is not, though the tables be tied."""
    backbone = saved(tmp_path / "backbone", family(name, rows))
    config = configured(backbone, stream, "replay_merge", replay={"trainable_seed_row": True})
    directory = learned(tmp_path / "run", config)
    ours = learned_backbone(directory)
    token = ours.seed_token
    table = ours.model.get_input_embeddings()
    assert float((table.row.detach() - table.weight[token]).abs().max()) > 1e-3
    export(directory, "hf", tmp_path / "hf", checked=False)
    export(directory, "peft", tmp_path / "peft")
    for model, _ in (load_hf(tmp_path / "hf"), load_peft(tmp_path / "peft", "float32")):
        same(logits(model, [token, *IDS]), own_logits(ours, [token, *IDS]), "float32")


def test_bfloat16_is_what_it_learned_in(stream: Path, tmp_path: Path) -> None:
    """The precision on record, not that of this machine; the same weights, bit for bit."""
    backbone = saved(tmp_path / "backbone", family("qwen3"))
    settings = {"backbone": {"precision": "bfloat16"}}
    directory = learned(tmp_path / "run", configured(backbone, stream, "replay_merge", **settings))
    config = directory / "config.json"
    text = config.read_text()
    record = json.loads(text)
    record["config"]["backbone"]["precision"] = "auto"
    config.write_text(json.dumps(record))
    assert Recorded.read(directory).config.backbone.precision == "bfloat16"
    export(directory, "hf", tmp_path / "hf", checked=False)
    model, _ = load_hf(tmp_path / "hf")
    assert model.dtype == torch.bfloat16
    config.write_text(text)
    ours = learned_backbone(directory).model
    for name in ("q_proj", "o_proj"):
        layer = getattr(ours.model.layers[0].self_attn, name)
        theirs = getattr(model.model.layers[0].self_attn, name)
        assert torch.equal(theirs.weight, layer.get_base_layer().weight)


def test_a_shared_workspace_is_folded_in_float32(stream: Path, tmp_path: Path) -> None:
    """Rounded once, whatever the precision of the method's own merges."""
    backbone = saved(tmp_path / "backbone", family("qwen3"))
    settings = {"backbone": {"precision": "bfloat16"}, "lora": {"merge_precision": "model"}}
    directory = learned(tmp_path / "run", configured(backbone, stream, "vanilla", **settings))
    export(directory, "hf", tmp_path / "hf", checked=False)
    model, _ = load_hf(tmp_path / "hf")
    recorded = Recorded.read(directory)
    workspace = recorded.learner(recorded.last).workspace
    for name, layer in workspace.layers.items():
        wide = layer.weight.float() + layer.scale * (layer.lora_B @ layer.lora_A)
        assert torch.equal(model.get_submodule(name).weight, wide.bfloat16())


def test_the_backbones_own_habits_do_not_come_along(stream: Path, tmp_path: Path) -> None:
    """A tokenizer that puts a token first, a model that samples and repeats nothing."""
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.add_bos_token = True
    assert tokenizer("a")["input_ids"][0] == 0
    model = family("llama untied")
    model.generation_config.update(do_sample=True, temperature=3.0, repetition_penalty=9.0)
    backbone = saved(tmp_path / "backbone", model, tokenizer)
    for method, first in (("vanilla", []), ("replay", [TOKENS])):
        directory = learned(tmp_path / method, configured(backbone, stream, method), 1)
        for to in ("hf", "peft"):
            out = tmp_path / f"{method}-{to}"
            export(directory, to, out)
            loaded = load_hf(out) if to == "hf" else load_peft(out, "float32")
            assert loaded[1]("a")["input_ids"] == [*first, tokenizer.convert_tokens_to_ids("a")]
            assert loaded[1].decode(loaded[1]("a")["input_ids"], skip_special_tokens=True) == "a"
            settings = loaded[0].generation_config
            assert not settings.do_sample and settings.repetition_penalty in (None, 1.0)
            assert settings.max_new_tokens == 16 and settings.eos_token_id == [0]


def test_questions_of_any_length_are_answered_side_by_side(run: Path, tmp_path: Path) -> None:
    """Padding stands before the shorter question, so that its answer follows it."""
    export(run, "hf", tmp_path / "hf", checked=False)
    loaded = load_hf(tmp_path / "hf")
    short, long = "red", "what is the colour of the sky"
    alone = [*generated(*loaded, [short]), *generated(*loaded, [long])]
    assert generated(*loaded, [short, long]) == alone


# The tokenizer and its chat template ask in the very tokens in which Holdfast asks.

SYMBOLS = [chr(code) for code in range(33, 127)]
ASKED = ("red", "  Who keeps the\n lighthouse?  ", "1,234 {km}", "'Why' \"not\"? {{ 1 + 1 }}")


def pieces(scheme: str) -> PreTrainedTokenizerFast:
    """A tokenizer as of SentencePiece: a mark for spaces, one put before a text too."""
    vocabulary = {piece: n for n, piece in enumerate([END, "\N{LOWER ONE EIGHTH BLOCK}", "\n"])}
    words = [mark + word for mark in ("", "\N{LOWER ONE EIGHTH BLOCK}") for word in SYMBOLS]
    vocabulary |= {
        piece: len(vocabulary) + n
        for n, piece in enumerate(word for word in words if word not in vocabulary)
    }
    merges = [("\N{LOWER ONE EIGHTH BLOCK}", symbol) for symbol in SYMBOLS]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


@pytest.mark.parametrize(("to", "method"), [("hf", "merge"), ("peft", "replay_merge")])
@pytest.mark.parametrize("kind", ["embedded", "bytes", "pieces first", "pieces always"])
def test_the_tokens_are_those_that_holdfast_asks_with(
    kind: str, method: str, to: Any, stream: Path, tmp_path: Path
) -> None:
    base: Any = "embedded"
    if kind != "embedded":
        tokenizer = byte_tokenizer() if kind == "bytes" else pieces(kind.split()[1])
        tokenizer.chat_template = "{{ 'its own' }}"
        tokenizer.bos_token = END
        tokenizer.add_bos_token = True
        base = saved(tmp_path / "base", family("qwen3", len(tokenizer)), tokenizer)
    directory = learned(tmp_path / "run", configured(base, stream, method), 1)
    export(directory, to, tmp_path / "out", checked=False)
    backbone = Recorded.read(directory).learner(Recorded.read(directory).last).backbone
    asked = AutoTokenizer.from_pretrained(tmp_path / "out")
    for question in ASKED:
        expected = Template().encode_prompt(
            Item(question, "?"), backbone.tokenizer, backbone.seed_token
        )
        plain = [{"role": "user", "content": question}]
        earlier = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is it late?"},
            {"role": "assistant", "content": "Yes."},
        ]
        parts = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        for chat in (plain, earlier + plain, parts):
            for prompted in (False, True):
                encoding = asked.apply_chat_template(
                    chat, add_generation_prompt=prompted, return_dict=True
                )
                assert list(encoding["input_ids"]) == expected, (question, chat)
    first = [] if backbone.seed_token is None else [backbone.seed_token]
    assert expected[: len(first)] == first and bool(first) == ("replay" in method)


def test_a_tokenizer_in_python_is_refused(stream: Path, tmp_path: Path) -> None:
    """It ends every text with a token, and cannot be taught otherwise."""
    tokenizer = ByT5Tokenizer(extra_ids=0)
    base = saved(tmp_path / "base", family("qwen3", len(tokenizer)), tokenizer)
    directory = learned(tmp_path / "run", configured(base, stream, "replay"), 1)
    with pytest.raises(HoldfastError, match="ByT5Tokenizer, is written in Python"):
        export(directory, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tied_head_with_a_bias_needs_a_complete_model(stream: Path, tmp_path: Path) -> None:
    backbone = saved(tmp_path / "backbone", family("phi tied"))
    directory = learned(tmp_path / "run", configured(backbone, stream, "replay_merge"))
    with pytest.raises(HoldfastError, match=r"tied head with a bias; use --to hf$"):
        export(directory, "peft", tmp_path / "peft")
