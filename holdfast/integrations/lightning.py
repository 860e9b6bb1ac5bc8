"""Anchors in PyTorch Lightning: one ``fit`` is one task.

::

    class Tuned(lightning.LightningModule):
        def __init__(self, anchored):
            super().__init__()
            self.anchored, self.model = anchored, anchored.reader.model

        def training_step(self, batch, index):
            return self.anchored.loss(batch, accumulation=self.trainer.accumulate_grad_batches)

    lightning.Trainer(callbacks=[AnchorCallback(anchored, sequences)]).fit(Tuned(anchored), loader)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from holdfast.core.errors import HoldfastError
from holdfast.integrations import state
from holdfast.integrations.anchored import Anchored


class AnchorCallback(Callback):
    """Begins and ends the task, sees every step, and is saved with Lightning's checkpoints.

    sequences, labels: of the task, as ``Anchored.begin`` takes them.
    """

    def __init__(
        self,
        anchored: Anchored,
        sequences: Iterable[Sequence[int]],
        labels: Iterable[Sequence[int]] | None = None,
    ) -> None:
        self._anchored, self._sequences, self._labels = anchored, sequences, labels
        self._loaded: dict[str, Any] | None = None  # a checkpoint's state, until training begins

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raise HoldfastError if averaged weights would replace those that the task ended with."""
        later = trainer.callbacks[trainer.callbacks.index(self) :]  # type: ignore[attr-defined]
        for callback in later:
            kinds = type(callback).__mro__  # older versions of Lightning have one of them
            if any(kind.__name__.endswith("WeightAveraging") for kind in kinds):
                raise HoldfastError(
                    f"{kinds[0].__name__} changes the weights when training ends; put it before "
                    "AnchorCallback"
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()
        task = self._anchored.task
        if task is not None:  # of a checkpoint, or interrupted: go on with it
            task.interrupted = True
            task.forget_step()
        self._anchored.begin(self._sequences, self._labels)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        """The gradient is complete; Lightning clips it after this."""
        self._anchored.adjust_gradient()
        task = self._anchored.task
        # With several optimisers the factors' may have made its step, which after_step() is to see.
        if task is None or task.before is None:
            self._anchored.before_step()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self._anchored.after_step()  # does nothing if the batch made no step

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._anchored.end()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()
        if self._anchored.task is not None:  # resumed from the end of a fit: no step is left
            self.on_train_start(trainer, pl_module)
            self.on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        header, tensors = state.pack(self._anchored)
        return {"header": json.dumps(header), "tensors": tensors}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a checkpoint's state until training begins.

        Lightning moves and converts the model only then, which would round float32 masters.
        """
        self._loaded = state_dict

    def _restore(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            state.unpack(self._anchored, json.loads(loaded["header"]), loaded["tensors"])
