"""A served memory: sources, streams, lessons in the background, kills."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from holdfast.cli.serve import tell_waiting
from holdfast.memory.limits import LONGEST_ANSWER
from holdfast.memory.memory import Memory
from holdfast.memory.states import PROGRESS_FILE, lesson_states
from tests.serving.chat_memories import (
    FACTS,
    LATER,
    MANY,
    MORE,
    UNTAUGHT,
    copied,
    learned,
    model_of,
    when,
)
from tests.serving.served import Served, serving

LIST_ONLY = (
    "who keeps the lighthouse of velm"  # in these words the tiny weights give another answer
)


@pytest.fixture(scope="module")
def served(chat_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """No request of these tests may change the memory, and the server must outlive them."""
    own = copied(chat_memory, tmp_path_factory.mktemp("served") / "m")
    before = learned(own)
    with serving(own) as one:
        yield one
        assert one.process.poll() is None
    assert learned(own) == before


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as one:
        yield one


def said(client: openai.OpenAI, question: str, **more: Any) -> list[Any]:
    """The chunks of an answer by the chat protocol."""
    messages = [{"role": "user", "content": question}]
    return list(client.chat.completions.create(model="m", stream=True, messages=messages, **more))


def test_every_answer_says_where_it_comes_from(client: openai.OpenAI, chat_memory: Path) -> None:
    memory = Memory(chat_memory)
    questions = [FACTS[0][0], LIST_ONLY, UNTAUGHT]
    answers = memory.replies(questions)
    sources = [answer.source for answer in answers]
    assert (sources[0], sources[2]) == ("weights", "model") and sources[1] != "model"
    several = client.completions.create(model="m", prompt=questions)
    for choice, answer in zip(several.choices, answers, strict=True):
        told = choice.model_extra["holdfast"]
        assert choice.text == answer.text
        assert (told["source"], told["taught"]) == (answer.source, answer.taught)
        assert told["fact"] == (FACTS[0][0] if answer.taught else None)
    assert [choice.finish_reason for choice in several.choices] == ["stop", "stop", "length"]
    for question, answer in zip(questions, answers, strict=True):
        chat = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": question}]
        )
        assert chat.choices[0].message.content == answer.text
        assert chat.choices[0].model_extra["holdfast"]["source"] == answer.source


def test_the_models_own_answers_stream_token_by_token(
    client: openai.OpenAI, chat_memory: Path
) -> None:
    expected = Memory(chat_memory).reply(UNTAUGHT).text
    chunks = said(client, UNTAUGHT, stream_options={"include_usage": True})
    *chunks, last = chunks
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].model_extra["holdfast"]["source"] == "model"  # before the first token
    assert (choices[0].delta.role, choices[0].delta.content) == ("assistant", "")
    texts = [choice.delta.content or "" for choice in choices]
    assert "".join(texts) == expected
    assert sum(map(bool, texts)) > 50
    assert choices[-1].finish_reason == "length"  # this model never ends by itself
    assert choices[-1].model_extra["holdfast"]["answer"] == expected
    assert last.usage.completion_tokens == LONGEST_ANSWER


def test_what_was_taught_comes_whole_whatever_the_bound(client: openai.OpenAI) -> None:
    chunks = said(client, FACTS[0][0], max_tokens=2)
    choices = [chunk.choices[0] for chunk in chunks]
    assert [choice.delta.content for choice in choices] == [FACTS[0][1], None]
    assert [choice.finish_reason for choice in choices] == [None, "stop"]
    for choice in choices:
        assert choice.model_extra["holdfast"]["source"] == "weights"


def test_bounds_of_a_request(client: openai.OpenAI, chat_memory: Path) -> None:
    whole = Memory(chat_memory).reply(UNTAUGHT).text
    messages = [{"role": "user", "content": UNTAUGHT}]
    for bound in ({"max_tokens": 7}, {"max_completion_tokens": 7}):
        short = client.chat.completions.create(model="m", messages=messages, **bound)
        assert whole.startswith(short.choices[0].message.content)
        assert short.choices[0].finish_reason == "length"
        assert short.usage.completion_tokens == 7
    most = client.completions.create(model="m", prompt=UNTAUGHT, max_tokens=100_000)
    assert most.choices[0].text == whole
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="m", prompt=UNTAUGHT, max_tokens=0)
    for wrong, words in {" ": "is empty", "why " * 500: "ask a shorter one"}.items():
        with pytest.raises(openai.BadRequestError, match=words):
            client.completions.create(model="m", prompt=[FACTS[0][0], wrong], stream=True)


def test_what_is_answered_between_two_tokens_changes_neither(
    client: openai.OpenAI, chat_memory: Path
) -> None:
    """The adapter that gives a taught answer does not touch the answer that is being written."""
    expected = Memory(chat_memory).reply(UNTAUGHT).text
    chunks = iter(client.completions.create(model="m", prompt=UNTAUGHT, stream=True))
    text = next(chunks).choices[0].text
    quick = client.completions.create(model="m", prompt=FACTS[1][0])
    assert quick.choices[0].text == FACTS[1][1]
    assert text + "".join(chunk.choices[0].text for chunk in chunks) == expected


def test_many_at_once_get_what_each_gets_alone(client: openai.OpenAI) -> None:
    asked = [FACTS[0][0], UNTAUGHT, LIST_ONLY, FACTS[2][0], "Who wrote Hamlet?"] * 8

    def ask(question: str) -> tuple[str, str]:
        found = client.completions.create(model="m", prompt=question, max_tokens=12).choices[0]
        return found.text, found.model_extra["holdfast"]["source"]

    alone = {question: ask(question) for question in dict.fromkeys(asked)}
    with ThreadPoolExecutor(len(asked)) as threads:
        assert list(threads.map(ask, asked)) == [alone[question] for question in asked]


def test_clients_that_leave_do_no_harm(client: openai.OpenAI) -> None:
    for _ in range(40):  # more than are written side by side
        stream = client.completions.create(model="m", prompt=UNTAUGHT, stream=True)
        next(iter(stream))
        stream.close()
    assert client.completions.create(model="m", prompt=FACTS[0][0]).choices[0].text == FACTS[0][1]


def test_what_is_remembered(served: Served) -> None:
    told = served.facts()
    assert (told["batches"], told["teach"]) == (1, False)
    assert {fact["source"] for fact in told["facts"]} == {"weights"}
    assert {(fact["question"], fact["answer"]) for fact in told["facts"]} == set(FACTS)
    [lesson] = served.request("GET", "/lessons")[1]["lessons"]
    assert (lesson["state"], lesson["facts"], lesson["missed"]) == ("learned", 3, [])
    assert served.request("GET", "/lessons/1")[1] == lesson
    for wrong in ("0", "2", "x"):
        assert served.request("GET", f"/lessons/{wrong}")[0] in (400, 404)
    assert served.post("/facts", {"question": "Who?", "answer": "Me"})[0] == 403


def as_facts(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"question": question, "answer": answer} for question, answer in pairs]


def test_lessons_go_on_in_the_background(chat_memory: Path, tmp_path: Path) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server:
        status, told = server.post("/facts", as_facts(MORE))
        assert (status, told["lesson"], told["state"]) == (202, 2, "waiting")
        assert MORE[0][0] in (own / "facts.jsonl").read_text()
        assert server.ask(MORE[0][0])["text"] == MORE[0][1]  # from the list, until it is learned
        status, told = server.post("/facts", as_facts([(FACTS[0][0], "Ann Lo")]))
        assert (status, told["lesson"]) == (202, 3)
        assert told["corrected"] == [
            {"question": FACTS[0][0], "is": "Ann Lo", "was": "Orsa Tindle"}
        ]
        states = [one["state"] for one in server.request("GET", "/lessons")[1]["lessons"]]
        assert states[0] == "learned" and set(states[1:]) <= {"waiting", "learning", "learned"}
        facts = server.facts()
        assert len(facts["facts"]) == 5 and facts["teach"] is True
        assert server.ask(FACTS[1][0])["text"] == FACTS[1][1]  # meanwhile
        assert server.ask(FACTS[0][0])["text"] == "Ann Lo"
        when(own, lambda states: all(state.state == "learned" for state in states))
        assert server.ask(MORE[0][0])["holdfast"]["source"] == "weights"
        assert server.ask(FACTS[0][0])["text"] == "Ann Lo"
        told = server.request("GET", "/lessons/2")[1]
        assert (told["state"], told["learned"], told["missed"]) == ("learned", 2, [])
        # The same facts again: there is nothing to wait for.
        status, told = server.post("/facts", as_facts(MORE))
        assert (status, told["lesson"], told["state"]) == (200, None, "learned")
        assert told["repeated"] == [question for question, _ in MORE]
        status, told = server.post("/facts?wait=true", as_facts(LATER))
        assert (status, told["lesson"], told["state"]) == (200, 4, "learned")
        assert told["missed"] == [] and server.ask(LATER[0][0])["text"] == LATER[0][1]
        before = learned(own)
        wrong: list[object] = [[], 7, [{"question": "Who?"}], as_facts([("Who?", "x" * 300)])]
        for one in wrong:
            assert server.post("/facts", one)[0] == 400
        assert learned(own) == before
    straight = copied(chat_memory, tmp_path / "straight" / "m")
    for batch in (MORE, [(FACTS[0][0], "Ann Lo")], LATER):
        Memory(straight).learn(batch)
    assert learned(straight) == before


def _learning(own: Path) -> int:
    """The process that learns, once it does."""
    when(own, lambda states: any(state.state == "learning" for state in states))
    return int(json.loads((own / PROGRESS_FILE).read_text())["process"])


@pytest.fixture(scope="module")
def many_learned(chat_memory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a lesson of MANY comes to without a server."""
    own = copied(chat_memory, tmp_path_factory.mktemp("many") / "m")
    Memory(own).learn(MANY)
    return learned(own)


