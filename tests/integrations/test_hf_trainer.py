"""Anchors in transformers' Trainer and TRL's SFTTrainer, with the installed libraries."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainingArguments

from holdfast.core.errors import HoldfastError
from holdfast.integrations import Anchored
from holdfast.integrations.hf_trainer import _sequences, with_anchors
from tests.tiny import byte_tokenizer, tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

TARGETS = ["q_proj", "v_proj", "down_proj"]
ALL = {
    "si": {"strength": 10.0},
    "online_ewc": {"strength": 100.0},
    "kfac": {"strength": 3.0},
    "sd": {"strength": 0.5},
    "replay": {"weight": 0.6},
}
FOUR = ("si", "kfac", "sd", "replay")
SAMPLING = {"samples": 6, "max_new_tokens": 8, "general": 3}
LENGTH = 12


def model_of(**options: Any) -> Any:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config = LoraConfig(r=2, lora_alpha=4, target_modules=TARGETS, **options)
        return get_peft_model(tiny_llama(layers=1), config)


def tokenizer_of() -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def dataset_of(task: int, rows: int = 8) -> Dataset:
    """Sequences of one length, so that a mean of means is the mean."""
    source = torch.Generator().manual_seed(task)
    ids = torch.randint(1, 257, (rows, LENGTH), generator=source).tolist()
    return Dataset.from_list([{"input_ids": row, "labels": row} for row in ids])


def arguments(place: Path, **options: Any) -> TrainingArguments:
    values = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 1,
        "learning_rate": 1e-2,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "use_cpu": True,
        "disable_tqdm": True,
        "lr_scheduler_type": "constant",
    }
    return TrainingArguments(output_dir=str(place), **{**values, **options})


def method(*names: str, rule: Any = "merge", **options: Any) -> dict[str, Any]:
    settings = {name: ALL[name] for name in names}
    return {"anchors": settings, "allocation": rule, "sampling": SAMPLING, **options}


def trainer_of(
    model: Any, place: Path, anchored: Any, task: int, evaluated: bool = False, **options: Any
) -> Any:
    if evaluated:
        options |= {"eval_strategy": "steps", "eval_steps": 1}
    return with_anchors(Trainer)(
        model=model,
        args=arguments(place, **options),
        train_dataset=dataset_of(task),
        eval_dataset=dataset_of(7, 3) if evaluated else None,
        processing_class=tokenizer_of(),
        anchored=anchored,
    )


def learned(place: Path, anchored: Any, tasks: int = 2, **options: Any) -> Any:
    """The trainer of the last of so many tasks."""
    model = model_of()
    for task in range(1, tasks + 1):
        trainer = trainer_of(model, place, anchored, task, **options)
        trainer.train()
        anchored = trainer.anchored
    return trainer


def outcome(trainer: Any) -> dict[str, Tensor]:
    anchored = trainer.anchored
    return {
        **anchored.workspace.copied(),
        **{f"dense {name}": tensor for name, tensor in anchored.workspace.dense().items()},
        **{
            f"{name} {key}": tensor
            for name, anchor in anchored.anchors.items()
            for key, tensor in anchor.pack(anchored.states[name]).items()
        },
    }


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], **close: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if close:
            torch.testing.assert_close(tensor, theirs[name], **close)
        else:
            assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What two tasks come to with the anchors ``FOUR``."""
    return outcome(learned(tmp_path_factory.mktemp("plain"), method(*FOUR)))


def test_it_is_the_bare_loop(tmp_path: Path) -> None:
    """The same batches through AdamW by hand."""
    names = tuple(ALL)
    trainer = learned(
        tmp_path, method(*names), num_train_epochs=2, train_sampling_strategy="sequential"
    )
    model = model_of()
    anchored = Anchored(model, tokenizer_of(), batch_size=4, **method(*names))
    for task in (1, 2):
        rows = torch.tensor(dataset_of(task)["input_ids"])
        anchored.begin(rows.tolist())
        factors = list(anchored.workspace.parameters().values())
        optimizer = torch.optim.AdamW(factors, lr=1e-2, weight_decay=0.0)
        model.train()
        for ids in [*rows.split(4)] * 2:
            given = {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}
            anchored.loss(given).backward()
            torch.nn.utils.clip_grad_norm_(factors, 1.0)
            with anchored.step():
                optimizer.step()
            optimizer.zero_grad()
        anchored.end()
    logged = [line for line in trainer.state.log_history if "loss" in line]
    assert all(logged[-1][f"anchors/{name}"] > 0 for name in names)
    trainer_outcome = outcome(trainer)
    trainer.anchored = anchored
    assert_same(outcome(trainer), trainer_outcome, rtol=1e-4, atol=1e-5)


