"""A writer that needs no model: it invents names, and facts about them, by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

from holdfast.builders.llm_qa.frames import FRAMES, REFERENCES
from holdfast.builders.llm_qa.inventions import ANSWERS, entity_name
from holdfast.builders.llm_qa.prompt import Request
from holdfast.builders.text_model import Failure
from holdfast.core.seeding import derive


class GrammarWriter:
    """Invented entities in question frames that fit their topic, replied as a model would reply.

    A reply depends on the request alone. Names are put together from syllables, answers from word
    lists, independently of the question; as with a model, nobody checks that a name is nobody's.
    """

    name = "offline grammar"
    kind: Literal["model", "grammar"] = "grammar"
    settings: Mapping[str, Any] = {}
    batch = 100

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        """Reply to each request with a JSON array of its candidates."""
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
