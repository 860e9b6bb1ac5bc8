"""A writer without a language model: it generates names, and facts about them, by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

from experiments.paper.llm_qa.frames import FRAMES, REFERENCES
from experiments.paper.llm_qa.inventions import ANSWERS, entity_name
from experiments.paper.llm_qa.prompt import Request
from holdfast.builders.text_model import Failure
from holdfast.core.seeding import derive


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
