"""Anchors in transformers' Trainer and in TRL's SFTTrainer: one ``train()`` is one task.

::

    from holdfast.integrations.hf_trainer import with_anchors

    method = {"anchors": ["kfac", "replay"], "allocation": "merge"}
    for dataset in tasks:
        trainer = with_anchors(SFTTrainer)(
            model=model, args=args, train_dataset=dataset, peft_config=lora, anchored=method
        )
        trainer.train()
        model, lora, method = trainer.model, None, trainer.anchored
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.integrations.anchored import Anchored
from holdfast.integrations.reader import tensors_of
from holdfast.integrations.state import FILE

_Trainer: Any = Trainer  # its methods are only partly typed


class AnchoredTrainer(_Trainer):  # type: ignore[misc]
    """The class that :func:`with_anchors` mixes into a Trainer's class.

    anchored: the method with its state; give it to the next task's trainer.
    """

    anchored: Anchored

    def __init__(self, *given: Any, anchored: Anchored | Mapping[str, Any], **options: Any) -> None:
        """anchored: the previous task's, or the keyword arguments of a new one.

        The other arguments are the trainer's. Raises HoldfastError if the model is not the previous
        task's, and for all that :class:`~holdfast.integrations.Anchored` refuses.
        """
        _check_given(anchored)
        super().__init__(*given, **options)
        if self.args.n_gpu > 1:
            raise HoldfastError(
                f"{self.args.n_gpu} GPUs are visible to one process; set CUDA_VISIBLE_DEVICES=0"
            )
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:  # DeepSpeed steps in backward()
            raise HoldfastError(
                "DeepSpeed and FSDP make the step or keep the factors where anchors do not see "
                "them; leave them out"
            )
        if self.model_init is not None:
            raise HoldfastError("model_init makes the model anew; give the trainer a model")
        if isinstance(anchored, Mapping):
            size = self.args.per_device_train_batch_size
            tokenizer = self.processing_class
            anchored = Anchored(self.model, tokenizer, **{"batch_size": size, **anchored})
        if anchored.reader.model is not self.model:
            raise HoldfastError(
                "the trainer has another model than the task before; give it model=trainer.model "
                "of that one, and no peft_config"
            )
        if self.args.use_liger_kernel and anchored.needs("fit_gradient"):
            raise HoldfastError(
                "si needs a second backward pass, which Liger's fused loss does not have; leave "
                "use_liger_kernel out"
            )
        self.anchored = anchored
        self._terms: dict[str, list[Tensor]] = {}
        self.add_callback(_Steps(anchored))

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """Learn the next task; with ``resume_from_checkpoint`` continue it, bit for bit.

        Raises HoldfastError if the checkpoint has no state of the anchors.
        """
        place = resume_from_checkpoint
        if place is True:
            place = get_last_checkpoint(self.args.output_dir)
            if place is None:
                raise HoldfastError(
                    f"{self.args.output_dir} has no checkpoint to resume from; call train()"
                )
        if place:
            for name in (FILE, TRAINER_STATE_NAME):
                if not (Path(place) / name).exists():
                    raise HoldfastError(
                        f"{place} has no {name}: it is not whole, or was made without anchors; "
                        "resume from an earlier checkpoint"
                    )
            self.anchored.load(place)
        task = self.anchored.task
        if task is not None and not place:  # it was interrupted: go on with it
            task.interrupted = True
        sequences = _sequences(self)
        with self.accelerator.autocast():
            self.anchored.begin(*sequences)
        result = super().train(resume_from_checkpoint=place or None, **options)
        if (task := self.anchored.task) and task.sequences is None:  # of the best step
            self.anchored.begin(*sequences)
        self.anchored.end()
        return result

    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """Load nothing: the anchors' state has the factors, of which PEFT would make float32."""

    def _load_best_model(self) -> None:
        """Load the best step's factors with all that the anchors remember of it."""
        self.anchored.load(self.state.best_model_checkpoint)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The trainer's loss, and in training the anchors' terms too."""
        given = {"return_outputs": return_outputs, "num_items_in_batch": num_items_in_batch}
        if not model.training or self.anchored.task is None:
            return super().compute_loss(model, inputs, **given)
        batch = dict(inputs)
        with self.accelerator.autocast():
            teacher = self.anchored.teacher_states(batch)
            with self.anchored.reader.capturing():
                result = super().compute_loss(model, inputs, **given)
            loss, outputs = result if return_outputs else (result, None)
            total = self.anchored.objective(
                batch,
                loss,
                teacher,
                fraction=1 / self.current_gradient_accumulation_steps,
                scaled=self._is_scaled(num_items_in_batch),
            )
        for name, term in self.anchored.terms.items():
            self._terms.setdefault(name, []).append(term)
        return (total, outputs) if return_outputs else total

    def _is_scaled(self, num_items_in_batch: Any) -> bool:
        """Whether the trainer's loss is divided for gradient accumulation already."""
        declared: bool | None = getattr(self, "loss_is_scaled_for_ga", None)
        if declared is not None:
            return declared
        by_tokens = self.model_accepts_loss_kwargs and num_items_in_batch is not None
        return by_tokens or self.compute_loss_func is not None

    def _clip_grad_norm(self, model: Any) -> Any:
        self.anchored.adjust_gradient()
        return super()._clip_grad_norm(model)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before the trainer's own files: after them it deletes older checkpoints.
        directory = Path(self._get_output_dir(trial=trial))
        self.anchored.save(directory / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        super()._save_checkpoint(model, trial)

    def log(self, logs: dict[str, float], *given: Any, **options: Any) -> None:
        """Log also the means of the trainer's loss and of each anchor's unweighted term."""
        if "loss" in logs:
            means = {name: float(sum(values) / len(values)) for name, values in self._terms.items()}
            logs |= {f"anchors/{name}": mean for name, mean in means.items()}
            self._terms = {}
        super().log(logs, *given, **options)


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Calls the anchors around every optimiser step."""

    def __init__(self, anchored: Anchored) -> None:
        self._anchored = anchored

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._anchored.task is not None:
            self._anchored.task.forget_step()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.max_grad_norm <= 0:  # no clipping, in which it would have been adjusted
            self._anchored.adjust_gradient()
        self._anchored.before_step()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._anchored.after_step()


def with_anchors(trainer: type) -> Any:
    """A subclass of a Trainer's class with anchors: it takes one more argument, ``anchored``.

    trainer: transformers' ``Trainer`` or a subclass of it whose ``compute_loss`` runs the model,
    such as TRL's ``SFTTrainer``.
    """
    return type(f"Anchored{trainer.__name__}", (AnchoredTrainer, trainer), {})


def _check_given(anchored: Any) -> None:
    """Raise HoldfastError unless it is an Anchored, or the keyword arguments of one."""
    if isinstance(anchored, Anchored):
        return
    if not isinstance(anchored, Mapping):
        raise HoldfastError(
            f"anchored = {' '.join(repr(anchored).split()):.60}: give settings by name, such as "
            "{'anchors': ['sd']}, or trainer.anchored of the task before"
        )
    arguments = signature(Anchored).parameters.values()
    known = [argument.name for argument in arguments if argument.kind is argument.KEYWORD_ONLY]
    for name in anchored:
        if name not in known:
            raise HoldfastError(
                f'anchored: "{name}" is no setting; {did_you_mean(str(name), known)}'
            )


def _sequences(trainer: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids and labels of each training sequence, as the trainer's collator makes them."""
    dataset = trainer.train_dataset
    if dataset is None:
        raise HoldfastError("the trainer has no train_dataset; give it the sequences of its task")
    if not hasattr(dataset, "__len__") or isinstance(dataset, IterableDataset):
        raise HoldfastError(
            "train_dataset has no length or no rows by number, and anchors look at the whole task; "
            "give a dataset of rows, such as a list"
        )
    collate = trainer.data_collator
    if hasattr(dataset, "column_names"):
        dataset = trainer._remove_unused_columns(dataset, description="training")
    else:
        collate = trainer._get_collator_with_removed_columns(collate, description="training")
    ids, labels = [], []
    for index in range(len(dataset)):
        batch = collate([dataset[index]])
        tokens, real, trained, more = tensors_of(batch)
        if len(tokens) != 1:
            raise HoldfastError(
                f"the collator makes {len(tokens)} rows of one example, such as a pair of answers; "
                "anchors need one sequence an example"
            )
        label = tokens.masked_fill(~trained, -100)[real]
        cuts: list[int] = []
        if "position_ids" in more and bool(real.all()):  # several documents in one row
            cuts = (more["position_ids"][0] == 0).nonzero().flatten()[1:].tolist()
        documents = tokens[real].tensor_split(cuts)
        for document, targets in zip(documents, label.tensor_split(cuts), strict=True):
            if len(document) > 1:
                ids.append(document.tolist())
                labels.append(targets.tolist())
    return ids, labels
