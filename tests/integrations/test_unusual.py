"""What people do in loops of their own: mixed precision, accelerate, packing, other adapters."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import GradientState
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from holdfast.core.errors import HoldfastError
from holdfast.integrations import Anchored
from tests.integrations.test_anchored import anchored_of, batch_of, exact_loss, peft_model
from tests.tiny import short_sequences, tiny_llama

SAMPLING = {"samples": 4, "max_new_tokens": 6, "general": 3}
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def plain_model(base: Any = None, **options: Any) -> Any:
    """In float32, all its maps adapted."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        settings = {"lora_alpha": 4, "target_modules": "all-linear", **options}
        config = LoraConfig(r=2, **settings)
        return get_peft_model(tiny_llama() if base is None else base, config)


def anchored_model(*anchors: str, rule: str = "shared", model: Any = None, **more: Any) -> Anchored:
    model = plain_model() if model is None else model
    options = {"sampling": SAMPLING, "begin_with": [7], "batch_size": 2, **more}
    return Anchored(model, anchors=list(anchors), allocation=rule, **options)


def learn(anchored: Anchored, task: int, *, within: Any = nullcontext, epochs: int = 2) -> None:
    rows = short_sequences(4, seed=task)
    anchored.begin(rows)
    optimizer = torch.optim.AdamW(anchored.workspace.parameters().values(), lr=3e-2)
    for _ in range(epochs):
        for start in (0, 2):
            with within():
                loss = anchored.loss(batch_of(rows[start : start + 2]))
            loss.backward()
            anchored.adjust_gradient()
            with anchored.step():
                optimizer.step()
            optimizer.zero_grad()


def own_loss(anchored: Anchored, batch: dict[str, Tensor]) -> float:
    with torch.no_grad():
        return float(anchored.reader.model(**batch).loss)


