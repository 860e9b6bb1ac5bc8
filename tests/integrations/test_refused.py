"""What is given by mistake is refused in one line, before anything is learned."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import IterableDataset
from transformers import AutoConfig, AutoModelForSeq2SeqLM, Trainer

from holdfast.core.errors import HoldfastError
from holdfast.integrations import Anchored
from holdfast.integrations.hf_trainer import with_anchors
from tests.integrations.test_anchored import batch_of, peft_model
from tests.integrations.test_hf_trainer import arguments, dataset_of, method, model_of, trainer_of
from tests.integrations.test_unusual import plain_model
from tests.tiny import exact_backbone, short_sequences

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def refused(text: str, work: Any) -> None:
    with pytest.raises(HoldfastError, match=text) as error:
        work()
    assert "\n" not in str(error.value)


def given(**options: Any) -> Anchored:
    return Anchored(plain_model(), **{"begin_with": [7], **options})


def adapted_head() -> Any:
    model = exact_backbone().model
    model.config.tie_word_embeddings = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "lm_head"]))


def perceptron() -> Any:
    model = nn.ModuleDict({"first": nn.Linear(8, 16)})
    return get_peft_model(model, LoraConfig(r=2, target_modules=["first"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0: give a whole number, 1 at least"),
        ({"batch_size": 2.5}, "batch_size = 2.5: give a whole number"),
        ({"batch_size": "4"}, "batch_size = '4': give a whole number"),
        ({"begin_with": [7, 257]}, "begin_with: 257 is no token .* give ids from 0 to 256"),
        ({"begin_with": [-1]}, "begin_with: -1 is no token of the model"),
        ({"begin_with": "hello"}, "begin_with = 'hello': give a list of token ids, or 'chat'"),
        ({"begin_with": 7}, "begin_with = 7: give a list of token ids"),
        ({"begin_with": [1.5]}, r"begin_with = \[1.5\]: give a list of token ids"),
        ({"begin_with": "chat"}, "begin_with = chat: give the tokenizer"),
        ({"anchors": "si_sd"}, r"anchors = 'si_sd': give a list of names, such as \['kfac'"),
        ({"anchors": None}, "anchors = None: give a list of names"),
        ({"anchors": [{"si": {}}]}, "or settings by name, such as {'kfac'"),
        ({"anchors": ["kfack"]}, '"kfack" is no anchor.*kfac'),
        ({"anchors": {"kfac": {"strengthh": 1}}}, "anchors.kfac.*strengthh"),
        ({"anchors": {"si": 2.0}}, "anchors.si: is a section of settings"),
        ({"allocation": "nothing"}, '"nothing" is no rule'),
        ({"allocation": {"olora": "float32"}}, "allocation.olora: is a section of settings"),
        ({"allocation": ["merge", "olora"]}, "'olora'.: give one name, such as 'merge'"),
        ({"allocation": None}, "allocation = None: give one name"),
        ({"sampling": 8}, "sampling: is a section of settings"),
        ({"sampling": {"keep": True}}, "sampling.keep = True: a loop of your own does not have it"),
        ({"anchors": {"replay": {"minibatches_per_step": 3}}}, "replay.minibatches_per_step = 3"),
        (
            {"anchors": {"general": {"texts": 8, "minibatches_per_step": 3}}},
            "anchors.general.minibatches_per_step = 3",
        ),
        ({"model": exact_backbone().model}, "has no LoRA adapter"),
        ({"model": peft_model(use_dora=True)}, "use_dora"),
        ({"model": peft_model(modules_to_save=["norm"])}, "modules_to_save"),
        ({"model": peft_model(bias="lora_only")}, "bias=lora_only"),
        ({"model": adapted_head()}, "output layer is adapted"),
        ({"model": perceptron()}, "ModuleDict has no decoder below an output layer"),
    ],
)
def test_arguments(options: dict[str, Any], message: str) -> None:
    refused(message, partial(Anchored, **{"model": plain_model(), "begin_with": [7], **options}))


def test_an_encoder_with_a_decoder() -> None:
    config = AutoConfig.for_model(
        "t5", vocab_size=257, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = AutoModelForSeq2SeqLM.from_config(config)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q"]))
    refused("T5For.* anchors need a causal language model", partial(Anchored, adapted))


def test_settings_that_are_none_are_the_defaults() -> None:
    """As an empty section of YAML is read."""
    anchored = given(anchors={"si": None, "sd": {}}, allocation={"merge": None})
    same = given(anchors=["si", "sd"], allocation="merge")
    assert list(anchored.anchors) == list(same.anchors)
    assert all(
        anchor.config == same.anchors[name].config for name, anchor in anchored.anchors.items()
    )
    assert anchored.allocation_name == "merge"
    assert anchored.allocation.config == same.allocation.config


def test_calls_and_tasks() -> None:
    anchored = given(anchors=["sd"])
    rows = short_sequences(2)
    batch = batch_of(rows)
    refused("no task is begun", lambda: anchored.loss(batch))
    refused("no task is begun", anchored.end)
    refused("no sequences", lambda: anchored.begin([]))
    refused("sequence 1 of the task has 1 tokens", lambda: anchored.begin([[1]]))
    refused("2 sequences have labels for 1", lambda: anchored.begin(rows, rows[:1]))
    texts: Any
    for texts in (["a text", "another"], ["12"], [{"input_ids": rows[1]}], rows[0], None):
        refused(r"sequence 1 of.* call begin\(\[tokenizer\(text", partial(anchored.begin, texts))
    refused("sequence 2 of the task is no list", partial(anchored.begin, [rows[0], "a"]))
    refused("row of labels 1 of the task", partial(anchored.begin, rows, ["a", "b"]))
    anchored.begin(torch.tensor([rows[0], rows[0]]))
    refused("is not ended", lambda: anchored.begin(rows))
    task: Any = anchored.task
    task.interrupted = True
    anchored.begin([rows[0], rows[0]])  # goes on, once
    refused("is not ended", lambda: anchored.begin([rows[0], rows[0]]))
    refused("no input_ids", lambda: anchored.loss({"inputs": torch.zeros(1)}))
    refused("the batch's input_ids are no tensor", lambda: anchored.loss({"input_ids": rows}))
    image = {"pixel_values": torch.zeros(2, 3, 8, 8)}
    refused("has pixel_values, and anchors read tokens", partial(anchored.loss, {**batch, **image}))
    refused("labels are no tensor", lambda: anchored.loss({**batch, "labels": rows}))
    vector: Any = lambda model, batch: model(**batch).logits.mean(dim=(1, 2))  # noqa: E731
    refused(r"the loss is \[2\]: let compute", partial(anchored.loss, batch, vector))
    output: Any = lambda model, batch: model(**batch)  # noqa: E731
    refused("the loss is CausalLMOutput", partial(anchored.loss, batch, output))
    refused("accumulation = 0: give a whole number", lambda: anchored.loss(batch, accumulation=0))


def test_processes_that_were_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning starts them in ``fit``, when the Anchored is made already."""
    anchored = given(anchors=["sd"])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    refused("there are 2; start one", lambda: anchored.begin(short_sequences(2)))