def test_a_killed_lesson_is_taken_up_by_the_server(
    chat_memory: Path, many_learned: dict[str, bytes], tmp_path: Path
) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        waiting = threads.submit(server.post, "/facts?wait=true", as_facts(MANY))
        os.kill(_learning(own), signal.SIGKILL)
        status, told = waiting.result()
        assert (status, told["state"]) == (200, "learned")
    assert learned(own) == many_learned


def test_a_lesson_that_is_killed_again_and_again_fails(chat_memory: Path, tmp_path: Path) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        waiting = threads.submit(server.post, "/facts?wait=true", as_facts(MANY))
        first = _learning(own)
        os.kill(first, signal.SIGKILL)
        while (second := _learning(own)) == first:
            pass
        os.kill(second, signal.SIGKILL)
        status, told = waiting.result()
        assert status == 500 and "twice: it was killed by SIGKILL" in told["error"]["message"]
        assert server.request("GET", "/lessons/2")[1]["state"] == "failed"
        assert server.ask(FACTS[0][0])["text"] == FACTS[0][1]
        # Teaching again tries again.
        status, told = server.post("/facts?wait=true", as_facts(LATER))
        assert (status, told["lesson"]) == (200, 3)
        assert [state.state for state in lesson_states(own)] == ["learned"] * 3


