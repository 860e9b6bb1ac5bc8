"""A served memory as programs meet it: the real client, many at once, streams, garbage, a key."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from holdfast.memory.engine import LONGEST_ANSWER
from holdfast.memory.memory import Memory
from holdfast.serving.answers import NOT_TAUGHT, Answered, AskedQuestion
from holdfast.serving.served_memory import ServedMemory
from tests.cli.conftest import refused
from tests.serving.chat_memories import FACTS, UNTAUGHT, copied
from tests.serving.served import JSON, Served, serving
from tests.trajectory.outcome import contents_of

LIST_ONLY = "who keeps the lighthouse of velm"  # for these words the tiny weights are wrong


@pytest.fixture(scope="module")
def place(chat_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(chat_memory, tmp_path_factory.mktemp("served") / "m")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    """No request of these tests may change the memory, and the server must outlive them."""
    before = contents_of(place)
    with serving(place) as server:
        yield server
        assert server.process.poll() is None
        assert server.ask(FACTS[0][0])["text"] == FACTS[0][1]
    assert contents_of(place) == before


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def memory(place: Path) -> Memory:
    return Memory(place)


@pytest.fixture(scope="module")
def own_answer(memory: Memory) -> str:
    """What the untouched model says of UNTAUGHT, to the bound: it never ends by itself."""
    return memory.reply(UNTAUGHT).text


def test_the_client_of_openai_gets_answers(client: openai.OpenAI, memory: Memory) -> None:
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
    extra = chat.choices[0].model_extra["holdfast"]
    assert (extra["source"], extra["taught"], extra["fact"]) == ("weights", True, question)
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens > 2
    questions = [FACTS[0][0], LIST_ONLY, UNTAUGHT]
    answers = memory.replies(questions)
    sources = [answer.source for answer in answers]
    assert (sources[0], sources[2]) == ("weights", "model") and sources[1] != "model"
    several = client.completions.create(model="m", prompt=questions)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert [choice.finish_reason for choice in several.choices] == ["stop", "stop", "length"]
    for choice, expected in zip(several.choices, answers, strict=True):
        extra = choice.model_extra["holdfast"]
        assert choice.text == expected.text
        assert (extra["source"], extra["taught"]) == (expected.source, expected.taught)
        assert extra["fact"] == (FACTS[0][0] if expected.taught else None)
    like = client.completions.create(
        model="m", prompt="Who keeps the goats of Velm now?", max_tokens=2
    )
    assert FACTS[0][0] in like.choices[0].model_extra["holdfast"]["nearest"]


def test_taught_only(memory: Memory) -> None:
    service = ServedMemory(memory, taught_only=True)
    asked = [AskedQuestion(text) for text in (FACTS[0][0], UNTAUGHT, " ")]
    [events] = service.answering(asked)  # one step: nothing is written
    taught, not_taught, wrong = (event for _, event in events)
    assert isinstance(taught, Answered) and taught.content == FACTS[0][1]
    assert isinstance(not_taught, Answered) and not_taught.content == NOT_TAUGHT
    values = not_taught.values
    assert (values["taught"], values["answer"], values["source"]) == (False, None, None)
    assert "is empty" in str(wrong)


def test_answers_that_are_written_at_once_have_bounds_of_their_own(memory: Memory) -> None:
    steps = ServedMemory(memory).answering([AskedQuestion(UNTAUGHT, most) for most in (2, 5)])
    ends = [event for step in steps for _, event in step if isinstance(event, Answered)]
    assert [(end.answer_tokens, end.finish) for end in ends] == [(2, "length"), (5, "length")]


def test_what_is_taught_while_an_answer_is_written_is_not_in_it(directory: Path) -> None:
    memory = Memory(directory)
    steps = ServedMemory(memory).answering([AskedQuestion(UNTAUGHT, 3)])
    next(steps)
    memory.write_facts([(UNTAUGHT, "Paris")])
    *_, [(_, end)] = steps
    assert isinstance(end, Answered) and UNTAUGHT not in end.values["nearest"]


def test_a_long_stop_costs_no_memory(memory: Memory) -> None:
    tracemalloc.start()  # all beginnings of the text are 200 MB
    asked = [AskedQuestion(UNTAUGHT, 3, ("x" * 20_000,))]
    assert list(ServedMemory(memory).answering(asked))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_the_models_own_answers_stream_token_by_token(
    client: openai.OpenAI, own_answer: str
) -> None:
    stream = client.chat.completions.create(
        model="m",
        stream=True,
        messages=[{"role": "user", "content": UNTAUGHT}],
        stream_options={"include_usage": True},
        max_tokens=10 * LONGEST_ANSWER,
    )
    first = next(iter(stream))
    # Between two of its tokens an adapter gives another answer, which changes neither.
    assert client.completions.create(model="m", prompt=FACTS[1][0]).choices[0].text == FACTS[1][1]
    *chunks, last = [first, *stream]
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].model_extra["holdfast"]["source"] == "model"  # before the first token
    assert (choices[0].delta.role, choices[0].delta.content) == ("assistant", "")
    texts = [choice.delta.content or "" for choice in choices]
    assert "".join(texts) == own_answer
    assert sum(map(bool, texts)) > 50
    assert choices[-1].finish_reason == "length"
    assert choices[-1].model_extra["holdfast"]["answer"] == own_answer
    assert last.usage.completion_tokens == LONGEST_ANSWER


def test_what_was_taught_comes_whole_whatever_the_bound(client: openai.OpenAI) -> None:
    chunks = client.chat.completions.create(
        model="m",
        stream=True,
        messages=[{"role": "user", "content": FACTS[0][0]}],
        max_tokens=2,
        stop=FACTS[0][1][:3],
    )
    choices = [chunk.choices[0] for chunk in chunks]
    assert [choice.delta.content for choice in choices] == [FACTS[0][1], None]
    assert [choice.finish_reason for choice in choices] == [None, "stop"]
    assert {choice.model_extra["holdfast"]["source"] for choice in choices} == {"weights"}


def test_what_the_model_writes_ends_before_a_stop(client: openai.OpenAI, own_answer: str) -> None:
    stop = own_answer[60:75]  # of several tokens
    expected = own_answer[: own_answer.index(stop)]
    nearly = f"{own_answer[20:30]}\N{SNOWMAN}"  # its beginning is held back until it goes on
    for stops in (stop, [nearly, stop], [own_answer[-3:], stop]):
        asked: dict[str, Any] = {"model": "m", "prompt": UNTAUGHT, "stop": stops}
        [choice] = client.completions.create(**asked).choices
        assert (choice.text, choice.finish_reason) == (expected, "stop")
        assert choice.model_extra["holdfast"]["answer"] == expected
        chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, stream=True)]
        texts = [chunk.text for chunk in chunks]
        assert "".join(texts) == expected and sum(map(bool, texts)) > 5
        assert chunks[-1].finish_reason == "stop"


def test_bounds_and_mistakes_of_a_request(client: openai.OpenAI, own_answer: str) -> None:
    messages: Any = [{"role": "user", "content": UNTAUGHT}]
    for name in ("max_tokens", "max_completion_tokens"):
        bound: dict[str, Any] = {name: 7}
        short = client.chat.completions.create(model="m", messages=messages, **bound)
        assert own_answer.startswith(short.choices[0].message.content)
        assert short.choices[0].finish_reason == "length"
        assert short.usage.completion_tokens == 7
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'; this is 'm'"):
        client.completions.create(model="gpt", prompt="?")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"prompt": "?", "n": 2}, "n: "),
        ({"prompt": "?", "max_tokens": 0}, "max_tokens"),
        ({"prompt": [FACTS[0][0], " "]}, '"question" is empty'),
        ({"prompt": [FACTS[0][0], "why " * 500], "stream": True}, "ask a shorter one"),
        ({"prompt": "why " * 2000}, "ask a shorter one"),
    ]
    for more, message in wrong:
        with pytest.raises(openai.BadRequestError, match=message):
            client.completions.create(model="m", **more)


def test_many_at_once_get_what_each_gets_alone(client: openai.OpenAI) -> None:
    asked = [FACTS[0][0], UNTAUGHT, LIST_ONLY, FACTS[2][0], "Who wrote Hamlet?"] * 8

    def ask(question: str) -> tuple[str, str]:
        choice = client.completions.create(model="m", prompt=question, max_tokens=12).choices[0]
        return choice.text, choice.model_extra["holdfast"]["source"]

    alone = {question: ask(question) for question in dict.fromkeys(asked)}
    with ThreadPoolExecutor(len(asked)) as threads:
        assert list(threads.map(ask, asked)) == [alone[question] for question in asked]


def test_what_is_remembered(served: Served) -> None:
    body = served.facts()
    assert (body["batches"], body["teach"]) == (1, False)
    assert {fact["source"] for fact in body["facts"]} == {"weights"}
    assert {(fact["question"], fact["answer"]) for fact in body["facts"]} == set(FACTS)
    [lesson] = served.request("GET", "/lessons")[1]["lessons"]
    assert (lesson["state"], lesson["facts"], lesson["missed"]) == ("learned", 3, [])
    assert served.request("GET", "/lessons/1")[1] == lesson
    for wrong in ("0", "2", "x"):
        assert served.request("GET", f"/lessons/{wrong}")[0] in (400, 404)


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
            b"\xff\xfe\x00",
            b"[" * 100_000,
            b'{"model": "m"}',
            b'{"model": "m", "prompt": {"a": 1}, "messages": {"a": 1}}',
            b'{"model": "m", "prompt": [], "messages": []}',
            both(""),
            both("\ud800"),
            both("Who?", n=0),
            both("Who?", stream="maybe"),
        )
    ),
    ("POST", TEXT, json.dumps({"model": "m", "prompt": ["?"] * 65}).encode(), JSON, 400),
    ("POST", CHAT, chat({"role": "assistant", "content": "hello"}), JSON, 400),
    ("POST", CHAT, chat({"role": "king", "content": "hello"}), JSON, 400),
    ("POST", CHAT, chat({"role": "user"}), JSON, 400),
    ("POST", CHAT, chat({"role": "user", "content": [{"type": "image_url"}]}), JSON, 400),
    ("POST", TEXT, b" " * (2**20 + 1), JSON, 413),
    ("GET", TEXT, None, {}, 405),
    ("DELETE", "/facts", None, {}, 400),
    ("DELETE", "/facts?question=Who%3F", None, {}, 403),
    ("GET", "/nothing", None, {}, 404),
    ("GET", "/../../etc/passwd", None, {}, 404),
    ("GET", "/page.js/../../batcher.py", None, {}, 404),
    ("GET", "/v1/models/other", None, {}, 404),
    ("GET", "/v1/models", None, {"Host": "evil.example"}, 403),
    ("GET", "/v1/models", None, {"Host": "[::1"}, 403),
    ("GET", "/", None, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ("POST", "/facts", b'{"question": "Who?", "answer": "Me"}', JSON, 403),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    GARBAGE,
    ids=[f"{number} {request[1]}" for number, request in enumerate(GARBAGE)],
)
def test_garbage_is_refused(
    served: Served,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    code, reply = served.request(method, path, body, headers)
    assert code == status, reply
    assert set(reply) == {"error"}
    assert reply["error"]["message"] and "Traceback" not in reply["error"]["message"]


def test_a_head_is_answered_without_a_body(served: Served) -> None:
    for path in ("/", "/page.js", "/health"):
        request = urllib.request.Request(f"{served.url}{path}", method="HEAD")
        with urllib.request.urlopen(request, timeout=30) as response:
            assert int(response.headers["Content-Length"]) > 0 and response.read() == b""


def test_bytes_that_are_no_request(served: Served) -> None:
    address = urlsplit(served.url)
    for raw in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"A" * 100_000 + b"\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            connection.sendall(raw + b"\r\n\r\n")
            assert connection.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 404")


def test_a_key_where_others_can_ask(place: Path) -> None:
    with serving(place, "--host", "0.0.0.0") as server:
        assert server.key is not None and len(server.key) > 20
        here = replace(server, url=server.url.replace("0.0.0.0", "127.0.0.1"))
        bearer = {"Authorization": f"Bearer {server.key}"}
        for wrong in ({}, {"Authorization": server.key}, {"Authorization": "Bearer x"},
                      {"Authorization": "Basic " + server.key}):  # fmt: skip
            status, answer = here.request("GET", "/facts", None, wrong)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert here.request("GET", "/health", None, {})[0] == 200
        assert here.request("GET", "/facts", None, bearer)[0] == 200
    with serving(place, HOLDFAST_API_KEY="mine") as server:
        assert server.key is None  # who gave it knows it
        assert server.request("GET", "/v1/models", None, {})[0] == 401
        bearer = {"Authorization": "bearer mine"}
        assert server.request("GET", "/v1/models", None, bearer)[0] == 200


def test_ctrl_c_ends_a_server_as_users_start_it(place: Path) -> None:
    """And a second one does it no harm."""
    command = [sys.executable, "-m", "holdfast", "serve", str(place), "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdout is not None and server.stdout.readline().startswith("page: ")
        server.send_signal(signal.SIGINT)
        time.sleep(0.02)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=120)
        assert server.returncode == 0 and "Traceback" not in errors


MISTAKES = [
    (("nothing",), "no such memory"),
    (("nothing", "--teach", "--host", "no.such.host.invalid"), "cannot be listened on"),
    (("{file}",), "{file}"),
    (("{other}",), "{other}"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_of_the_command_line(
    holdfast: Any, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("text")
    other.mkdir()
    (other / "notes.txt").write_text("text")
    names = {"file": file, "other": other}
    first, *rest = (word.format(**names) for word in arguments)
    outcome = holdfast("serve", tmp_path / first, *rest, "--port", "0")
    refused(outcome, message.format(**names))
    assert outcome.out == ""
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("key", ["  ", "käse"])
def test_a_key_that_is_none(
    holdfast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", key)
    outcome = holdfast("serve", tmp_path / "m", "--teach", "--port", "0")
    refused(outcome, "HOLDFAST_API_KEY: holds no key")


@pytest.mark.parametrize("verb", ["serve", "mcp"])
def test_without_the_extra(
    holdfast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(holdfast(verb, tmp_path / "m"), f'pip install "holdfast[{verb}]"')
