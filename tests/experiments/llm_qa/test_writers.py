"""What a model is asked, and what the offline grammar writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.paper.llm_qa import (
    GrammarWriter,
    LLMQASettings,
    ModelWriter,
    Request,
    generate,
    prompt_for,
    topics,
)
from experiments.paper.llm_qa.validator import normalised
from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters

FIRST = Request(task=1, topic=topics()[0], number=1, candidates=10, seed=42)


class Model:
    name = "listening"
    batch = 4

    def __init__(self) -> None:
        self.heard: list[tuple[list[Prompt], SamplingParameters]] = []

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        self.heard.append((list(prompts), sampling))
        yield 1, Failure("timed out")
        yield 0, ["the reply"]


def test_the_prompt_asks_for_what_is_validated() -> None:
    prompt = prompt_for(FIRST)
    assert prompt.system
    for needed in (FIRST.topic.phrase, "10", '"entity"', '"question"', '"answer"', "line break"):
        assert needed in prompt.text
    assert "at most eight words" in prompt.text
    assert "no real person, place, organisation, work or event" in prompt.text


def test_prompts_differ_by_number_seed_and_topic_and_by_nothing_else() -> None:
    assert prompt_for(FIRST) == prompt_for(replace(FIRST))
    others = [replace(FIRST, number=2), replace(FIRST, seed=43), replace(FIRST, topic=topics()[1])]
    assert len({prompt_for(request).text for request in (FIRST, *others)}) == 4
    # The number of the task names its randomness, but tells the model nothing.
    elsewhere = prompt_for(replace(FIRST, task=2))
    assert elsewhere.text == prompt_for(FIRST).text
    assert elsewhere.name == "llm-qa 2 1" != prompt_for(FIRST).name


def test_a_model_is_asked_once_a_request_with_the_seed_of_the_stream() -> None:
    model = Model()
    writer = ModelWriter(model, SamplingParameters(samples=5, temperature=0.4, seed=7))
    requests = [FIRST, replace(FIRST, number=2)]
    assert dict(writer.write(requests)) == {0: "the reply", 1: Failure("timed out")}
    (prompts, sampling), *rest = model.heard
    assert not rest
    assert prompts == [prompt_for(request) for request in requests]
    assert (sampling.samples, sampling.seed, sampling.temperature) == (1, 42, 0.4)
    assert (writer.name, writer.kind, writer.batch) == ("listening", "model", 4)
    assert writer.settings["temperature"] == 0.4
    assert writer.settings.keys().isdisjoint({"seed", "samples"})


def test_the_defaults_fill_a_hundred_tasks_of_a_hundred_distinct_facts(tmp_path: Path) -> None:
    stream = generate(GrammarWriter(), tmp_path, LLMQASettings())
    items = [item for task in stream.tasks for item in task.items]
    assert [len(task.items) for task in stream.tasks] == [100] * 100
    assert len({normalised(item.question) for item in items}) == 10_000
    assert len({normalised(item.details["entity"]) for item in items}) == 10_000
    assert sum(stream.about["rejected"].values()) < 100
    assert stream.about["prompts"] < 1_050
    # Facts, not a handful of answers that guessing would find.
    assert len({item.answer for item in items}) > 5_000


def test_a_reply_depends_on_topic_number_and_seed_alone() -> None:
    def reply(request: Request, beside: int = 0) -> str:
        others = [replace(FIRST, number=9)] * beside
        return str(dict(GrammarWriter().write([*others, request]))[beside])

    assert reply(FIRST) == reply(FIRST, beside=3) == reply(replace(FIRST, task=5))
    others = [replace(FIRST, number=2), replace(FIRST, seed=43), replace(FIRST, topic=topics()[1])]
    assert len({reply(request) for request in (FIRST, *others)}) == 4
    assert len(json.loads(reply(replace(FIRST, candidates=4)))) == 4