def test_accumulation_of_the_same_batch(tmp_path: Path) -> None:
    """One minibatch of four, and four of one, by tokens or not: the terms count once a step."""
    rule = {"olora": {"overlap": 0.05, "factor_norm": 0.01}}  # it has a penalty of its own
    outcomes = []
    for size, accumulation, scaled in ((4, 1, True), (1, 4, True), (1, 4, False)):
        anchored: Any = method("si", "online_ewc", "kfac", "sd", rule=rule, batch_size=4)
        model = model_of()
        for task in (1, 2):
            trainer = trainer_of(
                model,
                tmp_path,
                anchored,
                task,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=accumulation,
            )
            trainer.model_accepts_loss_kwargs = scaled
            trainer.train()
            anchored = trainer.anchored
        outcomes.append(outcome(trainer))
    for accumulated in outcomes[1:]:
        assert_same(accumulated, outcomes[0], rtol=2e-3, atol=2e-5)


def test_a_resumed_trainer_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    names = tuple(ALL)
    straight = learned(tmp_path / "straight", method(*names), save_strategy="steps", save_steps=1)
    model, place = model_of(), tmp_path / "stopped"
    first = trainer_of(model, place, method(*names), 1)
    first.train()
    first.anchored.save(tmp_path / "between")
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    second = trainer_of(model, place, first.anchored, 2, **options)
    second.add_callback(Stop(after=1))
    second.train()
    # Another process: a new model, the state from the checkpoint.
    again = trainer_of(model_of(), place, method(*names), 2, **options)
    again.train(resume_from_checkpoint=str(place / "checkpoint-1"))
    assert again.state.global_step == straight.state.global_step == 2
    assert_same(outcome(again), outcome(straight))
    # And a new process between two tasks.
    later = trainer_of(model_of(), place, method(*names), 2)
    later.anchored.load(tmp_path / "between")
    later.train()
    assert_same(outcome(later), outcome(straight))


