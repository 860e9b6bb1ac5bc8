"""A memory for an agent: by the SDK's own client, over the pipes of a real process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from holdfast.core.files import lock_directory
from holdfast.memory.memory import Memory
from holdfast.memory.states import lesson_states
from holdfast.serving.agent import MemoryForAgent
from tests.cli.conftest import Outcome
from tests.serving.chat_memories import FACTS, LATER, NEW, UNTAUGHT, copied, learned, when

TOOLS = {"ask", "what_do_you_know", "teach", "correct", "forget"}


@pytest.fixture
def directory(chat_memory: Path, tmp_path: Path) -> Path:
    """A memory of the test's own."""
    return copied(chat_memory, tmp_path / "m")


@contextlib.asynccontextmanager
async def agent(place: Path, *options: str) -> AsyncIterator[Client]:
    """A client of `holdfast mcp`."""
    command = ["-P", "-m", "holdfast", "mcp", str(place), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open(os.devnull, "w") as nothing:
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with Client(stdio_client(parameters, errlog=nothing)) as client:
            yield client


async def call(client: Client, tool: str, **values: Any) -> Any:
    """What a tool gives; the line that it refuses with."""
    result = await client.call_tool(tool, values)
    if result.is_error:
        (part,) = result.content
        assert part.type == "text" and "\n" not in part.text
        return part.text
    return result.structured_content


def taught(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"question": question, "answer": answer} for question, answer in pairs]


def test_an_agent_asks_teaches_corrects_and_forgets(directory: Path) -> None:
    """What it teaches is answered at once, and by the weights once its lesson is learned."""

    async def talk() -> None:
        async with agent(directory) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            assert client.instructions and "Ask it" in client.instructions
            question, answer = FACTS[0]
            reply = await call(client, "ask", question=question)
            assert (reply["answer"], reply["source"], reply["taught"]) == (answer, "weights", True)
            unknown = await call(client, "ask", question=UNTAUGHT)
            assert unknown["source"] == "model" and not unknown["taught"]

            filed = await call(client, "teach", facts=taught([*NEW, *LATER]))
            assert filed["state"] == "waiting" and filed["corrected"] == []
            number = filed["lesson"]
            reply = await call(client, "ask", question=NEW[0][0])
            assert reply["answer"] == NEW[0][1]
            refusal = await call(client, "forget", questions=[NEW[0][0]])
            assert "a lesson is being learned" in refusal
            await asyncio.to_thread(when, directory, is_learned(number))
            assert (await call(client, "ask", question=NEW[0][0]))["source"] == "weights"

            listing = await call(client, "what_do_you_know", about=NEW[0][1].upper(), most=1)
            assert listing["found"] == 1 and listing["known"] == len(FACTS) + 2
            assert listing["facts"] == [
                {"question": NEW[0][0], "answer": NEW[0][1], "source": "weights"}
            ]
            changed = await call(client, "correct", question=NEW[0][0].lower(), answer="Ann")
            assert [correction["was"] for correction in changed["corrected"]] == [NEW[0][1]]
            assert (await call(client, "ask", question=NEW[0][0]))["answer"] == "Ann"
            await asyncio.to_thread(when, directory, is_learned(changed["lesson"]))
            await idle(client, NEW[0][0])
            assert (await call(client, "ask", question=NEW[0][0]))["source"] == "model"
            assert (await call(client, "ask", question=LATER[0][0]))["source"] == "weights"
            listing = await call(client, "what_do_you_know")
            assert NEW[0][0] not in [fact["question"] for fact in listing["facts"]]

    asyncio.run(talk())


def is_learned(number: int) -> Callable[[list[Any]], bool]:
    return lambda states: states[number - 1].state == "learned"


async def idle(client: Client, question: str) -> None:
    """Forget a question once the process that learned has ended."""
    while isinstance(result := await call(client, "forget", questions=[question]), str):
        assert "a lesson is being learned" in result
        await asyncio.sleep(0.1)
    (fact,) = result["facts"]
    assert (fact["question"], fact["answer"]) == (question, "Ann")
    assert fact["after"] < 1e-3 < fact["before"]
    assert result["answered"] == result["others"] == 1


