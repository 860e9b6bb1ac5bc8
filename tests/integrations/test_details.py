"""What anchors do with odd models, odd batches and odd states, and what they refuse."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from holdfast.anchors import Anchor, Step, TaskEnd, register
from holdfast.anchors.base import quadratic_penalty
from holdfast.core import plugins
from holdfast.integrations import Anchored
from holdfast.integrations import anchored as anchored_module
from holdfast.integrations.boundary import samples_before
from holdfast.model.lora import LoraWorkspace
from tests.integrations.test_anchored import (
    BATCH,
    ITEMS,
    RULES,
    Loop,
    anchored_of,
    batch_of,
    exact_loss,
    peft_model,
)
from tests.integrations.test_refused import refused
from tests.tiny import exact_gpt2, short_sequences


def test_an_adapter_that_exists_is_the_start() -> None:
    """It is not drawn anew; a merge folds it with what was learned."""
    for rule in RULES:
        anchored = anchored_of(peft_model(), (), rule)
        with torch.no_grad():
            for factor in anchored.workspace.parameters().values():
                factor.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
        start = anchored.workspace.copied()
        ids = torch.tensor([short_sequences(1)[0]])
        with torch.no_grad():
            before = anchored.reader.hidden(ids)
        anchored.begin(short_sequences(ITEMS))
        assert all(torch.equal(start[k], v) for k, v in anchored.workspace.copied().items())
        anchored.end()
        anchored.begin(short_sequences(ITEMS, seed=2))
        with torch.no_grad():
            torch.testing.assert_close(anchored.reader.hidden(ids), before)
        moved = any(bool((start[k] != v).any()) for k, v in anchored.workspace.copied().items())
        assert moved == (rule != "shared")


@pytest.mark.parametrize("rule", RULES)
def test_a_beginning_that_failed_does_not_redraw_the_adapter(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchored = anchored_of(peft_model(), (), rule)
    with torch.no_grad():
        for factor in anchored.workspace.parameters().values():
            factor.fill_(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(anchored_module, "samples_before", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            anchored.begin(short_sequences(ITEMS))
    anchored.begin(short_sequences(ITEMS))
    assert all(bool((factor == 1).all()) for factor in anchored.workspace.parameters().values())


class Tether(Anchor):
    """A plug-in's: stay near the coordinates at which the last task ended."""

    def strength(self, state: Any) -> float:
        return 1e3

    def loss(self, state: Any, step: Step) -> Tensor:
        if not state:
            return step.zero()
        return quadratic_penalty(
            step.parameters,
            {name: torch.ones_like(factor) for name, factor in step.parameters.items()},
            state["reference"],
        )

    def end(self, state: Any, end: TaskEnd) -> Any:
        return {"reference": {name: factor.clone() for name, factor in end.parameters.items()}}


def test_a_plug_in_is_an_anchor_like_any_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    register("tether", Tether)
    moved = []
    for names in ((), ("tether",)):
        anchored = Anchored(peft_model(), anchors=names, begin_with=[1], batch_size=BATCH)
        for number in (1, 2):
            sequences = short_sequences(ITEMS, seed=number)
            anchored.begin(sequences)
            start = anchored.workspace.copied()
            Loop(anchored).epochs(sequences)
            anchored.end()
        end = anchored.workspace.copied()
        moved.append(sum(float((end[name] - start[name]).square().sum()) for name in end))
    assert moved[1] < 0.5 * moved[0]
    anchored.save(tmp_path)
    again = Anchored(peft_model(), anchors=["tether"], begin_with=[1], batch_size=BATCH)
    again.load(tmp_path)
    ours, theirs = (loop.states["tether"]["reference"] for loop in (again, anchored))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_gradient_that_the_rule_changes_needs_the_call() -> None:
    anchored = Anchored(
        peft_model(), allocation={"olora": {"project_gradient": True}}, begin_with=[1]
    )
    anchored.begin(short_sequences(2))
    anchored.loss(batch_of(short_sequences(2)), exact_loss).backward()
    refused("call adjust_gradient", anchored.before_step)
    anchored.adjust_gradient()
    with anchored.step():
        pass
    refused("call adjust_gradient", anchored.before_step)  # before every step


def test_a_state_from_before_a_merge_needs_the_model_as_it_came(tmp_path: Path) -> None:
    anchored = anchored_of(peft_model(), (), "merge")
    anchored.begin(short_sequences(3))
    anchored.save(tmp_path / "before")
    before = anchored.workspace.copied()
    anchored.end()
    anchored.save(tmp_path / "after")
    refused("have been merged into since", lambda: anchored.load(tmp_path / "before"))
    fresh = anchored_of(peft_model(), (), "merge")
    fresh.load(tmp_path / "before")
    assert all(torch.equal(tensor, before[k]) for k, tensor in fresh.workspace.copied().items())
    fresh.begin(short_sequences(3))
    fresh.end()
    for each in (anchored, fresh):
        each.begin(short_sequences(3, seed=2))  # draws anew
    drawn = anchored.workspace.copied()
    assert all(torch.equal(tensor, drawn[k]) for k, tensor in fresh.workspace.copied().items())
    fresh = anchored_of(peft_model(), (), "merge")
    fresh.load(tmp_path / "after")  # a merge that was loaded is one, too
    refused("have been merged into since", lambda: fresh.load(tmp_path / "before"))


