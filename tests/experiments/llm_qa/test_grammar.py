"""The offline grammar: the same facts every time, no two alike, and enough of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.paper.llm_qa import GrammarWriter, LLMQASettings, Request, generate, topics
from experiments.paper.llm_qa.validator import normalised
from holdfast.streams import Stream

FIRST = Request(task=1, topic=topics()[0], number=1, candidates=10, seed=42)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return generate(GrammarWriter(), tmp_path_factory.mktemp("full"), LLMQASettings())


def test_the_defaults_fill_a_hundred_tasks_of_a_hundred_distinct_facts(stream: Stream) -> None:
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