def test_what_is_wrong_is_a_line(directory: Path) -> None:
    """And changes nothing."""
    before = learned(directory)
    near = FACTS[0][0].replace("lighthouse", "light")

    async def talk() -> None:
        async with Client(MemoryForAgent(Memory(directory)).server) as client:
            for tool, values, text in (
                ("ask", {"question": " "}, "question"),
                ("teach", {"facts": []}, "no facts; give at least one question"),
                ("teach", {"facts": [{"question": "Who?", "answer": " "}]}, '"answer" is empty'),
                ("correct", {"question": near, "answer": "x"}, f'taught is "{FACTS[0][0]}"'),
                ("forget", {"questions": [near]}, "is not on its list of facts"),
                ("forget", {"questions": []}, "no questions"),
                ("ask", {}, "tool ask: question: Field required"),
                ("teach", {"facts": [{"question": "Who?", "answer": 5}]}, "facts.0.answer: Input"),
                ("what_do_you_know", {"most": 0}, "most: Input should be greater than or equal"),
            ):
                refusal = await call(client, tool, **values)
                assert isinstance(refusal, str) and text in refusal, (tool, refusal)
                assert "\n" not in refusal

    asyncio.run(talk())
    assert learned(directory) == before


def test_one_that_may_only_read(directory: Path) -> None:
    before = learned(directory)

    async def talk() -> None:
        async with agent(directory, "--read-only") as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"ask", "what_do_you_know"}
            assert (await call(client, "ask", question=FACTS[0][0]))["answer"] == FACTS[0][1]

    asyncio.run(talk())
    assert learned(directory) == before


def test_what_it_was_learning_is_learned_by_the_next_one(directory: Path) -> None:
    """The server is killed in a lesson, or its client leaves: the facts are on file."""

    async def leave(*, killed: bool) -> None:
        with contextlib.suppress(Exception):
            async with agent(directory) as client:
                await call(client, "teach", facts=taught(NEW if killed else LATER))
                if killed:
                    pids = await asyncio.to_thread(servers, directory)
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)

    asyncio.run(leave(killed=True))
    asyncio.run(leave(killed=False))
    questions = [NEW[0][0], LATER[0][0]]
    assert {fact.question for fact in Memory(directory).facts} >= set(questions)

    async def come_back() -> None:
        async with agent(directory) as client:
            await asyncio.to_thread(
                when, directory, lambda states: all(state.state == "learned" for state in states)
            )
            for question in questions:
                assert (await call(client, "ask", question=question))["source"] == "weights"

    asyncio.run(come_back())


def servers(place: Path) -> list[int]:
    """The processes of `holdfast mcp` for a memory."""
    processes = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"mcp" in words and str(place).encode() in words:
                processes.append(int(entry.name))
    return processes


def test_a_memory_of_its_own_is_begun(tmp_path: Path, chat_memory: Path) -> None:
    """In the client's process; where nothing is taught yet, that is said."""
    place, model = tmp_path / "new", Memory(chat_memory).model

    async def talk() -> None:
        async with Client(MemoryForAgent(Memory(place, model)).server) as client:
            refusal = await call(client, "ask", question=NEW[0][0])
            assert isinstance(refusal, str) and refusal.endswith(
                "nothing was taught yet; teach a fact first"
            )
            assert (await call(client, "what_do_you_know")) == {"facts": [], "found": 0, "known": 0}
            filed = await call(client, "teach", facts=taught(NEW))
            assert filed["lessons"] == [1]
            assert (await call(client, "ask", question=NEW[0][0]))["answer"] == NEW[0][1]
            await asyncio.to_thread(when, place, is_learned(1))

    asyncio.run(talk())
    assert [state.state for state in lesson_states(place)] == ["learned"]
    with lock_directory(place):
        pass  # nobody learns there any more


def test_the_command_refuses(
    holdfast: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = holdfast("mcp", tmp_path / "m", "--read-only")
    assert outcome.status == 2 and "no such memory" in outcome.err and outcome.out == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    outcome = holdfast("mcp", tmp_path / "m")
    assert outcome.status == 2 and 'pip install "holdfast[mcp]"' in outcome.err
