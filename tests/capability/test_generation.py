"""Problems answered by generated text: what is asked, where it ends, what it counts for.

The lm-evaluation-harness, with its own wrapper of models, says and scores the same. The model is
tiny and was taught the answers to a few problems, right ones and wrong ones.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from holdfast.backbone.model import Backbone
from holdfast.capability import generation, harness
from holdfast.capability.generation import GSM8K, MATH, MGSM, GeneratedSuite, few_shot
from holdfast.capability.problems import Problem, Sample
from holdfast.capability.run import score_of
from tests.tiny import END, byte_tokenizer, exact_backbone, tiny_llama

NEW_TOKENS = 56


@dataclass(frozen=True)
class Lesson:
    """A problem, what the model says to it, and what that has to come to."""

    suite: str
    question: str
    target: str
    reply: str
    output: str
    extracted: str | None
    correct: bool
    ended: str = "stop"


# The first says more than its answer: if the next problem did not end it, it would be wrong.
LESSONS = [
    Lesson("gsm8k", "2 + 3?", "5", " It is 5.\n\nQuestion: 9?", " It is 5.\n", "5", True),
    Lesson("gsm8k", "Who?", "5", " I do not know.", " I do not know.", None, False),
    Lesson("gsm8k", "6 * 200?", "1,200", " It is 1,200.", " It is 1,200.", "1200", True),
    Lesson("gsm8k", "4 + 4?", "8", " It is 7.", " It is 7.", "7", False),
    Lesson("gsm8k", "Why?", "8", " 8" + " or so" * 12, " 8" + " or so" * 9, "8", True, "length"),
    Lesson("gsm8k", "And?", "8", "", "", None, False),
    Lesson("math", "Half?", "0.5", r" \boxed{\frac12}", r" \boxed{\frac12}", r"\frac12", True),
    Lesson("math", "Dozen?", "12", r" \boxed{1}", r" \boxed{1}", "1", False),
    Lesson("mgsm", "6 * 200?", "1,200", " Also 1.200.", " Also 1.200.", "1200", True),
    Lesson("mgsm", "Wer?", "5", " 5, also 6.", " 5, also 6.", "6", False),
]
PROMPTS = {
    "gsm8k": "Question: {}\nAnswer:",
    "math": "Problem: {}\nSolution:",
    "mgsm": "Frage: {}\nAntwort Schritt für Schritt:",
}


def of(suite: str) -> list[Lesson]:
    """The lessons of one suite, in order."""
    return [lesson for lesson in LESSONS if lesson.suite == suite]


def write_problems(root: Path) -> None:
    """The problems of all lessons in the published formats; those of MGSM are German."""
    rows = [{"question": each.question, "answer": f"#### {each.target}"} for each in of("gsm8k")]
    _write(root / "gsm8k/test.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    rows = [
        {"problem": each.question, "solution": rf"\boxed{{{each.target}}}", "unique_id": str(place)}
        for place, each in enumerate(of("math"))
    ]
    _write(root / "math/math_splits/test.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    lines = "".join(f"{lesson.question}\t{lesson.target}\n" for lesson in of("mgsm"))
    _write(root / "mgsm/mgsm_de.tsv", lines)


@functools.cache
def solver() -> Backbone:
    """The model: it answers a problem, asked without examples, as its lesson says, and stops."""
    tokenizer = byte_tokenizer()
    model = tiny_llama(width=32)
    model.model.embed_tokens.weight.data.mul_(0.3)  # drawn to be large, which is hard to teach
    prompts = [
        tokenizer(PROMPTS[lesson.suite].format(lesson.question))["input_ids"] for lesson in LESSONS
    ]
    rows = [
        prompt + tokenizer(lesson.reply + END)["input_ids"]
        for prompt, lesson in zip(prompts, LESSONS, strict=True)
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    for row, prompt in zip(labels, prompts, strict=True):
        row[: len(prompt)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.0)
    model.train()
    for _ in range(300):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.02:
            break
    return Backbone(model, tokenizer)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


SUITES = [GSM8K, MATH, MGSM]


def without_examples(suite: GeneratedSuite) -> GeneratedSuite:
    return replace(suite, shots=0, new_tokens=NEW_TOKENS)


def answered(suite: GeneratedSuite, items: list[Problem]) -> dict[str, Sample]:
    samples = list(suite.answer(solver(), items))
    assert len({sample.id for sample in samples}) == len(samples) == len(items)
    return {sample.id: sample for sample in samples}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_outputs_end_at_the_next_problem_and_are_checked(
    suite: GeneratedSuite, tmp_path: Path
) -> None:
    write_problems(tmp_path)
    suite = without_examples(suite)
    items = suite.items(tmp_path)
    samples = answered(suite, items)
    for item, lesson in zip(items, of(suite.name), strict=True):
        sample = samples[item.id]
        assert sample.prompt.count(lesson.question) == 1
        outcome = (sample.output, sample.extracted, sample.correct, sample.details["ended"])
        assert outcome == (lesson.output, lesson.extracted, lesson.correct, lesson.ended)
    if suite is GSM8K:
        # Nothing is generated after the next problem has begun; a token is a byte.
        assert samples[items[0].id].details["tokens"] == len(" It is 5.\n\nQuestion:")
        score = score_of(samples.values())
        counts = (score.items, score.answered, score.extracted, score.failed, score.correct)
        assert counts == (6, 5, 4, 2, 3)


def test_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_problems(tmp_path)
    suite = without_examples(GSM8K)
    items = suite.items(tmp_path)[:4]
    at_once = answered(suite, items)
    monkeypatch.setattr(generation, "_TOKENS_IN_CACHE", 1)
    assert answered(suite, items) == at_once


@pytest.mark.parametrize("room", [0, 1, 499, 500, 900, 1400, 1600, 2100])
def test_examples_are_dropped_from_the_front_and_a_question_never(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = solver()
    item = Problem("gsm8k/1", "", "How many?", "1")
    prompts = [generation.few_shot("gsm8k").prompt("How many?", shots) for shots in range(5)]
    lengths = [len(prompt) for prompt in prompts]
    context = room + 512
    monkeypatch.setattr(backbone.model.config, "max_position_embeddings", context)
    asked = GSM8K.asked(backbone, item)
    wanted = min(512, context // 2)
    fitting = [shots for shots in range(5) if lengths[shots] + wanted <= context]
    assert asked.shots == max(fitting)
    assert asked.text == prompts[asked.shots] and asked.text.endswith("How many?\nAnswer:")
    assert len(asked.tokens) == lengths[asked.shots] and asked.room == wanted


def test_the_token_of_a_model_trained_with_it_stands_first_and_takes_its_place() -> None:
    backbone = exact_backbone()
    item = Problem("gsm8k/1", "", "How many?", "1")
    without = GSM8K.asked(backbone, item)
    backbone.model.config.max_position_embeddings = len(without.tokens) + 512
    assert GSM8K.asked(backbone, item) == without
    endless: Any = SimpleNamespace(positions=None, tokenizer=backbone.tokenizer, opening=[])
    assert GSM8K.asked(endless, item) == without
    token = backbone.add_replay_token()
    shorter = GSM8K.asked(backbone, item)
    assert (shorter.shots, shorter.tokens[0]) == (without.shots - 1, token)
    backbone.model.config.max_position_embeddings += 1
    longer = GSM8K.asked(backbone, item)
    assert longer == replace(without, tokens=[token, *without.tokens])


def test_a_question_that_is_too_long_has_less_room_and_then_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = solver()
    long, longer = ("x" * count for count in (40, 80))
    monkeypatch.setattr(backbone.model.config, "max_position_embeddings", 70)
    items = [Problem(f"gsm8k/{n}", "", text, "5") for n, text in enumerate((long, longer))]
    prompt = GSM8K.asked(backbone, items[0])
    assert prompt.shots == 0 and prompt.room == 70 - len(f"Question: {long}\nAnswer:") == 12
    samples = answered(GSM8K, items)
    assert samples["gsm8k/0"].details["tokens"] <= 12
    unanswered = samples["gsm8k/1"]
    assert (unanswered.output, unanswered.extracted, unanswered.correct) == ("", None, False)
    assert unanswered.details == {"shots": 0, "tokens": 0, "ended": "no room"}
    assert longer in unanswered.prompt


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
