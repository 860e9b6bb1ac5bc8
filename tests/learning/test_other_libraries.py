"""Settings of other libraries get an answer, and every setting that an answer names exists."""

from __future__ import annotations

import re

import pytest

from holdfast import HoldfastError, RunConfig, recipe
from holdfast.core.config import build
from holdfast.learning.other_libraries import ANSWERS
from holdfast.studies.recipe import SuiteRecipe

SETTING = re.compile(r"(?<![-\w.])[a-z_]+(?:\.[a-z_]+)*=[\w.\-\[\],]*[\w\]]")
# The names that a newcomer is most likely to bring along.
NEWCOMERS = [
    "learning_rate", "num_train_epochs", "per_device_train_batch_size", "max_grad_norm",
    "gradient_accumulation_steps", "warmup_ratio", "lr_scheduler_type", "lora_alpha",
    "lora_dropout", "r", "target_modules", "use_rslora", "bf16", "fp16", "torch_dtype",
    "load_in_4bit", "gradient_checkpointing", "attn_implementation", "device_map", "model_revision",
    "trust_remote_code", "push_to_hub", "report_to", "logging_steps", "save_steps", "eval_steps",
    "data_seed", "max_seq_length", "packing", "neftune_noise_alpha", "deepspeed", "fsdp",
    "torch_compile", "output_dir", "max_steps", "resume_from_checkpoint", "model_name_or_path",
    "dataset_name", "mem_size", "ewc_lambda",
]  # fmt: skip


def refusal(*overrides: str, name: str = "demo") -> str:
    with pytest.raises(HoldfastError) as caught:
        RunConfig.of(recipe(name), overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_what_an_answer_names_is_a_setting_that_takes_the_value(name: str) -> None:
    answer = ANSWERS[name]
    assert "\n" not in answer
    assert not answer.endswith(".")
    for setting in SETTING.findall(answer):
        RunConfig.of({}, [setting])
    # A dotted name without a value would escape the check.
    dotted = re.findall(r"(?<![\w.])[a-z_]+\.[a-z_]+(?![\w=])", answer)
    assert set(dotted) <= {"facts.jsonl", "log.jsonl", "metrics.json"}


def test_the_pattern_finds_the_settings_of_the_answers() -> None:
    found = {setting for answer in ANSWERS.values() for setting in SETTING.findall(answer)}
    expected = {"optim.lr=1e-4", "lora.targets=[q_proj,v_proj]", "seed=42", "stream.seed=42"}
    assert expected <= found
    assert "model_name=" not in found


@pytest.mark.parametrize("section", ["", "lora.", "backbone.", "training."])
@pytest.mark.parametrize("name", NEWCOMERS)
def test_an_unknown_setting_of_another_library_gets_its_answer(name: str, section: str) -> None:
    said = refusal(f"{section}{name}=1")
    assert said == f"configuration: unknown key {section}{name}; {ANSWERS[name]}"
    assert "\n" not in said


def test_no_setting_of_this_library_is_answered_as_another_librarys() -> None:
    """Only what is unknown is looked up, so these need no answer; `optim` is a section."""
    assert ANSWERS.keys() & RunConfig.model_fields.keys() == {"optim"}
    RunConfig.of({}, ["optim.max_steps=3"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["Gradient-Checkpointing=true"], "write backbone.checkpointing=true, which"),
        (["trainer.args.report_to=wandb"], "unknown key trainer.args.report_to; no tracker is"),
        (["optim=adamw_8bit"], 'optim = "adamw_8bit": is a section of settings; the optimiser is'),
        (["lora=true"], "lora = true: is a section of settings; known: lora.rank, lora.alpha"),
        (["weight_decay=0.1"], "unknown key weight_decay; did you mean optim.weight_decay?"),
        (["optim.rank=8"], "unknown key optim.rank; did you mean lora.rank?"),
        (["max_new_tokens=8"], "mean sampling.max_new_tokens or evaluation.max_new_tokens?"),
        (["optim.lrr=1"], "unknown key optim.lrr; did you mean optim.lr?"),
    ],
)
def test_where_an_unknown_setting_is_looked_for(overrides: list[str], message: str) -> None:
    assert message in refusal(*overrides)


def test_a_study_says_where_the_settings_of_its_runs_stand() -> None:
    values = {"base": "demo", "methods": ["vanilla"], "seeds": [1]}
    with pytest.raises(HoldfastError) as caught:
        build(SuiteRecipe, {**values, "learning_rate": 1e-4}, source="suite mine.yaml")
    assert str(caught.value) == (
        "suite mine.yaml: unknown key learning_rate; write optim.lr=1e-4; "
        "under set, where the settings of the runs stand dotted"
    )
    with pytest.raises(HoldfastError, match="unknown key report_to; no tracker is called"):
        build(SuiteRecipe, {**values, "report_to": "wandb"}, source="suite mine.yaml")
