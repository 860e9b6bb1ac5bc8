"""Anchors in PyTorch Lightning and with accelerate: the numbers of the bare loop."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from accelerate import Accelerator
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from torch.utils.data import DataLoader

from holdfast.core.errors import HoldfastError
from holdfast.integrations import Anchored
from holdfast.integrations.lightning import AnchorCallback
from tests.integrations.test_anchored import (
    ANCHORS,
    BATCH,
    EPOCHS,
    LR,
    Loop,
    anchored_of,
    batch_of,
    exact_loss,
    minibatches_of,
    peft_model,
)
from tests.tiny import short_sequences

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
TASKS = [short_sequences(4, seed=number) for number in (1, 2)]


class Tuned(lightning.LightningModule):
    def __init__(self, anchored: Anchored) -> None:
        super().__init__()
        self.anchored, self.model = anchored, anchored.reader.model

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        parts = self.trainer.accumulate_grad_batches
        return self.anchored.loss(batch, exact_loss, accumulation=parts)

    def configure_optimizers(self) -> Any:
        factors = list(self.anchored.workspace.parameters().values())
        return torch.optim.AdamW(factors, lr=LR, weight_decay=0.01)


def fit(anchored: Anchored, task: int, place: Path, **options: Any) -> lightning.Trainer:
    resumed = options.pop("ckpt_path", None)
    trainer = lightning.Trainer(
        max_epochs=options.pop("max_epochs", EPOCHS),
        accelerator="cpu",
        precision=options.pop("precision", "64-true"),
        gradient_clip_val=1.0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(place),
        callbacks=[
            AnchorCallback(anchored, TASKS[task]),
            ModelCheckpoint(str(place), filename="{epoch}", save_top_k=-1),
        ],
        **options,
    )
    loader: Any = DataLoader(TASKS[task], batch_size=BATCH, collate_fn=batch_of)  # type: ignore[arg-type]
    trainer.fit(Tuned(anchored), loader, ckpt_path=resumed)
    return trainer


@pytest.fixture(scope="module")
def by_hand() -> Anchored:
    """Both tasks by a bare loop, two minibatches a step."""
    anchored = anchored_of(peft_model(), ANCHORS, "merge")
    for task in TASKS:
        anchored.begin(task)
        Loop(anchored, accumulation=2).epochs(task)
        anchored.end()
    return anchored


def assert_same(ours: Anchored, theirs: Anchored, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    for tensors, expected in (
        (ours.workspace.copied(), theirs.workspace.copied()),
        (ours.workspace.dense(), theirs.workspace.dense()),
    ):
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, expected[name], rtol=rtol, atol=atol)
    for name, anchor in ours.anchors.items():
        packed, expected = anchor.pack(ours.states[name]), anchor.pack(theirs.states[name])
        for key, tensor in packed.items():
            torch.testing.assert_close(tensor, expected[key], rtol=1e-7, atol=atol)


def test_lightning_is_the_bare_loop(by_hand: Anchored, tmp_path: Path) -> None:
    anchored = anchored_of(peft_model(), ANCHORS, "merge")
    for task in (0, 1):
        fit(anchored, task, tmp_path, accumulate_grad_batches=2)
    assert_same(anchored, by_hand)


def test_lightnings_checkpoint_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    straight = anchored_of(peft_model(), ANCHORS, "merge")
    fit(straight, 0, tmp_path / "a")
    straight.save(tmp_path)
    fit(straight, 1, tmp_path / "b")
    again = anchored_of(peft_model(seed=4), ANCHORS, "merge")
    again.load(tmp_path)
    fit(again, 1, tmp_path / "c", ckpt_path=str(tmp_path / "b" / "epoch=0.ckpt"))
    assert_same(again, straight, rtol=0, atol=0)


def test_masters_go_on_where_lightning_converts_the_model(tmp_path: Path) -> None:
    """It does so behind the restore; what was merged is not rounded."""
    ended = []
    for place in ("a", "b"):
        anchored = Anchored(peft_model().float(), allocation="merge")
        fit(anchored, 0, tmp_path / "first", precision="bf16-true")
        if place == "a":
            fit(anchored, 1, tmp_path / "a", precision="bf16-true")
        else:
            anchored = Anchored(peft_model(seed=4).float(), allocation="merge")
            checkpoint = str(tmp_path / "a" / "epoch=0.ckpt")
            fit(anchored, 1, tmp_path / "b", precision="bf16-true", ckpt_path=checkpoint)
        ended.append(anchored)
        assert next(iter(anchored.workspace.dense().values())).dtype == torch.float32
    assert_same(ended[1], ended[0], rtol=0, atol=0)


def test_the_last_checkpoint_of_a_finished_fit_ends_its_task(tmp_path: Path) -> None:
    """Lightning trains nothing then, and calls no hook of training."""
    straight = anchored_of(peft_model(), ANCHORS, "merge")
    fit(straight, 0, tmp_path)
    again = anchored_of(peft_model(seed=4), ANCHORS, "merge")
    fit(again, 0, tmp_path / "c", ckpt_path=str(tmp_path / f"epoch={EPOCHS - 1}.ckpt"))
    assert again.completed == 1
    assert_same(again, straight, rtol=0, atol=0)
    fit(again, 1, tmp_path / "d")


def test_accelerate_is_the_bare_loop(by_hand: Anchored) -> None:
    """Its optimiser steps on every second minibatch, and ``backward`` divides by two."""
    anchored = anchored_of(peft_model(), ANCHORS, "merge")
    for task in TASKS:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        factors = list(anchored.workspace.parameters().values())
        optimizer = accelerator.prepare(torch.optim.AdamW(factors, lr=LR, weight_decay=0.01))
        anchored.begin(task)
        anchored.reader.model.train()
        for minibatch in minibatches_of(task) * EPOCHS:
            with accelerator.accumulate(anchored.reader.model):
                loss = anchored.loss(batch_of(minibatch), exact_loss, accumulation=2)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(factors, 1.0)
                with anchored.step():
                    optimizer.step()
                optimizer.zero_grad()
        anchored.end()
    assert_same(anchored, by_hand)


class Averaged(StochasticWeightAveraging):
    """One of somebody's own."""


