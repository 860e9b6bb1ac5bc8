"""The cache that is written in place, and steps of static shape, against plain ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.generation import cached, graph
from holdfast.backbone.generation import steps as steps_module
from holdfast.backbone.generation.cache import BlockCache, bytes_per_token, cache_for, compacting
from holdfast.backbone.generation.cached import CachedSteps
from holdfast.backbone.generation.graph import GraphSteps, recorded
from holdfast.backbone.generation.sampling import Sampling, continue_rows, sample_continuations
from holdfast.backbone.generation.steps import steps_for
from holdfast.backbone.generation.uncached import UncachedSteps
from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": 61}
    return GPT2LMHeadModel(GPT2Config(**sizes))


MODELS: dict[str, Callable[[], Any]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "gpt2": gpt2,
}


def continued(steps: Any, backbone: Any, prompt: int, noise: torch.Tensor, *how: Any) -> Any:
    """Rows that all begin with one token."""
    begins = torch.full((len(noise),), prompt, device=noise.device)
    return continue_rows(steps, backbone, begins, noise, backbone.stop_tokens, *how)


class Bare:
    """A model without a tokenizer, with what generation asks of a backbone."""

    stop_tokens = frozenset(range(0, 61, 9))
    pad_token = 3
    decoder = None
    fused = False

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.head = model.get_output_embeddings()
        self.device = self.head.weight.device
        self.dtype = self.head.weight.dtype

    def hidden(self, ids: Tensor) -> Tensor:
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(hidden)
        return logits


@pytest.fixture(params=MODELS)
def backbone(request: pytest.FixtureRequest) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = MODELS[request.param]().double()
        for weight in model.parameters():  # peaked enough to differ from row to row
            weight.data *= 3
    return Bare(model)


def as_is(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """What a recording does, without one: the step runs once more than it is asked for."""
    step()
    return step


def static(backbone: Any, block: int = 8) -> GraphSteps:
    cache = cache_for(backbone.model, block)
    assert isinstance(cache, BlockCache)
    return GraphSteps(backbone, cache, as_is)


def test_steps_equal_whole_passes_across_blocks_and_departures(backbone: Any) -> None:
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 61, (9, 30), generator=source)
    with torch.no_grad():
        whole = backbone.model(input_ids=ids, use_cache=False).logits
        for steps in (static(backbone), CachedSteps(backbone)):
            running = torch.arange(9)
            for position in range(30):
                logits = steps(ids[running, position])
                torch.testing.assert_close(logits, whole[running, position])
                if position in (0, 1, 4, 13, 20):
                    stays = torch.ones(len(running), dtype=torch.bool)
                    stays[position % len(running)] = False
                    order = compacting(stays, len(running) - 1)
                    steps.keep(order)
                    running = running[order]


@pytest.mark.parametrize("lengths", [(1, 1, 1), (2, 2, 2), (13, 13, 13), (1, 9, 4), (6, 5, 1)])
def test_prompts_pass_at_once_and_their_rows_repeat(
    backbone: Any, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as if it were alone, whatever stands before it; rows leave, and go where others were."""
    monkeypatch.setattr(cached, "_PREFILLED_TOKENS", 15)  # five positions of three rows
    plain: list[int] = []
    plainly = CachedSteps.next

    def counted(steps: CachedSteps, ids: Tensor) -> Tensor:
        plain.append(steps._cache.get_seq_length())
        return plainly(steps, ids)

    monkeypatch.setattr(CachedSteps, "next", counted)
    source = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 61, (n,), generator=source).tolist() for n in lengths]
    order = torch.tensor([0, 0, 1, 2, 2, 2, 0])
    after = torch.randint(0, 61, (7, 20), generator=source)
    whole = [
        backbone.model(input_ids=torch.tensor([[*prompts[one], *said]]), use_cache=False)
        .logits[0, -21:].detach()
        for one, said in zip(order.tolist(), after.tolist(), strict=True)
    ]  # fmt: skip
    for steps in (static(backbone), CachedSteps(backbone), UncachedSteps(backbone)):
        plain.clear()
        ids = steps.begin(prompts)[order]
        assert ids.tolist() == [prompts[one][-1] for one in order.tolist()]
        steps.keep(order)
        running = torch.arange(7)
        for position in range(21):
            with torch.no_grad():
                logits = steps(ids)
            theirs = torch.stack([whole[row][position] for row in running.tolist()])
            torch.testing.assert_close(logits, theirs)
            leave = {0: [0, 6, 2, 3, 4, 5], 4: [5, 1, 2, 2, 0, 3], 13: [4, 1]}.get(position)
            if leave is not None:
                steps.keep(torch.tensor(leave))
                running = running[leave]
            if position < 20:
                ids = after[running, position]
        if isinstance(steps, GraphSteps):
            assert steps.replays
            begun = max(lengths) - 1
            assert plain == list(range(begun, max(2, begun + 1) + 1))