@pytest.mark.parametrize("anchor", ["sd", "replay"])
def test_under_autocast_the_student_is_where_it_went(anchor: str) -> None:
    """Its factors are cast once for a block, and the previous model is asked within it."""

    def bf16() -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    anchored = anchored_model(anchor)
    learn(anchored, 1)
    anchored.end()
    learn(anchored, 2, within=bf16)
    if anchor == "replay":  # as after a reload: asked again
        del anchored._open().replay_states
    batch = batch_of(short_sequences(2, seed=9))
    with bf16():
        expected = own_loss(anchored, batch)
    with bf16():
        anchored.loss(batch)
    assert float(anchored.terms["own_loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(anchored.terms[anchor]) > 1e-4


def test_what_a_sample_begins_with_is_not_distilled() -> None:
    """Source: eq. app-replay-mask, eq. app-replay-loss: only what was written counts."""
    opening = [3, 4, 5, 6, 7]
    anchored = anchored_model("replay", "kfac", begin_with=opening)
    learn(anchored, 1)
    anchored.end()
    anchored.begin(short_sequences(4, seed=2))
    with torch.no_grad():
        for factor in anchored.workspace.parameters().values():
            factor.add_(0.05)
    anchored.loss(batch_of(short_sequences(2, seed=9)))
    (samples := anchored._open().replay)
    assert all(sample[:5] == opening and len(sample) > 5 for sample in samples)
    torch.manual_seed(0)
    order = anchored._open()
    order.drawn -= 1
    chosen = [samples[place] for place in order.next_replay()]
    temperature, losses = anchored.replay.temperature, []
    for sample in chosen:
        ids = torch.tensor([sample])
        with torch.no_grad(), anchored.reader.answering():
            student = anchored.reader.model(ids).logits[0, 4:-1]
            with anchored.workspace.at(order.start):
                teacher = anchored.reader.model(ids).logits[0, 4:-1]
        before, now = ((logits / temperature).log_softmax(-1) for logits in (teacher, student))
        losses.append((before.exp() * (before - now)).sum(-1))
    expected = float(torch.cat(losses).mean()) * temperature**2
    assert float(anchored.terms["replay"]) == pytest.approx(expected, rel=1e-4)


def test_what_an_interrupted_trainer_leaves_in_accelerate_does_not_matter() -> None:
    """Its state is the process's, and says that an accumulation has not ended."""
    paths = []
    for in_sync in (True, False):
        anchored = anchored_of(peft_model(), ["si"], "shared")
        rows = short_sequences(4, seed=1)
        anchored.begin(rows)
        optimizer = torch.optim.SGD(anchored.workspace.parameters().values(), lr=0.1)
        GradientState()._set_sync_gradients(in_sync)
        anchored.loss(batch_of(rows), exact_loss).backward()
        with anchored.step():
            optimizer.step()
        GradientState()._set_sync_gradients(True)
        paths.append(anchored.states["si"]["path"])
    assert any(bool(tensor.any()) for tensor in paths[0].values())
    assert all(torch.equal(paths[1][name], tensor) for name, tensor in paths[0].items())


def test_an_adapter_that_is_switched_merged_or_frozen_is_refused() -> None:
    anchored = anchored_model("si", rule="merge")
    model = anchored.reader.model
    learn(anchored, 1)
    model.merge_adapter()
    with pytest.raises(HoldfastError, match=r"merged; call model\.unmerge_adapter\(\)"):
        anchored.end()
    model.unmerge_adapter()
    anchored.end()
    model.add_adapter("second", LoraConfig(r=2, target_modules="all-linear"))
    model.set_adapter("second")
    with pytest.raises(HoldfastError, match="default is not the active one any more"):
        anchored.begin(short_sequences(2))
    model.set_adapter("default", inference_mode=True)
    with pytest.raises(HoldfastError, match="are frozen"):
        anchored.begin(short_sequences(2))


def test_a_matrix_that_another_adapter_stands_on_is_not_merged_into() -> None:
    model = plain_model()
    model.add_adapter("second", LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(HoldfastError, match=r"the adapter second is on .*q_proj too"):
        anchored_model("si", rule="merge", model=model)
    anchored_model("si", model=model)
    model.delete_adapter("second")
    anchored_model("si", rule="merge", model=model)


def test_maps_of_one_matrix_are_not_merged_into() -> None:
    model = plain_model(layer_replication=[(0, 2), (0, 2)])
    with pytest.raises(HoldfastError, match="share one matrix"):
        anchored_model(rule="merge", model=model)
    anchored_model("si", model=model)


@pytest.mark.parametrize("masked", [True, False])
def test_the_teacher_of_a_packed_row_is_the_student(masked: bool) -> None:
    """Where positions begin anew transformers tells sequences apart, but not under a mask."""
    anchored = anchored_model("sd")
    learn(anchored, 1)
    anchored.end()
    anchored.begin(short_sequences(2, seed=2))
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    batch = {"input_ids": ids, "labels": ids, "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]])}
    if masked:
        batch["attention_mask"] = torch.ones_like(ids)
    anchored.loss(batch)
    assert abs(float(anchored.terms["sd"])) < 1e-6
    if not masked:  # what was kept of the row is not what it is under a mask
        anchored.loss({**batch, "attention_mask": torch.ones_like(ids)})
        assert abs(float(anchored.terms["sd"])) < 1e-6
    batch["attention_mask"] = torch.ones(1, 1, 6, 6).tril()
    with pytest.raises(HoldfastError, match="the attention mask has 4 dimensions"):
        anchored.loss(batch)


def test_a_row_that_is_packed_otherwise_is_another_row() -> None:
    """Its states are not those that were kept of the same tokens at other positions."""
    anchored = anchored_model("sd")
    learn(anchored, 1)
    anchored.end()
    anchored.begin(short_sequences(2, seed=2))
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    for positions in ([0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3]):
        packed = torch.tensor([positions])
        anchored.loss({"input_ids": ids, "labels": ids, "position_ids": packed})
        assert abs(float(anchored.terms["sd"])) < 1e-6


@pytest.mark.parametrize("anchor", ["kfac", "pairs"])
def test_maps_that_are_given_all_positions_as_rows(anchor: str) -> None:
    """As OPT's are."""
    config = AutoConfig.for_model(
        "opt", vocab_size=300, hidden_size=16, ffn_dim=32, word_embed_proj_dim=16,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64,
        eos_token_id=0, bos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    anchored = anchored_model(anchor, model=plain_model(AutoModelForCausalLM.from_config(config)))
    for task in (1, 2):
        learn(anchored, task)
        anchored.end()
    assert float(anchored.terms[anchor]) > 0


def test_a_map_that_the_text_does_not_pass() -> None:
    """As those of a model that reads images too."""

    def model() -> Any:
        base = tiny_llama()
        base.model.image_map = torch.nn.Linear(4, 4)
        return plain_model(base)

    anchored = anchored_model("online_ewc", model=model())
    learn(anchored, 1)
    anchored.end()
    importance = anchored.states["online_ewc"]
    assert any(tree is not None for tree in importance.values())
    anchored = anchored_model(rule="osrm", model=model())
    learn(anchored, 1)
    with pytest.raises(HoldfastError, match="image_map was not passed, so it has no mean input"):
        anchored.end()


def test_the_loss_of_ones_own_is_told_undivided() -> None:
    anchored = anchored_model()
    batch = batch_of(short_sequences(2, seed=3))
    anchored.begin(short_sequences(2, seed=3))
    with anchored.reader.capturing():
        loss = anchored.reader.model(**batch, use_cache=False).loss
    anchored.objective(batch, loss / 4, None, fraction=1 / 4, scaled=True)
    assert float(anchored.terms["own_loss"]) == pytest.approx(float(loss.detach()))


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    anchored_model("si").save(tmp_path)
    others: dict[str, dict[str, Any]] = {
        "seed": {"seed": 6},
        "batch_size": {"batch_size": 3},
        "begin_with": {"begin_with": [8]},
        "sampling.samples": {"sampling": {**SAMPLING, "samples": 5}},
        "curvature.temperature": {"curvature": {"temperature": 2.0}},
        "scale": {"model": plain_model(lora_alpha=64)},
    }
    for name, options in others.items():
        text = rf"the state was made with {name} = [^,]*, and now it is [^,]*; make"
        with pytest.raises(HoldfastError, match=text):
            anchored_model("si", **options).load(tmp_path)
    several = anchored_model("si", sampling={**SAMPLING, "samples": 5, "general": 9})
    text = r"samples = 4, sampling\.general = 3, and now it is 5, 9; make the same Anchored"
    with pytest.raises(HoldfastError, match=rf"made with sampling\.{text}"):
        several.load(tmp_path)


def test_what_a_model_says_of_generation_is_no_part_of_a_draw() -> None:
    def drawn(**settings: Any) -> list[list[int]]:
        model = plain_model()
        model.get_base_model().generation_config.update(**settings)
        anchored = anchored_model("replay", model=model)
        learn(anchored, 1)
        anchored.end()
        anchored.begin(short_sequences(2, seed=2))
        return anchored._open().replay

    plain = drawn()
    assert plain
    for settings in (
        {"suppress_tokens": list(range(5, 250))},
        {"return_dict_in_generate": True},
        {"num_return_sequences": 2, "do_sample": True},
        {"repetition_penalty": 9.0, "min_p": 0.5, "do_sample": True},
    ):
        assert drawn(**settings) == plain, settings


def test_a_minibatch_that_is_thrown_away_is_no_part_of_the_path() -> None:
    """Whether it went backward, as one with a gradient that is too large, or not, as a NaN."""
    anchored = anchored_of(peft_model(), ["si"], "shared")
    rows = short_sequences(10, seed=1)
    anchored.begin(rows)
    factors = anchored.workspace.parameters()
    optimizer = torch.optim.SGD(factors.values(), lr=0.1)
    path = {name: torch.zeros_like(factor) for name, factor in factors.items()}
    for number, start in enumerate(range(0, 10, 2)):
        loss = anchored.loss(batch_of(rows[start : start + 2]), exact_loss)
        if number in (1, 2):
            if number == 1:  # went backward
                loss.backward()
            optimizer.zero_grad(set_to_none=False)
            continue
        loss.backward()
        before = anchored.workspace.copied()
        gradient = {name: grad_of(factor).clone() for name, factor in factors.items()}
        with anchored.step():
            optimizer.step()
        for name, factor in factors.items():
            path[name] -= gradient[name] * (factor.detach() - before[name])
        optimizer.zero_grad()
    for name, factor in anchored.states["si"]["path"].items():
        torch.testing.assert_close(factor, path[name], rtol=1e-9, atol=1e-15)


def test_a_step_that_a_scaler_skips_is_no_part_of_the_path() -> None:
    """As for an overflow in half precision, whose gradient is infinite or no number."""
    anchored = anchored_model("si")
    batch = batch_of(rows := short_sequences(2, seed=1))
    anchored.begin(rows)
    optimizer = torch.optim.SGD(anchored.workspace.parameters().values(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, torch.inf, 1.0):
        before = anchored.states["si"]["path"]
        loss = anchored.loss(batch, lambda model, batch: factor * model(**batch).loss)  # noqa: B023
        scaler.scale(loss).backward()
        with anchored.step():
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        after = anchored.states["si"]["path"]
        moved = [not torch.equal(after[name], path) for name, path in before.items()]
        assert any(moved) == (factor == 1.0)
        assert all(bool(path.isfinite().all()) for path in after.values())


def grad_of(factor: Tensor) -> Tensor:
    assert factor.grad is not None
    return factor.grad


def test_several_losses_go_backward_together() -> None:
    """Their sum is a step's, as that of minibatches one after the other."""
    paths = []
    for together in (True, False):
        anchored = anchored_of(peft_model(), ["si"], "shared")
        rows = short_sequences(4, seed=1)
        anchored.begin(rows)
        optimizer = torch.optim.SGD(anchored.workspace.parameters().values(), lr=0.1)
        total = torch.zeros(())
        for start in (0, 2):
            loss = anchored.loss(batch_of(rows[start : start + 2]), exact_loss, accumulation=2) / 2
            if together:
                total = total + loss
            else:
                loss.backward()
        if together:
            total.backward()
        with anchored.step():
            optimizer.step()
        paths.append(anchored.states["si"]["path"])
    for name, tensor in paths[0].items():
        torch.testing.assert_close(tensor, paths[1][name], rtol=1e-9, atol=1e-15)


def test_a_step_that_si_does_not_see_is_said() -> None:
    rows = short_sequences(2, seed=1)
    anchored = anchored_model("si")
    anchored.begin(rows)
    anchored.loss(batch_of(rows)).backward()
    with pytest.raises(HoldfastError, match=r"saw no step .* `with anchored\.step\(\):`"):
        anchored.end()
    anchored = anchored_model("si")
    anchored.begin(rows)
    anchored.before_step()
    anchored.after_step()  # nothing went backward and nothing moved: a minibatch was left out
    anchored.before_step()
    with torch.no_grad():
        next(iter(anchored.workspace.parameters().values())).add_(1)
    with pytest.raises(HoldfastError, match="a step without a gradient; call backward"):
        anchored.after_step()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_compiled_model_on_rows_of_several_lengths() -> None:
    anchored, compiled = (
        anchored_model("si", model=plain_model(tiny_llama(layers=1), target_modules=["v_proj"]))
        for _ in range(2)
    )
    compiled.reader.model.compile(backend="aot_eager")
    for loop in (anchored, compiled):
        learn(loop, 1, epochs=1)
        loop.end()
    for name, path in anchored.states["si"]["importance"].items():
        torch.testing.assert_close(
            compiled.states["si"]["importance"][name], path, rtol=1e-3, atol=1e-7
        )
    wrapped: Any = torch.compile(plain_model(), backend="aot_eager")  # as a Trainer wraps its own
    with pytest.raises(HoldfastError, match=r"as it was before torch\.compile"):
        anchored_model("si", model=wrapped)