@pytest.mark.parametrize("first", [True, False])
def test_weights_are_averaged_before_the_task_ends(first: bool) -> None:
    """After it a merge would have what it merged a second time."""
    anchored = anchored_of(peft_model().float(), ("sd",), "merge")
    callbacks: list[Any] = [
        Averaged(0.01, swa_epoch_start=1),
        AnchorCallback(anchored, TASKS[0]),
    ]
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=callbacks if first else callbacks[::-1],
    )
    loader: Any = DataLoader(TASKS[0], batch_size=BATCH, collate_fn=batch_of)  # type: ignore[arg-type]
    if first:
        trainer.fit(Tuned(anchored), loader)
        assert anchored.completed == 1 and anchored.workspace.is_clear
    else:
        with pytest.raises(HoldfastError, match="Averaged changes the weights when"):
            trainer.fit(Tuned(anchored), loader)


class BesideAnother(Tuned):
    """Another part of the module has an optimiser of its own, which makes its step too."""

    def __init__(self, anchored: Anchored, first: bool) -> None:
        """first: whether the other part makes its step before the factors do."""
        super().__init__(anchored)
        self.other, self.first = torch.nn.Linear(1, 1), first
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.other.parameters(), lr=LR), super().configure_optimizers()

    def training_step(self, batch: Any, index: int) -> None:  # type: ignore[override]
        losses = (
            lambda: self.other(self.other.weight.new_ones(1)).sum(),
            lambda: self.anchored.loss(batch, exact_loss),
        )
        parts: Any = zip(losses, self.optimizers(), strict=True)  # type: ignore[arg-type]
        for loss, optimizer in parts if self.first else reversed([*parts]):
            self.manual_backward(loss())
            optimizer.step()
            optimizer.zero_grad()


