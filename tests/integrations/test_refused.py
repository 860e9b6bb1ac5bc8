"""What is given by mistake is refused in one line, before anything is learned."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import Trainer

from holdfast.core.errors import HoldfastError
from holdfast.integrations import Anchored
from holdfast.integrations.hf_trainer import with_anchors
from tests.integrations.test_anchored import batch_of
from tests.integrations.test_hf_trainer import arguments, method, model_of, trainer_of
from tests.integrations.test_unusual import plain_model
from tests.tiny import short_sequences

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def refused(text: str, work: Any) -> None:
    with pytest.raises(HoldfastError, match=text) as error:
        work()
    assert "\n" not in str(error.value)


def given(**options: Any) -> Anchored:
    return Anchored(plain_model(), **{"begin_with": [7], **options})


@pytest.mark.parametrize("size", [0, -2, 2.5, "4", None, True, float("nan"), float("inf")])
def test_a_batch_of_no_whole_number_of_samples(size: Any) -> None:
    refused("batch_size = .*: give a whole number, 1 at least", partial(given, batch_size=size))


def test_a_whole_number_of_another_kind_is_saved(tmp_path: Path) -> None:
    given(batch_size=torch.tensor(3)).save(tmp_path)
    again = given(batch_size=3.0)
    again.load(tmp_path)
    assert again.batch_size == 3 and type(again.batch_size) is int


def test_what_samples_cannot_begin_with() -> None:
    for ids, token in (([7, 257], 257), ([-1], -1), (torch.tensor([9000]), 9000)):
        refused(
            f"begin_with: {token} is no token of the model; give ids from 0 to 256",
            partial(given, begin_with=ids),
        )
    for other in ("hello", 7, [1.5], ["chat"], torch.tensor([[1, 2], [3, 4]])):
        refused(
            "begin_with = .*: give a list of token ids, or 'chat', the only text",
            partial(given, begin_with=other),
        )
    assert given(begin_with=torch.tensor([7, 8])).begin_with == [7, 8]


def test_anchors_that_are_no_list_of_names() -> None:
    for anchors in ("kfac", "si_sd_merge", None, 3):
        refused(
            r"anchors = .*: give a list of names, such as \['kfac', 'replay'\]",
            partial(given, anchors=anchors),
        )
    refused("anchors: {'si': {}} is no name", partial(given, anchors=[{"si": {}}]))
    refused('anchors: "2" is no anchor', partial(given, anchors={2: {}}))


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


def test_settings_that_are_no_mapping() -> None:
    for section, options in {
        "anchors.si": {"anchors": {"si": 2.0}},
        "allocation.merge": {"allocation": {"merge": "float32"}},
        "sampling": {"sampling": 8},
        "curvature": {"curvature": ["questions"]},
    }.items():
        refused(f"^{section} = .*: give settings by name", partial(given, **options))
    for allocation in (None, ["merge"], 3):
        refused(
            "allocation = .*: give a name, such as 'merge'", partial(given, allocation=allocation)
        )


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.second(torch.relu(self.first(x)))
        return hidden


def test_a_module_that_is_no_language_model() -> None:
    model = get_peft_model(Perceptron(), LoraConfig(r=2, target_modules=["first"]))  # type: ignore[arg-type]
    refused(
        "Perceptron has no decoder below an output layer; anchors need a causal language model",
        lambda: Anchored(model, anchors=["si"]),
    )


def test_a_task_that_is_no_token_ids() -> None:
    anchored = given(anchors=["si"])
    rows = short_sequences(2)
    expected = r"token ids of each sequence are expected: begin\(\[tokenizer"
    for task, what in (
        (["a text", "another"], "sequence 1 of the task is 'a text'"),
        ([rows[0], {"input_ids": rows[1]}], "sequence 2 of the task is {'input_ids'"),
        (["12"], "sequence 1 of the task is '12'"),
        ({"input_ids": rows}, "sequence 1 of the task is 'input_ids'"),
        ("a text", "sequence 1 of the task is 'a'"),
        (rows[0], "sequence 1 of the task is"),
        (torch.ones(1, 2, 3), "sequence 1 of the task is"),
        (None, "the task is None"),
    ):
        refused(f"{what}.*; {expected}", partial(anchored.begin, task))
    refused("row of labels 1 of the task is 'a'; ", partial(anchored.begin, rows, ["a", "b"]))
    anchored.begin(torch.ones(2, 3, dtype=torch.long))


def test_a_step_of_no_minibatches() -> None:
    anchored = given(anchors=["si"])
    rows = short_sequences(2)
    anchored.begin(rows)
    for count in (0, -1, 1.5):
        refused(
            f"accumulation = {count}: give a whole number, 1 at least",
            partial(anchored.loss, batch_of(rows), accumulation=count),
        )


def test_what_a_trainer_takes_for_anchors(tmp_path: Path) -> None:
    for anchored in (["sd"], "sd", None):
        refused(
            r"anchored = .*: give settings by name, such as {'anchors': \['sd'\]}",
            partial(trainer_of, model_of(), tmp_path, anchored, 1),
        )
    for name in ("anchor", "tokenizer"):
        refused(
            f'anchored: "{name}" is no setting; .*anchors',
            partial(trainer_of, model_of(), tmp_path, {name: ["sd"]}, 1),
        )


def test_a_trainer_without_a_task(tmp_path: Path) -> None:
    for dataset, text in (
        (None, "the trainer has no train_dataset"),
        (Dataset.from_dict({"input_ids": [[1, 2]]}).to_iterable_dataset(), "has no length"),
    ):
        trainer = with_anchors(Trainer)(
            model=model_of(),
            args=arguments(tmp_path, max_steps=1),
            train_dataset=dataset,
            anchored=method("si"),
        )
        refused(text, trainer.train)