@pytest.mark.parametrize("name", MODELS)
def test_attention_that_is_nothing_anywhere_is_never_recorded(name: str) -> None:
    """Written out it is not a number where a row sees nothing, and stays so in the cache."""
    model = MODELS[name]().float()
    model.set_attn_implementation("eager")
    backbone = Bare(model)
    prompts = [[5], [7, 8, 9, 1, 2, 3, 4, 4, 6]]
    with torch.no_grad():
        steps = static(backbone)
        said = [steps(steps.begin(prompts)), *(steps(torch.tensor([n, n])) for n in (3, 1, 2))]
        for row, prompt in enumerate(prompts):
            whole = backbone.logits(backbone.hidden(torch.tensor([[*prompt, 3, 1, 2]])))[0, -4:]
            ours = torch.stack([logits[row] for logits in said])
            torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-4)
    assert steps.replays


def test_static_steps_draw_the_same_tokens(backbone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_GRAPH_ROWS", 4)
    noise = torch.rand(21, 40, generator=torch.Generator().manual_seed(1))
    settings = (1.0, 0.9, None)
    steps = static(backbone)
    drawn = continued(steps, backbone, 7, noise, *settings)
    assert steps.replays
    assert drawn == continued(CachedSteps(backbone), backbone, 7, noise, *settings)
    lengths = {len(tokens) for tokens in drawn}
    assert min(lengths) < 3 and max(lengths) > 16


@pytest.mark.parametrize("fault", ["stale", "refused"])
def test_a_step_that_cannot_be_replayed_is_not(
    backbone: Any, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        if fault == "refused":
            raise RuntimeError("operation not permitted when stream is capturing")
        logits = step()
        return lambda: logits  # as if the position had been recorded as a number

    noise = torch.rand(6, 20, generator=torch.Generator().manual_seed(1))
    steps = GraphSteps(backbone, cache_for(backbone.model, 8), broken)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        drawn = continued(steps, backbone, 7, noise, 1.0, 0.9, None)
    assert not steps.replays
    assert "not replayed" in caplog.text
    assert drawn == continued(CachedSteps(backbone), backbone, 7, noise, 1.0, 0.9, None)


@pytest.mark.parametrize("fault", ["stale", "refused"])
def test_the_first_step_after_prompts_is_taken_both_ways(backbone: Any, fault: str) -> None:
    calls: list[str] = []

    def broken(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        calls.append(fault)
        if fault == "refused":
            raise RuntimeError("operation not permitted when stream is capturing")
        logits = step()
        return lambda: logits

    ids = torch.randint(0, 61, (4, 12), generator=torch.Generator().manual_seed(0))
    steps = GraphSteps(backbone, cache_for(backbone.model, 8), broken)  # type: ignore[arg-type]
    with torch.no_grad():
        whole = backbone.model(input_ids=ids, use_cache=False).logits
        steps.begin(ids[:, :6].tolist())
        for position in range(5, 12):
            torch.testing.assert_close(steps(ids[:, position]), whole[:, position])
            assert steps.replays == (position == 5)
    assert calls == [fault]


def test_a_late_look_changes_nothing(backbone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.rand(11, 30, generator=torch.Generator().manual_seed(1))
    each = continued(CachedSteps(backbone), backbone, 7, noise, 1.0, 0.9, None)
    monkeypatch.setitem(steps_module._POSITIONS_PER_LOOK, "cpu", 16)
    assert each == continued(CachedSteps(backbone), backbone, 7, noise, 1.0, 0.9, None)


def test_compacting_keeps_whoever_stays() -> None:
    source = torch.Generator().manual_seed(0)
    for _ in range(200):
        rows = int(torch.randint(1, 12, (1,), generator=source))
        stays = torch.rand(rows, generator=source) < 0.5
        left = int(torch.randint(int(stays.sum()), rows + 1, (1,), generator=source))
        order = compacting(stays, left)
        assert len(set(order.tolist())) == left
        assert set(stays.nonzero().flatten().tolist()) <= set(order.tolist())


def test_room_grows_in_blocks() -> None:
    cache = BlockCache(1, block=8)
    states = torch.randn(2, 1, 11, 4)
    for position in range(11):
        piece = states[:, :, position : position + 1]
        keys, values = cache.update(piece, -piece, 0)
        assert torch.equal(keys, states[:, :, : position + 1])
        assert torch.equal(values, -keys)
        assert cache.room == (8 if position < 8 else 16)
        assert cache.get_seq_length() == position + 1


def test_a_window_that_slides_keeps_its_own_cache(caplog: pytest.LogCaptureFixture) -> None:
    model: Any = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4))
    with caplog.at_level(logging.INFO):
        assert isinstance(cache_for(model), DynamicCache)
    assert "DynamicSlidingWindowLayer" in caplog.text
    model = model.double()
    ids = torch.randint(0, 61, (3, 12), generator=torch.Generator().manual_seed(0))
    steps = CachedSteps(Bare(model))  # type: ignore[arg-type]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        for position in range(12):
            logits = steps(ids[:, position])
            torch.testing.assert_close(logits, whole[:, position])


def test_bytes_are_those_that_are_kept(backbone: Any) -> None:
    cache = cache_for(backbone.model, 1)
    with torch.no_grad():
        backbone.model(input_ids=torch.ones(1, 1, dtype=torch.long), past_key_values=cache)
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert bytes_per_token(backbone.model) == kept


@pytest.mark.gpu
def test_a_recorded_step_draws_the_same_tokens() -> None:
    backbone = load_backbone(Backbone.Config(precision="float32", device="cuda"))
    steps = steps_for(backbone)
    assert isinstance(steps, GraphSteps)
    noise = torch.rand(130, 200, generator=torch.Generator().manual_seed(1)).cuda()
    drawn = continued(steps, backbone, 9, noise, 1.0, 0.9, None)
    assert steps.replays
    plain = continued(CachedSteps(backbone), backbone, 9, noise, 1.0, 0.9, None)
    # Kernels of other shapes round otherwise, which turns the odd draw and all that follows it.
    same = sum(a == b for a, b in zip(drawn, plain, strict=True))
    assert same > 0.9 * len(plain)
    assert callable(recorded)
    settings = Sampling(temperature=1.0, max_new_tokens=150, batch=4)
    whole = sample_continuations(backbone, [9] * 4, settings, seed=1, purpose=("replay",))
    assert [len(tokens) > 0 for tokens in whole] == [True] * 4


@pytest.mark.parametrize("lengths", [None, (8, 1, 5, 7)])
def test_steps_of_the_decoder_are_those_of_the_modules(lengths: tuple[int, ...] | None) -> None:
    """Grouped queries, rows that leave, branches that are open; of static shape and not."""
    backbone = load_backbone()
    assert backbone.adapt(Adapters.Config(rank=3, alpha=6)) is None
    with torch.no_grad():
        backbone.adapters.parameters.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([0, 3, 2])
    ids = torch.randint(0, 61, (13, 4), generator=torch.Generator().manual_seed(0))
    spoken = []
    for way, kind in (
        (backbone.by_modules, CachedSteps),
        (nullcontext, CachedSteps),
        (nullcontext, static),
    ):
        with way(), backbone.answering():
            steps = kind(backbone)
            if lengths is not None:
                steps.begin([[5, *range(n - 1)] for n in lengths])
            logits = [steps(row).clone() for row in ids[:5]]
            steps.keep(order)
            logits += [steps(row[:3]).clone() for row in ids[5:]]
        spoken.append(logits)
    assert isinstance(steps, GraphSteps) and steps.replays
    theirs, *others = spoken
    for ours in others:
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