def beside_another(anchors: tuple[str, ...], *, first: bool) -> Anchored:
    anchored = anchored_of(peft_model(), anchors, "shared")
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        precision="64-true",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=[AnchorCallback(anchored, TASKS[0])],
    )
    loader: Any = DataLoader(TASKS[0], batch_size=BATCH, collate_fn=batch_of)  # type: ignore[arg-type]
    trainer.fit(BesideAnother(anchored, first), loader)
    return anchored


def test_a_step_of_another_part_needs_no_anchors() -> None:
    assert beside_another(("sd",), first=True).completed == 1


def test_a_step_of_another_part_ends_no_step_of_the_factors() -> None:
    """Else si would see what the factors did after it, nothing."""
    after, before = (beside_another(("si",), first=first) for first in (True, False))
    assert_same(before, after)


def test_a_step_that_was_interrupted_is_no_part_of_the_path() -> None:
    """The next fit goes on with the task, and not with the gradient that was left."""
    anchored = anchored_of(peft_model(), ("si",), "shared")
    nothing: Any = None
    callback = AnchorCallback(anchored, TASKS[0])
    callback.on_train_start(nothing, nothing)
    anchored.loss(batch_of(TASKS[0][:2]), exact_loss).backward()
    assert anchored.task is not None and anchored.task.fit_gradient
    callback.on_train_start(nothing, nothing)
    assert anchored.task.fit_gradient == {}


class TwoSteps(Tuned):
    """Manual optimisation: a step of each half of a batch; within: in ``anchored.step()``."""

    def __init__(self, anchored: Anchored, within: bool) -> None:
        super().__init__(anchored)
        self.automatic_optimization, self.within = False, within

    def training_step(self, batch: Any, index: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()
        for half in (0, 1):
            part = {name: value[half::2] for name, value in batch.items()}
            loss = self.anchored.loss(part, exact_loss)
            optimizer.zero_grad()
            self.manual_backward(loss)
            with self.anchored.step() if self.within else nullcontext():
                optimizer.step()


def two_steps(within: bool) -> Anchored:
    anchored = anchored_of(peft_model(), ("si",), "shared")
    options: Any = {"logger": False, "enable_checkpointing": False, "precision": "64-true"}
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[AnchorCallback(anchored, TASKS[0])],
        **options,
    )
    trainer.fit(TwoSteps(anchored, within), DataLoader([batch_of(TASKS[0])], batch_size=None))  # type: ignore[arg-type]
    return anchored


def test_several_steps_of_a_batch() -> None:
    """The callback sees the end of a batch alone, and si the gradient of each step."""
    by_hand = anchored_of(peft_model(), ("si",), "shared")
    by_hand.begin(TASKS[0])
    optimizer = Tuned(by_hand).configure_optimizers()
    for half in (0, 1):
        by_hand.loss(batch_of(TASKS[0][half::2]), exact_loss).backward()
        with by_hand.step():
            optimizer.step()
        optimizer.zero_grad()
    by_hand.end()
    assert_same(two_steps(within=True), by_hand)
    with pytest.raises(HoldfastError, match=r"every optimizer.step\(\) into `with anchored.step"):
        two_steps(within=False)


def test_an_optimizer_that_moves_within_its_step() -> None:
    anchored = anchored_of(peft_model(), ("si",), "merge")
    anchored.begin(TASKS[0])
    optimizer = torch.optim.LBFGS(list(anchored.workspace.parameters().values()), max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = anchored.loss(batch_of(TASKS[0]), exact_loss)
        loss.backward()
        return loss

    with pytest.raises(HoldfastError, match="such as LBFGS"), anchored.step():
        optimizer.step(closure)
    anchored.loss(batch_of(TASKS[0]), exact_loss)  # the interrupted step is forgotten
