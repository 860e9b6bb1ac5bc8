"""A real server, a real client, a real language model: only what it writes has no meaning."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Answer, Prompt, SamplingParameters
from holdfast.core.errors import HoldfastError
from tests.serving.fixtures import MODEL, serve
from tests.serving.small_writer import RECORDS

FACTS = SamplingParameters(temperature=1.0, top_p=0.95, max_new_tokens=200, seed=3)

KEYS = {"entity", "question", "answer"}


def chats(count: int) -> list[Prompt]:
    return [Prompt(f"facts {i}", "Write facts.", "You write JSON.") for i in range(count)]


def in_order(model: Endpoint, prompts: list[Prompt], sampling: SamplingParameters) -> list[Answer]:
    pairs = sorted(model.answer(prompts, sampling), key=lambda pair: pair[0])
    assert [place for place, _ in pairs] == list(range(len(prompts)))
    return [answer for _, answer in pairs]


def records(answer: Answer) -> list[dict[str, Any]]:
    """The records of a reply; none if it does not parse."""
    assert isinstance(answer, list) and len(answer) == 1
    try:
        parsed = json.loads(answer[0])
    except ValueError:
        return []
    assert isinstance(parsed, list)
    return parsed


def test_chats_are_valid_diverse_facts(endpoint: str) -> None:
    model = Endpoint(endpoint)
    assert model.name == MODEL
    answers = in_order(model, chats(12), FACTS)
    written = [record for answer in answers for record in records(answer)]
    valid = [r for r in written if r.keys() == KEYS and r["entity"] in r["question"]]
    entities = {record["entity"] for record in valid}
    # 120 were asked for, of 14,400 entities.
    assert len(valid) > 0.7 * 12 * RECORDS
    assert len(entities) > 0.9 * len(valid)
    assert all(record["answer"] for record in valid)
    # What the share measures can be missed: no entity stands in the next record's question.
    assert sum(a["entity"] in b["question"] for a, b in pairwise(valid)) < 0.05 * len(valid)


def test_five_samples_are_five_texts_that_stop_where_told(endpoint: str) -> None:
    sampling = SamplingParameters(
        samples=5, temperature=1.0, top_p=1.0, max_new_tokens=30, stop=(",", "?")
    )
    [texts] = in_order(Endpoint(endpoint), [Prompt("p", "Who was it? ")], sampling)
    assert isinstance(texts, list) and len(texts) == 5
    assert len(set(texts)) > 1
    assert not any(stop in text for text in texts for stop in sampling.stop)
    assert any(texts)


def test_one_at_a_time_the_same_seed_writes_the_same(endpoint: str) -> None:
    model = Endpoint(endpoint, concurrency=1)
    once = in_order(model, chats(3), FACTS)
    assert once == in_order(model, chats(3), FACTS)
    other = FACTS.model_copy(update={"seed": 4})
    assert once != in_order(model, chats(3), other)
    assert once[0] != once[1]


def test_a_server_killed_half_way_ends_it_in_one_line(writer: Path) -> None:
    got: list[Answer] = []
    with ExitStack() as server:
        url = server.enter_context(serve(writer))
        model = Endpoint(url, concurrency=2, retries=0, patience=3)

        def read() -> None:
            for _, answer in model.answer(chats(40), FACTS):
                got.append(answer)
                if len(got) == 5:
                    server.close()

        with pytest.raises(HoldfastError) as raised:
            read()
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{url} stopped answering")
    assert 5 <= len(got) < 40
    assert all(isinstance(answer, list) for answer in got)
