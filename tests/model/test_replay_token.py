"""The seed token of the data anchor, fixed or trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from holdfast.model.backbone import REPLAY_TOKEN, Backbone
from holdfast.model.layers import LoraSettings
from holdfast.model.load import load_backbone
from tests.tiny import byte_tokenizer, exact_backbone, flat, tiny_gemma_of_images, tiny_llama

TOKENS = 257


def llama(tied: bool, rows: int) -> LlamaForCausalLM:
    """``rows`` of embeddings for 257 tokens, as Qwen3 has more rows than tokens."""
    config = tiny_llama().config
    config.vocab_size, config.tie_word_embeddings = rows, tied
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return LlamaForCausalLM(config).double()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [TOKENS, TOKENS + 1, 300])
def test_the_mean_row(tied: bool, rows: int) -> None:
    """Of the tokenizer's tokens, not of the rows that no token uses.  eq. app-replay-init."""
    backbone = Backbone(llama(tied, rows), byte_tokenizer())
    tables = [backbone.model.get_input_embeddings().weight.clone(), backbone.head.weight.clone()]
    token = backbone.add_replay_token()
    assert token == backbone.seed_token == TOKENS
    after = [backbone.model.get_input_embeddings().weight, backbone.head.weight]
    assert (after[0] is after[1]) == tied
    for old, new in zip(tables, after, strict=True):
        assert len(new) == max(rows, TOKENS + 1)
        torch.testing.assert_close(new[token], old[:TOKENS].mean(0), rtol=1e-14, atol=1e-15)
        others = [row for row in range(rows) if row != token]
        assert torch.equal(new[others], old[others])
        assert not new.requires_grad
    assert backbone.head is backbone.model.get_output_embeddings()
    assert backbone.tokenize(REPLAY_TOKEN + "a")[0] == token
    assert backbone.decode(backbone.tokenize(REPLAY_TOKEN + "a")) == "a"


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_set_once(tied: bool, tmp_path: Path) -> None:
    """Neither a second call nor a reload of a model whose rows were since trained resets it."""
    backbone = Backbone(llama(tied, TOKENS), byte_tokenizer())
    token = backbone.add_replay_token()
    with torch.no_grad():
        backbone.model.get_input_embeddings().weight[token] += 1.0
    row = backbone.model.get_input_embeddings().weight[token].clone()
    assert backbone.add_replay_token() == token
    backbone.model.save_pretrained(tmp_path)
    backbone.tokenizer.save_pretrained(tmp_path)
    again = load_backbone(Backbone.Config(name=str(tmp_path), precision="float64", device="cpu"))
    assert again.seed_token is None
    assert again.add_replay_token() == token
    assert torch.equal(again.model.get_input_embeddings().weight[token], row)


def trained() -> Backbone:
    """A backbone after three steps on sequences that begin with the seed token."""
    backbone = exact_backbone()
    token = backbone.add_replay_token()
    settings = LoraSettings(rank=2, dropout=0.0, targets=("q_proj", "down_proj"))
    backbone.adapt(settings, seed_row=True)
    backbone.workspace.fresh(0, 1)
    optimizer = torch.optim.AdamW(list(backbone.workspace.parameters().values()), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        backbone.logits(backbone.hidden(torch.tensor([[token, 4, 5]]))).square().sum().backward()
        optimizer.step()
    return backbone


def test_the_option_trains_that_row_alone() -> None:
    backbone, plain = trained(), exact_backbone()
    token = plain.add_replay_token()
    table = plain.model.get_input_embeddings().weight
    # The table, and with it the output head, stays; the row is a coordinate of the workspace.
    assert torch.equal(backbone.head.weight, table)
    coordinates = backbone.workspace.parameters()
    assert len(flat(coordinates)) == 2 * 2 * (16 + 16 + 32 + 16) + 16
    row = coordinates["seed_row"]
    assert ((row - table[token]).abs() > 1e-3).all()
    embed = backbone.model.get_input_embeddings()
    for ids in (torch.arange(TOKENS), torch.tensor([[3, 9]])):
        assert torch.equal(embed(ids), table[ids])
    assert torch.equal(embed(torch.tensor([[3, token]]))[0, 1], row)
    # Unloaded, the input table has the row, and the output head, untied, keeps its own.
    backbone.merge_and_unload()
    assert torch.equal(backbone.model.get_input_embeddings().weight[token], row)
    assert torch.equal(backbone.model.get_output_embeddings().weight[token], table[token])


def test_the_rows_gradient_is_the_embeddings() -> None:
    backbone = exact_backbone()
    token = backbone.add_replay_token()
    backbone.adapt(LoraSettings(rank=2), seed_row=True)
    ids = torch.tensor([[token, 4, token]])
    backbone.hidden(ids).square().sum().backward()

    twin = exact_backbone()
    twin.add_replay_token()
    table = twin.model.get_input_embeddings().weight.requires_grad_()
    twin.hidden(ids).square().sum().backward()
    assert table.grad is not None
    gradient = backbone.workspace.parameters()["seed_row"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient, table.grad[token], rtol=1e-11, atol=1e-13)
    assert gradient.abs().max() > 1e-3


def test_a_table_that_scales_its_rows_scales_this_one_too() -> None:
    """Gemma multiplies every row by the root of the width."""
    backbone = Backbone(tiny_gemma_of_images().double(), byte_tokenizer())
    ids = torch.tensor([[backbone.add_replay_token(), 4, 5]])
    with torch.no_grad():
        frozen = backbone.logits(backbone.hidden(ids))
        backbone.adapt(LoraSettings(rank=2), seed_row=True)
        torch.testing.assert_close(backbone.logits(backbone.hidden(ids)), frozen)