@pytest.mark.parametrize("which", ["the server", "both", "none"])
def test_a_killed_server_loses_nothing(
    chat_memory: Path, many_learned: dict[str, bytes], tmp_path: Path, which: str
) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server:
        assert server.post("/facts", as_facts(MANY))[0] == 202
        process = _learning(own)
        assert server.lessons.alive() == [process]
        if which == "none":  # it ends by itself, and ends the lesson
            server.process.terminate()
            assert server.process.wait(timeout=30) == 0
        server.process.kill()
        if which == "both":
            os.kill(process, signal.SIGKILL)
        server.process.wait()
    if which != "the server":
        when(own, lambda states: [one.state for one in states] == ["learned", "waiting"])
    with serving(own, "--teach") as server:  # it goes on, or waits for the one that does
        when(own, lambda states: all(state.state == "learned" for state in states))
        assert server.ask(MANY[3][0])["text"] == MANY[3][1]
    assert learned(own) == many_learned


def test_what_waits_is_said(
    chat_memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = copied(chat_memory, tmp_path / "m")
    tell_waiting(own, teach=False)
    assert capsys.readouterr().err == ""
    Memory(own).write_facts(MORE)
    tell_waiting(own, teach=False)
    waiting = (
        f"waiting: 1 lesson on file, 2 facts; not learned; holdfast learn {own} learns them, "
        f"holdfast lessons {own} --cancel all drops them"
    )
    assert capsys.readouterr().err == f"{waiting}\n"
    with serving(own) as server:
        assert server.request("GET", "/lessons")[1]["lessons"][1]["state"] == "waiting"
        facts = {fact["question"]: fact["source"] for fact in server.facts()["facts"]}
        assert facts[MORE[0][0]] == "waiting"
        told = server.ask(MORE[0][0])
        assert (told["text"], told["holdfast"]["source"]) == (MORE[0][1], "list")
        assert told["holdfast"]["waiting"] is True


def test_a_new_memory_is_taught_by_request(chat_memory: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "m", "--teach", "--model", model_of(chat_memory)) as server:
        assert server.facts()["facts"] == []
        told = server.ask(UNTAUGHT)  # the untouched model answers
        assert told["text"] == Memory(chat_memory).reply(UNTAUGHT).text
        assert (told["holdfast"]["source"], told["holdfast"]["nearest"]) == ("model", [])
        assert not (tmp_path / "m").exists()
        assert server.request("GET", "/lessons")[1] == {"lessons": []}
        assert server.post("/facts?wait=true", as_facts(FACTS))[1]["lesson"] == 1
        assert server.ask(FACTS[0][0])["text"] == FACTS[0][1]


def test_another_process_teaches_a_served_memory(chat_memory: Path, tmp_path: Path) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own) as server:
        assert server.ask(MORE[0][0])["holdfast"]["source"] == "model"
        teaching = threading.Thread(target=Memory(own).learn, args=(MORE,))
        teaching.start()
        teaching.join()
        assert server.ask(MORE[0][0])["holdfast"]["source"] == "weights"
