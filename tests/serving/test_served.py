"""A served memory as programs meet it: the real client, many at once, teaching, garbage."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest

from holdfast.serving.batcher import NOT_TAUGHT
from tests.serving.chat_memories import FACTS, UNTAUGHT, copied
from tests.serving.served import JSON, Served, serving
from tests.trajectory.outcome import contents_of


@pytest.fixture(scope="module")
def place(chat_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(chat_memory, tmp_path_factory.mktemp("served") / "m")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    """No request of these tests may change the memory, and the server must outlive them."""
    before = contents_of(place)
    with serving(place, "--taught-only") as one:
        yield one
        assert one.process.poll() is None
        assert one.ask(FACTS[0][0])["text"] == FACTS[0][1]
    assert contents_of(place) == before


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def test_the_client_of_openai_gets_answers(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").owned_by == "holdfast"
    question, answer = FACTS[1]
    chat = client.chat.completions.create(
        model="m",
        temperature=0.7,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": question}]},
        ],
    )
    assert chat.choices[0].message.content == answer
    assert chat.choices[0].finish_reason == "stop"
    told = chat.choices[0].model_extra["holdfast"]
    assert told["taught"] is True and told["fact"] == question
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens > 2
    asked = [question for question, _ in FACTS]
    several = client.completions.create(model="m", prompt=[*asked, UNTAUGHT])
    assert [choice.text for choice in several.choices] == [*(a for _, a in FACTS), NOT_TAUGHT]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    refused = several.choices[3].model_extra["holdfast"]
    assert refused["taught"] is False and refused["answer"] is None
    like = client.completions.create(model="m", prompt="Who keeps the goats of Velm now?")
    assert FACTS[0][0] in like.choices[0].model_extra["holdfast"]["nearest"]


def test_the_client_knows_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'; this is 'm'"):
        client.completions.create(model="gpt", prompt="?")
    with pytest.raises(openai.BadRequestError, match="n: "):
        client.completions.create(model="m", prompt="?", n=2)
    with pytest.raises(openai.BadRequestError, match='"question" is empty'):
        client.completions.create(model="m", prompt=["Who?", " "])
    with pytest.raises(openai.BadRequestError, match="ask a shorter one"):
        client.completions.create(model="m", prompt="why " * 2000)


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def chat(*messages: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages}).encode()


def both(text: str, **more: object) -> bytes:
    """A request that asks the same by either protocol."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "prompt": text, "messages": messages, **more}).encode()


GARBAGE: list[tuple[str, str, bytes | None, dict[str, str], int]] = [
    *(
        ("POST", path, body, JSON, 400)
        for path in (CHAT, TEXT)
        for body in (
            b"",
            b"{",
            b"[]",
            b"\xff\xfe\x00",
            b"[" * 100_000,
            b'{"model": "m"}',
            b'{"model": 7, "prompt": "?", "messages": []}',
            b'{"model": "m", "prompt": {"a": 1}, "messages": {"a": 1}}',
            b'{"model": "m", "prompt": [1, 2], "messages": [1, 2]}',
            b'{"model": "m", "prompt": [], "messages": []}',
            both(""),
            both("\ud800"),
            both("\0"),
            both("Who?", n=0),
            both("Who?", stream="maybe"),
        )
    ),
    ("POST", TEXT, json.dumps({"model": "m", "prompt": ["?"] * 65}).encode(), JSON, 400),
    ("POST", CHAT, chat({"role": "assistant", "content": "hello"}), JSON, 400),
    ("POST", CHAT, chat({"role": "king", "content": "hello"}), JSON, 400),
    ("POST", CHAT, chat({"role": "user"}), JSON, 400),
    ("POST", CHAT, chat({"role": "user", "content": [{"type": "image_url"}]}), JSON, 400),
    ("POST", CHAT, chat({"role": "user", "content": [{"type": "text"}]}), JSON, 400),
    ("POST", TEXT, b" " * (2**20 + 1), JSON, 413),
    ("GET", TEXT, None, {}, 405),
    ("DELETE", "/facts", None, {}, 405),
    ("GET", "/nothing", None, {}, 404),
    ("GET", "/../../etc/passwd", None, {}, 404),
    ("GET", "/page.js/../../batcher.py", None, {}, 404),
    ("GET", "/v1/models/other", None, {}, 404),
    ("GET", "/v1/models", None, {"Host": "evil.example"}, 403),
    ("GET", "/v1/models", None, {"Host": ""}, 403),
    ("GET", "/v1/models", None, {"Host": "[::1"}, 403),
    ("GET", "/v1/models", None, {"Origin": "http://evil.example"}, 403),
    ("GET", "/v1/models", None, {"Origin": "http://[::1"}, 403),
    ("GET", "/v1/models", None, {"Sec-Fetch-Site": "cross-site"}, 403),
    ("GET", "/", None, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ("POST", TEXT, b"{}", {**JSON, "Origin": "null"}, 403),
    ("POST", "/facts", b'{"question": "Who?", "answer": "Me"}', JSON, 403),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    GARBAGE,
    ids=[f"{number} {one[1]}" for number, one in enumerate(GARBAGE)],
)
def test_garbage_is_refused(
    served: Served,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    found, told = served.request(method, path, body, headers)
    assert found == status, told
    assert set(told) == {"error"}
    assert told["error"]["message"] and "Traceback" not in told["error"]["message"]


def test_bytes_that_are_no_request(served: Served) -> None:
    address = urlsplit(served.url)
    for raw in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"A" * 100_000 + b"\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), timeout=30) as one:
            one.sendall(raw + b"\r\n\r\n")
            assert one.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 404")


def test_a_key_where_others_can_ask(place: Path) -> None:
    with serving(place, "--host", "0.0.0.0") as server:
        assert server.key is not None and len(server.key) > 20
        here = replace(server, url=server.url.replace("0.0.0.0", "127.0.0.1"))
        bearer = {"Authorization": f"Bearer {server.key}"}
        for wrong in ({}, {"Authorization": server.key}, {"Authorization": "Bearer x"},
                      {"Authorization": "Basic " + server.key}):  # fmt: skip
            status, told = here.request("GET", "/facts", None, wrong)
            assert (status, told["error"]["code"]) == (401, "invalid_api_key")
        assert here.request("GET", "/health", None, {})[0] == 200
        assert here.request("GET", "/facts", None, bearer)[0] == 200
    with serving(place, HOLDFAST_API_KEY="mine") as server:
        assert server.key is None  # who gave it knows it
        assert server.request("GET", "/v1/models", None, {})[0] == 401
        bearer = {"Authorization": "bearer mine"}
        assert server.request("GET", "/v1/models", None, bearer)[0] == 200


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(place: Path, how: int) -> None:
    with serving(place, anew=how == signal.SIGTERM) as server:
        server.process.send_signal(how)
        assert server.process.wait(timeout=120) == 0
