"""The client of an endpoint against a real server of a real model, and against none at all."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from holdfast.builders.endpoint import Endpoint
from holdfast.builders.text_model import Answer, Prompt, SamplingParameters
from tests.serving.real_endpoint import MODEL, RECORDS
from tests.serving.stand_in import Reply, refusal, standing_in
from tests.serving.stand_in import endpoint as stand_in

FACTS = SamplingParameters(temperature=1.0, top_p=0.95, max_new_tokens=60, seed=3)


def chats(count: int) -> list[Prompt]:
    return [Prompt(f"facts {i}", "Write facts.", "You write JSON.") for i in range(count)]


def in_order(model: Endpoint, prompts: list[Prompt], sampling: SamplingParameters) -> list[Answer]:
    pairs = sorted(model.answer(prompts, sampling), key=lambda pair: pair[0])
    assert [place for place, _ in pairs] == list(range(len(prompts)))
    return [answer for _, answer in pairs]


def records(answer: Answer) -> list[dict[str, Any]]:
    """The records of a reply; none if it was cut."""
    assert isinstance(answer, list) and len(answer) == 1
    try:
        parsed: list[dict[str, Any]] = json.loads(answer[0])
    except ValueError:
        return []
    return parsed


def test_chats_are_valid_diverse_facts(endpoint: str) -> None:
    model = Endpoint(endpoint)
    assert model.name == MODEL
    answers = in_order(model, chats(12), FACTS)
    written = [record for answer in answers for record in records(answer)]
    assert len(written) > 3 * RECORDS
    for record in written:
        assert record.keys() == {"entity", "question", "answer"} and record["answer"]
        assert record["entity"] in record["question"]
    assert len({record["entity"] for record in written}) > 0.9 * len(written)


def test_five_samples_are_five_texts_that_stop_where_told(endpoint: str) -> None:
    sampling = SamplingParameters(
        samples=5, temperature=1.0, top_p=1.0, max_new_tokens=30, stop=("keeps", "?")
    )
    [texts] = in_order(Endpoint(endpoint), [Prompt("p", "Who was it? ")], sampling)
    assert isinstance(texts, list) and len(texts) == 5
    assert len(set(texts)) > 1
    assert not any(stop in text for text in texts for stop in sampling.stop)
    assert any(texts)


def test_one_at_a_time_the_same_seed_writes_the_same(endpoint: str) -> None:
    model = Endpoint(endpoint, concurrency=1)
    once = in_order(model, chats(2), FACTS)
    assert once == in_order(model, chats(2), FACTS)
    assert once != in_order(model, chats(2), FACTS.model_copy(update={"seed": 4}))
    assert once[0] != once[1]


def test_names() -> None:
    with standing_in() as server:
        assert stand_in(server).name == "first"
        assert stand_in(server, model="other").name == "other"
        for url in (server.url + "/", server.url.removesuffix("/v1")):
            assert Endpoint(url).name == "first"
        # A server that cannot list its models is asked by name.
        server.models = Reply({"detail": "no listing"}, 500)
        assert "does not list" in refusal(lambda: stand_in(server))
        other = stand_in(server, model="other")
        assert list(other.answer([Prompt("p", "text")], SamplingParameters())) == [(0, ["text:0"])]
        server.models = Reply({"data": []})
        assert "its list is empty or none); name the one" in refusal(lambda: stand_in(server))


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://host/v1", "http://host:99999", "http://[::1",
     "http://two words/v1", "http://nul\x00/v1", f"http://{70 * 'a'}.com/v1"],
)  # fmt: skip
def test_what_is_no_url(url: str) -> None:
    assert "http://127.0.0.1:8000/v1" in refusal(lambda: Endpoint(url))


def test_a_password_in_the_url_and_a_broken_key_are_not_shown() -> None:
    with standing_in() as server:
        url = server.url.replace("http://", "http://me:hidden@")
    assert "hidden" not in refusal(lambda: Endpoint(url, "m", retries=0))
    assert "k\u00e9y" not in refusal(lambda: Endpoint(server.url, key="k\u00e9y"))


def test_a_missing_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    assert 'pip install "holdfast[endpoint]"' in refusal(lambda: Endpoint("http://127.0.0.1:1"))