class Stop(TrainerCallback):
    """Ends training after so many steps, as a limit of time does."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step >= self.after
        return control


@pytest.mark.parametrize("name", ["holdfast.safetensors", "trainer_state.json"])
def test_a_checkpoint_that_is_not_whole_is_refused(name: str, tmp_path: Path) -> None:
    plain = trainer_of(model_of(), tmp_path, method("si"), 1, save_strategy="steps", save_steps=1)
    plain.train()
    (tmp_path / "checkpoint-2" / name).unlink()
    again = trainer_of(model_of(), tmp_path, method("si"), 1)
    with pytest.raises(HoldfastError, match=f"checkpoint-2 has no {name}"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """The trainer deletes older checkpoints when the new one is whole, not earlier."""
    options = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1}
    trainer = trainer_of(model_of(), tmp_path, method("si"), 1, **options)
    save = trainer.anchored.save

    def fill_the_disk(place: Path) -> None:
        if trainer.state.global_step == 2:
            raise HoldfastError("the disk is full")
        save(place)

    trainer.anchored.save = fill_the_disk
    with pytest.raises(HoldfastError, match="the disk is full"):
        trainer.train()
    again = trainer_of(model_of(), tmp_path, method("si"), 1)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert again.state.global_step == 2


def test_evaluation_between_steps_changes_nothing(plain: dict[str, Tensor], tmp_path: Path) -> None:
    trainer = learned(tmp_path, method(*FOUR), evaluated=True)
    assert any("eval_loss" in line for line in trainer.state.log_history)
    assert_same(outcome(trainer), plain)


def interrupted(tmp_path: Path) -> Any:
    """A trainer that Ctrl-C ended in the second step of its first task."""
    trainer = trainer_of(model_of(), tmp_path, method("si", "sd"), 1)
    trainer.add_callback(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    return trainer


def test_an_interrupted_task_goes_on(tmp_path: Path) -> None:
    """train() again begins the same task anew, from where it stands."""
    trainer = interrupted(tmp_path)
    again = trainer_of(trainer.model, tmp_path, trainer.anchored, 1)
    again.train()
    assert again.anchored.completed == 1
    with pytest.raises(HoldfastError, match="has no checkpoint to resume from"):
        again.train(resume_from_checkpoint=True)


def test_an_interrupted_task_may_be_ended_for_another(tmp_path: Path) -> None:
    """As when its data were wrong: what it has learned of them stays."""
    trainer = interrupted(tmp_path)
    other = trainer_of(trainer.model, tmp_path, trainer.anchored, 2)
    with pytest.raises(HoldfastError, match=r"begun with other .* call end\(\), or load"):
        other.train()
    other.anchored.end()
    other.train()
    assert other.anchored.completed == 2


class Interrupt(TrainerCallback):
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 1:
            raise KeyboardInterrupt


def test_the_best_step_is_what_the_task_ends_with(tmp_path: Path) -> None:
    """The factors and what the anchors remember are of the same step."""
    trainer = learned(
        tmp_path,
        method("si", rule="shared"),
        tasks=1,
        evaluated=True,
        num_train_epochs=2,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        learning_rate=0.3,
    )
    best = Path(trainer.state.best_model_checkpoint)
    assert best.name != "checkpoint-4"
    other = Anchored(model_of(), tokenizer_of(), batch_size=4, **method("si", rule="shared"))
    other.load(best)
    for name, factor in other.workspace.copied().items():
        assert torch.equal(trainer.anchored.states["si"]["reference"][name], factor)


def test_documents_that_are_packed_in_a_row_are_sequences(tmp_path: Path) -> None:
    trainer = trainer_of(model_of(), tmp_path, method("si"), 1)
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0]])
    trainer.train_dataset = [0]
    trainer.data_collator = lambda _: {"input_ids": ids, "position_ids": places, "labels": ids}
    assert _sequences(trainer) == ([[1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3], [4, 5, 6, 7]])


def test_another_model_than_before_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(model_of(), tmp_path, method("si"), 1)
    with pytest.raises(HoldfastError, match="another model than the task before"):
        trainer_of(model_of(), tmp_path, trainer.anchored, 2)


def test_clipping_sees_the_anchors(tmp_path: Path) -> None:
    """A strong penalty is part of the gradient whose norm is clipped."""
    strong: Any = {**method(rule="shared"), "anchors": {"online_ewc": {"strength": 1e9}}}
    weak: Any = {**method(rule="shared"), "anchors": {"online_ewc": {"strength": 0.0}}}
    norms = []
    for anchored in (weak, strong):
        trainer = learned(tmp_path, anchored, max_grad_norm=1e-3)
        norms.append([line["grad_norm"] for line in trainer.state.log_history if "loss" in line])
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-5)  # at the reference it pulls nowhere
    assert norms[1][-1] > 10 * norms[0][-1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool, plain: dict[str, Tensor], tmp_path: Path) -> None:
    options = {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": reentrant},
    }
    if reentrant:
        with pytest.raises(HoldfastError, match="use_reentrant': False"):
            learned(tmp_path, method("si"), tasks=1, **options)
        return
    ours = learned(tmp_path, method(*FOUR), **options)
    assert_same(outcome(ours), plain, rtol=1e-4, atol=1e-6)


def test_compiled(plain: dict[str, Tensor], tmp_path: Path) -> None:
    """The states come from a hook, which a compiled model has to see in every step."""
    options = {"torch_compile": True, "torch_compile_backend": "aot_eager"}
    ours = learned(tmp_path, method(*FOUR), **options)
    assert_same(outcome(ours), plain, rtol=1e-3, atol=1e-5)


def test_rows_of_a_plain_list_with_further_columns() -> None:
    """The trainer leaves them out in its collator; so do the anchors' sequences."""
    rows = [{**dataset_of(1)[number], "source": "a page"} for number in range(4)]
    trainer = with_anchors(Trainer)(
        model=model_of(),
        args=arguments(Path("unused")),
        train_dataset=rows,
        processing_class=tokenizer_of(),
        anchored={"anchors": ["si"]},
    )
    assert _sequences(trainer)[0] == [row["input_ids"] for row in rows]


def test_the_scale_of_rslora() -> None:
    """alpha / sqrt(r) instead of alpha / r, in the curvature term and in the merge."""
    plain, root = (
        Anchored(model_of(use_rslora=rs), tokenizer_of(), allocation="merge")
        for rs in (False, True)
    )
    scales = [next(iter(anchored.workspace.layers.values())).scale for anchored in (plain, root)]
    assert scales == [2.0, pytest.approx(4 / 2**0.5)]
    for anchored, scale in zip((plain, root), scales, strict=True):
        layer = next(iter(anchored.workspace.layers.values()))
        with torch.no_grad():
            layer.lora_B.fill_(0.1)
        expected = layer.weight + scale * layer.lora_B @ layer.lora_A
        anchored.workspace.fold()
        torch.testing.assert_close(layer.weight, expected.detach())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_log_is_of_the_steps_since_the_one_before(tmp_path: Path) -> None:
    trainer = learned(tmp_path, method(), tasks=1, num_train_epochs=4)
    logs = [line for line in trainer.state.log_history if "loss" in line]
    assert len(logs) == 8 and logs[0]["loss"] - logs[-1]["loss"] > 0.01
    for line in logs:
        assert line["anchors/own_loss"] == pytest.approx(line["loss"], abs=1e-3)
