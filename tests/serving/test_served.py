"""A served memory as programs meet it: the real client, many at once, teaching, garbage."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest

from holdfast import Memory
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, rehearsing_memory
from tests.serving.served import JSON, Served, lessons, serving
from tests.trajectory.outcome import contents_of, result_of

UNTAUGHT = "Who wrote Hamlet?"
NOT_TAUGHT = "I was not taught that."


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rehearsing_memory(tmp_path_factory.mktemp("served") / "m")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    """No request of these tests may change the memory, and the server must outlive them."""
    before = contents_of(place)
    with serving(place) as one:
        yield one
        assert one.process.poll() is None
        assert one.ask(MONDAY[0][0])["text"] == MONDAY[0][1]
    assert contents_of(place) == before


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def test_the_client_of_openai_gets_answers(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").owned_by == "holdfast"
    question, answer = MONDAY[1]
    chat = client.chat.completions.create(
        model="m",
        temperature=0.7,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": question.lower()}]},
        ],
    )
    assert chat.choices[0].message.content == answer
    assert chat.choices[0].finish_reason == "stop"
    told = chat.choices[0].model_extra["holdfast"]
    assert told["taught"] is True and told["asked"] == question
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens > 2
    asked = [question for question, _ in MONDAY]
    several = client.completions.create(model="m", prompt=[*asked, UNTAUGHT])
    assert [choice.text for choice in several.choices] == [*(a for _, a in MONDAY), NOT_TAUGHT]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    refused = several.choices[3].model_extra["holdfast"]
    assert refused["taught"] is False and refused["answer"] is None and refused["would_say"]


def test_streams_say_the_same(client: openai.OpenAI) -> None:
    question, answer = TUESDAY[0]
    chat = client.chat.completions.create(
        model="m",
        stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": question}],
    )
    chunks = list(chat)
    assert chunks[-1].usage.completion_tokens > 0 and not chunks[-1].choices
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(choice.delta.content or "" for choice in choices) == answer
    assert choices[0].delta.role == "assistant"
    assert [choice.finish_reason for choice in choices] == [None, "stop"]
    assert choices[-1].model_extra["holdfast"]["taught"] is True
    text = client.completions.create(model="m", prompt=UNTAUGHT, stream=True)
    assert "".join(chunk.choices[0].text for chunk in text) == NOT_TAUGHT


def test_the_client_knows_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'; this is 'm'"):
        client.completions.create(model="gpt", prompt="?")
    with pytest.raises(openai.BadRequestError, match="n: "):
        client.completions.create(model="m", prompt="?", n=2)
    with pytest.raises(openai.BadRequestError, match='"question" is empty'):
        client.completions.create(model="m", prompt=["Who?", " "])
    with pytest.raises(openai.BadRequestError, match="ask a shorter one"):
        client.completions.create(model="m", prompt="why " * 2000)


def test_two_hundred_at_once(served: Served, place: Path) -> None:
    questions = [question for question, _ in (*MONDAY, *TUESDAY)]
    asked = [questions[i % 5] if i % 4 else f"Who mends roof {i}?" for i in range(200)]

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            done = [client.completions.create(model="m", prompt=question) for question in asked]
            return [one.choices[0].text for one in await asyncio.gather(*done)]

    memory = Memory(place)
    alone = {question: memory.ask(question) or NOT_TAUGHT for question in dict.fromkeys(asked)}
    assert asyncio.run(all_of_them()) == [alone[question] for question in asked]


def test_slow_clients_hold_nobody_up(served: Served) -> None:
    address = urlsplit(served.url)
    slow = [socket.create_connection((address.hostname, address.port)) for _ in range(50)]
    try:
        for number, one in enumerate(slow):
            head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            whole = head + b"Content-Length: 1000\r\n\r\n{"
            one.sendall(whole if number % 2 else head)  # no end of the head, or of the body
        assert served.ask(MONDAY[0][0])["text"] == MONDAY[0][1]
    finally:
        for one in slow:
            one.close()


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
            b"null",
            b"[]",
            b'"text"',
            b"\xff\xfe\x00",
            b"[" * 100_000,
            b'{"model": "m"}',
            b'{"model": 7, "prompt": "?", "messages": []}',
            b'{"model": "m", "prompt": {"a": 1}, "messages": {"a": 1}}',
            b'{"model": "m", "prompt": [1, 2], "messages": [1, 2]}',
            b'{"model": "m", "prompt": [[1]], "messages": [[]]}',
            b'{"model": "m", "prompt": [], "messages": []}',
            b'{"model": "m", "prompt": null, "messages": null}',
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


def test_what_another_process_teaches_is_taken_up(place: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(place, tmp_path / "m"))
    question, answer = WEDNESDAY[0]
    with serving(own, "--teach") as server:
        assert server.ask(question)["text"] == NOT_TAUGHT
        Memory(own).learn(WEDNESDAY)
        assert server.ask(question)["text"] == answer
        told = server.facts()
        assert (told["batches"], told["teach"], told["teaching"]) == (2, True, False)
        assert told["facts"][0]["question"] == question and told["facts"][0]["batch"] == 2
        assert all(fact["recalled"] for fact in told["facts"])
        assert len(told["retention"]) == 2
        Memory(own).learn([(MONDAY[0][0], "Orsa")])
        first, second, third = server.request("GET", "/lessons")[1]["lessons"]
        assert (first["state"], first["facts"], first["missed"]) == ("learned", 5, [])
        assert second == {
            "lesson": 2,
            "name": "2",
            "state": "learned",
            "facts": 1,
            "learned": 1,
            "missed": [],
            "corrected": [],
        }
        correction = {"question": MONDAY[0][0], "is": "Orsa", "was": MONDAY[0][1]}
        assert third["corrected"] == [correction]
        assert server.request("GET", "/lessons/2")[1] == second
        assert server.request("GET", "/lessons/4")[0] == 404


def test_teaching_by_request(place: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(place, tmp_path / "m"))
    facts = [{"question": question, "answer": answer} for question, answer in WEDNESDAY]
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        before = result_of(own), (own / "facts.jsonl").read_bytes()
        for wrong in ({}, [], "x", 7, [{"question": "Who?"}], {"facts": [], "other": 1},
                      {"facts": facts, "paraphrases": -1}, [["Who?", ""]],
                      [*facts, {"question": WEDNESDAY[0][0], "answer": "another"}]):  # fmt: skip
            status, told = server.post("/facts", wrong)
            assert status == 400, (wrong, told)
        text = {"Content-Type": "text/plain"}
        assert server.request("POST", "/facts", b"[]", text)[0] == 415
        status, told = server.post("/facts", {"question": "Why?", "answer": "so " * 3000})
        assert status == 400 and "max_length" in told["error"]["message"]
        assert (result_of(own), (own / "facts.jsonl").read_bytes()) == before
        lesson = threads.submit(server.post, "/facts", facts)
        asked, states = 0, []
        while not lesson.done():  # it answers meanwhile
            assert server.ask(MONDAY[0][0])["text"] == MONDAY[0][1]
            told = server.request("GET", "/lessons")[1]["lessons"]
            states += [one["state"] for one in told[1:]]
            asked += 1
            time.sleep(0.2)
        status, told = lesson.result()
        assert asked > 1 and {"learning"} <= set(states) <= {"waiting", "learning", "learned"}
        assert (status, told["batches"], told["known"]) == (200, ["2"], 6)
        assert server.ask(WEDNESDAY[0][0])["text"] == WEDNESDAY[0][1]
    straight = Path(shutil.copytree(place, tmp_path / "straight" / "m"))
    Memory(straight).learn(facts)
    assert result_of(own) == result_of(straight)


def test_a_killed_server_loses_nothing(place: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(place, tmp_path / "m"))
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        lesson = threads.submit(server.post, "/facts", WEDNESDAY)
        until = time.monotonic() + 60
        while WEDNESDAY[0][0] not in (own / "facts.jsonl").read_text():
            assert time.monotonic() < until and not lesson.done()
            time.sleep(0.02)
        for pid in (*lessons(server.process.pid), server.process.pid):
            os.kill(pid, 9)
        assert isinstance(lesson.exception(), (OSError, Exception))
    assert Memory(own).horizon == 1
    with serving(own, "--teach") as server:  # it finishes what is on file
        until = time.monotonic() + 60
        while server.facts()["batches"] < 2:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert server.ask(WEDNESDAY[0][0])["text"] == WEDNESDAY[0][1]
    straight = Path(shutil.copytree(place, tmp_path / "straight" / "m"))
    Memory(straight).learn(WEDNESDAY)
    assert result_of(own) == result_of(straight)


def test_a_new_memory_is_taught_by_request(tmp_path: Path) -> None:
    with serving(tmp_path / "m", "--teach", HOLDFAST_MODEL="embedded") as server:
        assert server.facts()["facts"] == []
        assert server.request("GET", "/lessons")[1] == {"lessons": []}
        status, told = server.post("/v1/completions", {"model": "m", "prompt": "Who?"})
        assert status == 400 and "no such memory" in told["error"]["message"]


def test_a_key_where_others_can_ask(place: Path) -> None:
    with serving(place, "--host", "0.0.0.0") as server:
        assert server.key is not None and len(server.key) > 20
        here = Served(server.process, server.url.replace("0.0.0.0", "127.0.0.1"), server.key)
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


@pytest.mark.parametrize("how", [2, 15])
def test_a_signal_ends_it(place: Path, how: int) -> None:
    with serving(place) as server:
        server.process.send_signal(how)
        assert server.process.wait(timeout=30) == 0