def test_the_previous_model_drops_nothing_and_forgets_what_is_not_trained() -> None:
    """sd is the divergence at the labelled tokens, from a teacher without dropout."""
    anchored = anchored_of(peft_model(lora_dropout=0.5), ("sd",), "shared")
    with torch.no_grad():
        for name, factor in anchored.workspace.parameters().items():
            factor.normal_(std=0.3, generator=torch.Generator().manual_seed(len(name)))
    anchored.completed = 1
    sequences = short_sequences(4)
    anchored.begin(sequences)
    batch = batch_of(sequences)
    batch["labels"][:, :2] = -100
    anchored.reader.model.train()
    teacher = anchored.teacher_states(batch)
    assert teacher is not None
    with anchored.reader.answering(), torch.no_grad():
        plain = anchored.reader.hidden(batch["input_ids"], batch["attention_mask"].bool())
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(teacher[real], plain[real])
    assert anchored.reader.model.training
    anchored.loss(batch, exact_loss)
    dropped = float(anchored.terms["sd"])
    anchored.reader.model.eval()
    anchored.loss(batch, exact_loss)
    assert float(anchored.terms["sd"]) == pytest.approx(0, abs=1e-12) and dropped > 1e-4
    with torch.no_grad():
        for factor in anchored.workspace.parameters().values():
            factor.add_(0.1)
    anchored.loss(batch, exact_loss)
    with torch.no_grad():
        student = anchored.reader.hidden(batch["input_ids"], real)
    chosen = batch["labels"][:, 1:] != -100
    p, q = (
        (anchored.reader.logits(hidden[:, :-1][chosen]) / 5.0).log_softmax(-1)
        for hidden in (plain, student)
    )
    expected = 25.0 * (p.exp() * (p - q)).sum(-1).mean()
    assert float(anchored.terms["sd"]) == pytest.approx(float(expected), rel=1e-9)


def test_left_padding() -> None:
    """GPT-2 counts positions from the first place, so a row is asked as it was given."""
    model = exact_gpt2().model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
        anchored = Anchored(get_peft_model(model, config), anchors=["sd"], begin_with=[1])
    anchored.completed = 1
    sequences = short_sequences(3)
    anchored.begin(sequences)
    batch = batch_of(sequences)
    shift = int((~batch["attention_mask"].bool()).sum(1).max())
    rows = [int(mask.sum()) for mask in batch["attention_mask"]]
    for name, fill in (("input_ids", 0), ("attention_mask", 0), ("labels", -100)):
        value = torch.full_like(batch[name], fill)
        for row, count in enumerate(rows):
            value[row, -count:] = batch[name][row, :count]
        batch[name] = value
    assert shift > 0
    anchored.loss(batch, exact_loss)
    assert float(anchored.terms["sd"]) == pytest.approx(0, abs=1e-12)


def test_samples_are_drawn_as_is_said_and_keep_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    anchored = Anchored(
        peft_model(),
        anchors=["replay"],
        sampling={"samples": 3, "temperature": 1.3, "top_p": 0.7, "max_new_tokens": 4},
        begin_with=[9],
    )
    anchored.stop_tokens = {0}
    drawn = torch.tensor([[9, 5, 6, 0, 0], [9, 0, 0, 0, 0], [9, 5, 6, 7, 8]])
    given: dict[str, Any] = {}

    def generate(**options: Any) -> Tensor:
        given.update(options)
        return drawn

    monkeypatch.setattr(anchored.reader.model, "generate", generate)
    before = torch.get_rng_state()
    assert samples_before(anchored, 2)[0] == [[9, 5, 6, 0], [9, 5, 6, 7, 8]]
    assert torch.equal(before, torch.get_rng_state())
    assert (given["temperature"], given["top_p"], given["top_k"]) == (1.3, 0.7, 0)
    assert given["do_sample"] and "repetition_penalty" not in given


def test_the_rules_penalty_in_half_precision() -> None:
    """Autocast leaves float64 alone, so this is in float32; the loss itself is 0."""
    anchored = anchored_of(peft_model().float(), (), "olora")
    anchored.begin(short_sequences(ITEMS))
    anchored.end()
    anchored.begin(short_sequences(ITEMS))
    batch = batch_of(short_sequences(2))
    totals = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            total = anchored.loss(batch, lambda model, given: model(**given).logits.sum() * 0)
        totals.append(float(total.detach()))
    assert totals[0] == totals[1] > 0


def test_a_minibatch_without_a_trained_token_adds_nothing() -> None:
    anchored = anchored_of(peft_model(), ("sd",), "shared")
    anchored.completed = 1
    anchored.begin(short_sequences(2))
    batch = batch_of(short_sequences(2))
    batch["labels"].fill_(-100)
    total = anchored.loss(batch, lambda model, given: model(**given).logits.sum() * 0)
    assert float(total.detach()) == 0


def test_a_matrix_in_another_form_is_not_merged_into() -> None:
    model = peft_model()
    for module in model.modules():
        if hasattr(module, "get_base_layer") and hasattr(module, "lora_A"):
            weight = module.get_base_layer().weight
            weight.data = weight.data.float().to(torch.float8_e4m3fn)
            break
    refused("is quantized to torch.float8", LoraWorkspace(model).check_mergeable)


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    anchored = anchored_of(peft_model(), ("si",), "merge")
    anchored.begin(short_sequences(3))
    anchored.save(tmp_path)
    again = anchored_of(peft_model(), ("si",), "merge")
    again.load(tmp_path)
    refused("other sequences", lambda: again.begin(short_sequences(3, seed=9)))
    refused("anchors = ", lambda: anchored_of(peft_model(), ("sd",), "merge").load(tmp_path))
    refused("cannot be read", lambda: again.load(tmp_path / "nothing"))
    (tmp_path / "holdfast.safetensors").write_bytes(b"nothing")
    refused("is no state of anchors", lambda: again.load(tmp_path))
