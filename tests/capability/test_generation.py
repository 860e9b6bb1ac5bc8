"""Problems answered by generated text: what is asked, where it ends, what it counts for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.capability import generation
from holdfast.capability.generation import GSM8K, MATH, MGSM, GeneratedSuite
from holdfast.capability.suite import Problem, Sample, score_of
from tests.capability.solver import NEW_TOKENS, of, solver, write_problems
from tests.tiny import exact_backbone

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
    token = backbone.add_replay_token()
    shorter = GSM8K.asked(backbone, item)
    assert (shorter.shots, shorter.tokens[0]) == (without.shots - 1, token)
    backbone.model.config.max_position_embeddings += 1
    longer = GSM8K.asked(backbone, item)
    assert longer == replace(without, tokens=[token, *without.tokens])


def test_all_examples_stand_where_positions_have_no_end() -> None:
    endless: Any = SimpleNamespace(positions=None, tokenizer=solver().tokenizer, opening=[])
    prompt = GSM8K.asked(endless, Problem("gsm8k/1", "", "How many?", "1"))
    assert (prompt.shots, prompt.room) == (4, 512)


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
