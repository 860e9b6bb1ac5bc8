"""Writers of candidates: a language model, and a grammar that invents facts by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeAlias

from experiments.paper.llm_qa.frames import FRAMES, REFERENCES
from experiments.paper.llm_qa.inventions import ANSWERS, entity_name
from experiments.paper.llm_qa.prompt import Request, prompt_for
from holdfast.builders.text_model import Failure, SamplingParameters, TextModel
from holdfast.core.seeding import derive

# A high temperature, so that repeated requests on one topic give new names; ten records take up
# to about 900 tokens.
WRITING = SamplingParameters(temperature=0.9, top_p=0.95, max_new_tokens=1536)


class ModelWriter:
    """A language model as the writer.

    model: on this machine or behind an endpoint. sampling: its ``samples`` is replaced by 1 and
    its ``seed`` by the stream's. A directory of replies is refused to a writer of another name or
    settings. batch: the preferred number of requests per call.
    """

    kind: Literal["model", "grammar"] = "model"

    def __init__(self, model: TextModel, sampling: SamplingParameters = WRITING) -> None:
        self._model = model
        self._sampling = sampling

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._sampling.model_dump(mode="json", exclude={"samples", "seed"})

    @property
    def batch(self) -> int:
        return self._model.batch

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        """Yield (place in ``requests``, reply) in any order, each place once."""
        if not requests:
            return
        sampling = self._sampling.model_copy(update={"samples": 1, "seed": requests[0].seed})
        prompts = [prompt_for(request) for request in requests]
        for place, answer in self._model.answer(prompts, sampling):
            yield place, answer if isinstance(answer, Failure) else answer[0]


class GrammarWriter:
    """Puts invented entities into question frames of their topic, in a model's reply format.

    A reply depends on the request alone. Names are composed of syllables; answers are drawn from
    word lists, independently of the question. As with a model, a name may happen to be real.
    """

    name = "offline grammar"
    kind: Literal["model", "grammar"] = "grammar"
    settings: Mapping[str, Any] = {}
    batch = 100

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        """Yield for each request a JSON array of candidates."""
        for place, request in enumerate(requests):
            yield place, json.dumps(_facts(request), ensure_ascii=False, indent=1)


def _facts(request: Request) -> list[dict[str, str]]:
    topic = request.topic
    random = Random(derive(request.seed, "llm-qa grammar", topic.phrase, request.number))
    frames = FRAMES[topic.family]
    facts = []
    for _ in range(request.candidates):
        kind, frame = random.choice(frames)
        entity = entity_name(random, topic.family)
        reference = random.choice(REFERENCES).format(noun=topic.noun, entity=entity)
        question = frame.format(it=reference)
        facts.append({"entity": entity, "question": question, "answer": ANSWERS[kind](random)})
    return facts


Writer: TypeAlias = ModelWriter | GrammarWriter
