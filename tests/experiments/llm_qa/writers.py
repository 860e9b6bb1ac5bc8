"""Writers for the tests: scripted, unreliable, and one that must not be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

from experiments.paper.llm_qa import GrammarWriter, Request
from holdfast.builders.text_model import Failure
from holdfast.core.seeding import derive


def record(entity: str, question: str | None = None, answer: object = "ash") -> dict[str, object]:
    """A candidate; without a question, one that names the entity."""
    asked = question or f"What is {entity} made of?"
    return {"entity": entity, "question": asked, "answer": answer}


class Writer:
    """Replies as a function of the request says; remembers what it was asked."""

    kind: Literal["model", "grammar"] = "model"
    settings: Mapping[str, Any] = {}

    def __init__(self, name: str = "scripted", batch: int = 3) -> None:
        self.name, self.batch = name, batch
        self.asked: list[tuple[int, int]] = []

    def reply(self, request: Request) -> str | Failure:
        raise AssertionError(f"asked for task {request.task} number {request.number}")

    def write(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Failure]]:
        assert 0 < len(requests) <= self.batch
        # The last first: the order of the replies must not matter.
        for place, request in reversed(list(enumerate(requests))):
            self.asked.append((request.task, request.number))
            yield place, self.reply(request)


class Scripted(Writer):
    """Replies by (task, number); nothing else may be asked."""

    def __init__(self, script: Mapping[tuple[int, int], object], batch: int = 3) -> None:
        super().__init__(batch=batch)
        self.script = script

    def reply(self, request: Request) -> str | Failure:
        reply = self.script[request.task, request.number]
        return reply if isinstance(reply, str | Failure) else json.dumps(reply)


class Unreliable(Writer):
    """The offline grammar with prose, refusals, cut replies, failures and repeated facts."""

    def reply(self, request: Request) -> str | Failure:
        (_, reply), *_ = GrammarWriter().write([request])
        assert isinstance(reply, str)
        random = Random(derive(request.seed, "unreliable", request.task, request.number))
        match random.randrange(6):
            case 0:
                return Failure("timed out")
            case 1:
                return "No."
            case 2:
                return reply[: random.randrange(len(reply))]
            case 3:
                return json.dumps([record("Common Orlen"), *json.loads(reply)])
        return f"Here they are:\n```json\n{reply}\n```"