def test_what_a_trainer_takes_for_anchors(tmp_path: Path) -> None:
    refused(
        r"anchored = \['sd'\]: give settings by name, such as {'anchors': \['sd'\]}",
        partial(trainer_of, model_of(), tmp_path, ["sd"], 1),
    )
    refused(
        r"anchored = tensor\(\[\[0\], \[0\]\]\): give",  # its text has two lines
        partial(trainer_of, model_of(), tmp_path, torch.zeros(2, 1, dtype=torch.int64), 1),
    )
    refused(
        'anchored: "anchor" is no setting; .*anchors',
        partial(trainer_of, model_of(), tmp_path, {"anchor": ["sd"]}, 1),
    )


def test_a_trainer_without_a_task(tmp_path: Path) -> None:
    for dataset, text in (
        (None, "the trainer has no train_dataset"),
        (Dataset.from_dict({"input_ids": [[1, 2]]}).to_iterable_dataset(), "has no length"),
        (Stream(), "has no length or no rows by number"),
    ):
        trainer = with_anchors(Trainer)(
            model=model_of(),
            args=arguments(tmp_path, max_steps=1),
            train_dataset=dataset,
            anchored=method("si"),
        )
        refused(text, trainer.train)


class Stream(IterableDataset[Any]):
    """Has a length, as a stream may, but no rows by number."""

    def __iter__(self) -> Any:
        yield {"input_ids": [1, 2], "labels": [1, 2]}

    def __len__(self) -> int:
        return 1


def test_a_pair_of_answers_is_no_sequence(tmp_path: Path) -> None:
    """As DPO's collator makes them: they would be one text, of the chosen and the rejected."""
    trainer = trainer_of(model_of(), tmp_path, method("si"), 1)
    trainer.data_collator = lambda _: {"input_ids": torch.tensor([[1, 2], [1, 3]])}
    refused("makes 2 rows of one example", trainer.train)


@pytest.mark.parametrize("engine", ["deepspeed", "fsdp"])
def test_an_engine_that_makes_the_step_itself(engine: str, tmp_path: Path) -> None:
    """Accelerate's backward() is DeepSpeed's step: si would see no movement."""

    class WithEngine(Trainer):
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            setattr(self, f"is_{engine}_enabled", True)

    make: Any = with_anchors(WithEngine)
    refused(
        "DeepSpeed and FSDP make the step",
        lambda: make(model=model_of(), args=arguments(tmp_path), anchored=method("si")),
    )


class WithoutAnchors(Trainer):
    """Computes its loss where no anchor is added to it."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = model(**inputs).loss
        loss.backward()
        return loss.detach()


def test_a_step_in_which_no_anchor_acts(tmp_path: Path) -> None:
    trainer = with_anchors(WithoutAnchors)(
        model=model_of(),
        args=arguments(tmp_path),
        train_dataset=dataset_of(1),
        anchored=method("sd"),
    )
    refused("the step's loss has no anchors in it", trainer.train)
    anchored = given(anchors=[])
    anchored.begin(short_sequences(2))
    anchored.reader.model(**batch_of(short_sequences(2))).loss.backward()
    anchored.before_step()  # where there are none, none is missed


def test_a_pass_that_is_not_the_batchs() -> None:
    anchored = given(anchors=["sd"])
    rows = short_sequences(2)
    batch = batch_of(rows)
    anchored.begin(rows)

    def twice(model: Any, batch: Any) -> Any:
        return model(**{name: torch.cat([value, value]) for name, value in batch.items()}).loss

    def without_the_last(model: Any, batch: Any) -> Any:
        return model(**{name: value[:, :-1] for name, value in batch.items()}).loss

    def reference_too(model: Any, batch: Any) -> Any:
        loss = model(**batch).loss
        with model.disable_adapter():
            return loss - model(**batch).loss

    refused(
        r"pass through the model read \[4, .* make further passes",
        partial(anchored.loss, batch, twice),
    )
    refused(r"pass through the model read \[2, ", partial(anchored.loss, batch, without_the_last))
    refused(
        "no gradient; make a pass without the adapter", partial(anchored.loss, batch, reference_too)
    )
