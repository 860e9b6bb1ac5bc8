"""What a model is asked depends on the request alone, and says what the paper asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.paper.llm_qa import ModelWriter, Request, prompt_for, topics
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


def test_the_record_of_a_model_says_how_it_was_sampled() -> None:
    writer = ModelWriter(Model(), SamplingParameters(temperature=0.4, seed=7))
    assert (writer.name, writer.kind, writer.batch) == ("listening", "model", 4)
    assert writer.settings["temperature"] == 0.4
    assert writer.settings.keys().isdisjoint({"seed", "samples"})
