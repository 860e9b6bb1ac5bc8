"""The lm-evaluation-harness, with its own wrapper of models, says and scores what we do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.capability import harness
from holdfast.capability.generation import GSM8K, MATH, MGSM, GeneratedSuite, few_shot
from holdfast.capability.suite import Problem
from tests.capability.solver import NEW_TOKENS, solver, write_problems

TASKS = {"holdfast_gsm8k": GSM8K, "holdfast_math": MATH, "holdfast_mgsm_de": MGSM}


class Loader(yaml.SafeLoader):
    """Reads the task files as the harness does, functions by their names."""


Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


@pytest.mark.parametrize("suite", [GSM8K, MATH, MGSM], ids=lambda suite: suite.name)
def test_task_files_stop_where_our_decoding_stops(suite: GeneratedSuite) -> None:
    paths = [*harness.FOLDER.glob(f"{suite.name}.yaml"), *harness.FOLDER.glob(f"{suite.name}_*")]
    tasks = [yaml.load(path.read_text("utf-8"), Loader) for path in paths]  # noqa: S506
    single = [task for task in tasks if "group" not in task]
    assert len(single) == (11 if suite is MGSM else 1)
    for task in single:
        language = task.get("dataset_kwargs", {}).get("language", "en")
        assert task["generation_kwargs"] == {
            "until": [few_shot(suite.name, language).stop],
            "max_gen_toks": suite.new_tokens,
            "do_sample": False,
            "repetition_penalty": 1.0,
        }
        assert task["process_results"].endswith(f".harness.{suite.kind}")
    for group in (task for task in tasks if "group" in task):
        assert sorted(group["task"]) == sorted(task["task"] for task in single)


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    lm_eval = pytest.importorskip("lm_eval", reason="needs lm-eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    write_problems(tmp_path)
    backbone = solver()
    # Which models bring along, generate() obeys, and our decoding does not.
    monkeypatch.setattr(backbone.model.generation_config, "repetition_penalty", 1.5)
    model = HFLM(
        pretrained=backbone.model, tokenizer=backbone.tokenizer, batch_size=4, add_bos_token=False
    )
    manager = TaskManager(
        include_path=str(harness.FOLDER),
        include_defaults=False,
        metadata={"data_root": str(tmp_path), "shots": 0},
    )
    yield lm_eval.simple_evaluate(
        model=model,
        tasks=list(TASKS),
        task_manager=manager,
        gen_kwargs={"max_gen_toks": NEW_TOKENS},
        bootstrap_iters=0,
    )
    harness.checker().close()


@pytest.mark.filterwarnings("ignore")  # of the harness and what it imports
def test_the_harness_says_and_scores_what_we_do(tmp_path: Path, evaluated: dict[str, Any]) -> None:
    for task, suite in TASKS.items():
        ours = replace(suite, shots=0, new_tokens=NEW_TOKENS)
        items: list[Problem] = ours.items(tmp_path)
        samples = {sample.id: sample for sample in ours.answer(solver(), items)}
        theirs = evaluated["samples"][task]
        assert [row["doc"]["id"] for row in theirs] == [item.id for item in items]
        for row in theirs:
            sample = samples[row["doc"]["id"]]
            assert row["arguments"][0][0] == sample.prompt
            assert row["resps"] == [[sample.output]]
            assert row["correct"] == sample.correct
            assert row["extracted"] == (sample.extracted is not None)
        score = evaluated["results"][task]["correct,none"]
        assert score == sum(sample.correct for sample in samples.values()) / len(items)
        assert 0 < score < 1


def test_the_harness_is_given_the_whole_prompt(tmp_path: Path) -> None:
    write_problems(tmp_path)
    (row, *_) = harness.mgsm(data_root=str(tmp_path), language="de", version=1.0)["test"]
    assert row["prompt"] == few_shot("mgsm", "de").prompt("6 * 200?", 4)
    assert (row["target"], row["language"]) == ("1200", "de")
