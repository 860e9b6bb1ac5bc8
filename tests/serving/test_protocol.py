"""What clients of OpenAI's protocol send today: explicit nulls, what is refused, responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from holdfast.serving.application import application
from tests.serving.test_batcher import Writing

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "Who?"}]},
    TEXT: {"model": "m", "prompt": "Who?"},
    RESPONSES: {"model": "m", "input": "Who?"},
}


@pytest.fixture
def service() -> Writing:
    return Writing()


@pytest.fixture
def client(service: Writing) -> Iterator[TestClient]:
    served = application(service, "m", teach=False)  # type: ignore[arg-type]
    with TestClient(served, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("path", ASKED)
def test_an_explicit_null_means_the_default(client: TestClient, path: str) -> None:
    names = (
        *("stream", "n", "temperature", "max_tokens", "max_completion_tokens", "stop", "logprobs"),
        *("top_logprobs", "response_format", "stream_options", "echo", "suffix", "best_of", "user"),
        *("tools", "tool_choice", "text", "background", "previous_response_id", "conversation"),
        *("max_output_tokens", "instructions", "seed", "logit_bias"),
    )
    assert client.post(path, json=ASKED[path] | dict.fromkeys(names)).status_code == 200
    if path != RESPONSES:
        usage = {"stream": True, "stream_options": {"include_usage": None}}
        assert client.post(path, json=ASKED[path] | usage).status_code == 200
    assert client.post(path, json=dict.fromkeys(ASKED[path])).status_code == 400


REFUSED = [
    *((path, {"response_format": {"type": kind}}) for path in (CHAT, TEXT)
      for kind in ("json_object", "json_schema")),
    (CHAT, {"logprobs": True}),
    (CHAT, {"top_logprobs": 2}),
    (TEXT, {"logprobs": 0}),
    (TEXT, {"logprobs": 5}),
    (TEXT, {"echo": True}),
    (TEXT, {"suffix": "x"}),
    (TEXT, {"best_of": 2}),
    (CHAT, {"tool_choice": "required"}),
    (CHAT, {"function_call": {"name": "f"}}),
    (CHAT, {"stop": 5}),
    (CHAT, {"max_tokens": "5"}),
    (TEXT, {"stream": "true"}),
    (CHAT, {"modalities": ["text", "audio"]}),
    (RESPONSES, {"tool_choice": "required"}),
    (RESPONSES, {"max_output_tokens": True}),
    (TEXT, {"stop": ["a", ""]}),
    (TEXT, {"stop": ["a", "b", "c", "d", "e"]}),
    (RESPONSES, {"text": {"format": {"type": "json_schema"}}}),
    (RESPONSES, {"tools": [{"type": "web_search"}]}),
    (RESPONSES, {"background": True}),
    (RESPONSES, {"previous_response_id": "resp_1"}),
    (RESPONSES, {"conversation": "conv_1"}),
    (RESPONSES, {"input": [{"role": "assistant", "content": "x"}]}),
    (RESPONSES, {"input": []}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "more"), REFUSED)
def test_what_is_not_done_is_refused_by_name(
    client: TestClient, path: str, more: dict[str, Any]
) -> None:
    refused = client.post(path, json=ASKED[path] | more)
    assert refused.status_code == 400
    if "input" not in more:
        assert refused.json()["error"]["message"].startswith(f"{next(iter(more))}")


@pytest.mark.parametrize(
    "more",
    [{"response_format": {"type": "text"}}, {"logprobs": False}, {"tools": [{"type": "function"}]}],
)
def test_what_changes_nothing_is_accepted(client: TestClient, more: dict[str, Any]) -> None:
    assert client.post(CHAT, json=ASKED[CHAT] | more).status_code == 200


def test_of_two_bounds_the_newer_one_counts(client: TestClient) -> None:
    bounds = {"max_tokens": 3, "max_completion_tokens": 4}
    answer = client.post(CHAT, json=ASKED[CHAT] | bounds).json()
    assert answer["choices"][0]["finish_reason"] == "length"  # Writing writes four


def test_the_client_of_openai_gets_a_response(client: TestClient, service: Writing) -> None:
    asked = openai.OpenAI(
        base_url="http://testserver/v1", api_key="none", max_retries=0, http_client=client
    )
    message = {"role": "user", "content": [{"type": "input_text", "text": "Who rings?"}]}
    inputs: list[Any] = ["Who rings?", [{"role": "user", "content": "Hello."}, message]]
    for given in inputs:
        response = asked.responses.create(model="m", input=given, instructions="Be brief.")
        assert (response.output_text, response.status) == ("xxxx", "completed")
        assert response.usage is not None and response.usage.total_tokens == 5
        assert response.model_extra == {"holdfast": {"taught": False}}
        assert service.log[-1] == "end Who rings?"
    short = asked.responses.create(model="m", input="Who?", max_output_tokens=4)
    assert short.status == "incomplete" and short.incomplete_details is not None
    assert short.incomplete_details.reason == "max_output_tokens"
    with asked.responses.stream(model="m", input="Who rings?") as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == "xxxx"
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert [e.delta for e in events if e.type == "response.output_text.delta"] == ["x"] * 4


def test_a_mistake_in_a_stream_is_an_event(client: TestClient) -> None:
    refused = client.post(RESPONSES, json={"model": "m", "input": "x" * 4001, "stream": True})
    assert refused.status_code == 400 and "at most 4000" in refused.json()["error"]["message"]
    events = client.post(RESPONSES, json=ASKED[RESPONSES] | {"stream": True}).text
    numbers = [
        json.loads(line[6:])["sequence_number"]
        for line in events.splitlines()
        if line.startswith("data: ")
    ]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        ("{", "application/json", 400, "the body is no JSON: Expecting property name"),
        ('{"prompt": "Who?"}', "text/plain", 415, "send the request as application/json"),
        ("a=b", "application/x-www-form-urlencoded", 415, "send the request as application/json"),
        ("[]", "application/json", 400, "the body: Input should be a valid dictionary"),
    ],
)
def test_a_body_that_is_none(
    client: TestClient, body: str, kind: str, status: int, words: str
) -> None:
    refused = client.post(TEXT, content=body, headers={"content-type": kind})
    assert refused.status_code == status
    assert refused.json()["error"]["message"].startswith(words)
