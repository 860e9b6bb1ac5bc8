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
def own(chat_memory: Path, tmp_path: Path) -> Path:
    """A memory of the test's own."""
    return copied(chat_memory, tmp_path / "m")


@contextlib.asynccontextmanager
async def agent(place: Path, *options: str) -> AsyncIterator[Client]:
    """A client of `holdfast mcp`."""
    command = ["-P", "-m", "holdfast", "mcp", str(place), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open(os.devnull, "w") as nothing:
        own = StdioServerParameters(command=sys.executable, args=command, env=environment)
        async with Client(stdio_client(own, errlog=nothing)) as client:
            yield client


async def said(client: Client, tool: str, **values: Any) -> Any:
    """What a tool gives; the line that it refuses with."""
    found = await client.call_tool(tool, values)
    if found.is_error:
        (part,) = found.content
        assert part.type == "text" and "\n" not in part.text
        return part.text
    return found.structured_content


def taught(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"question": question, "answer": answer} for question, answer in pairs]


def test_an_agent_asks_teaches_corrects_and_forgets(own: Path) -> None:
    """What it teaches is answered at once, and by the weights once its lesson is learned."""

    async def talk() -> None:
        async with agent(own) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            assert client.instructions and "Ask it" in client.instructions
            question, answer = FACTS[0]
            found = await said(client, "ask", question=question)
            assert (found["answer"], found["source"], found["taught"]) == (answer, "weights", True)
            unknown = await said(client, "ask", question=UNTAUGHT)
            assert unknown["source"] == "model" and not unknown["taught"]

            filed = await said(client, "teach", facts=taught([*NEW, *LATER]))
            assert filed["state"] == "waiting" and filed["corrected"] == []
            number = filed["lesson"]
            found = await said(client, "ask", question=NEW[0][0])
            assert found["answer"] == NEW[0][1]
            told = await said(client, "forget", questions=[NEW[0][0]])
            assert "a lesson is being learned" in told
            await asyncio.to_thread(when, own, is_learned(number))
            assert (await said(client, "ask", question=NEW[0][0]))["source"] == "weights"

            known = await said(client, "what_do_you_know", about=NEW[0][1].upper(), most=1)
            assert known["found"] == 1 and known["known"] == len(FACTS) + 2
            assert known["facts"] == [
                {"question": NEW[0][0], "answer": NEW[0][1], "source": "weights"}
            ]
            changed = await said(client, "correct", question=NEW[0][0].lower(), answer="Ann")
            assert [correction["was"] for correction in changed["corrected"]] == [NEW[0][1]]
            assert (await said(client, "ask", question=NEW[0][0]))["answer"] == "Ann"
            await asyncio.to_thread(when, own, is_learned(changed["lesson"]))
            await idle(client, NEW[0][0])
            assert (await said(client, "ask", question=NEW[0][0]))["source"] == "model"
            assert (await said(client, "ask", question=LATER[0][0]))["source"] == "weights"
            known = await said(client, "what_do_you_know")
            assert NEW[0][0] not in [fact["question"] for fact in known["facts"]]

    asyncio.run(talk())


def is_learned(number: int) -> Callable[[list[Any]], bool]:
    return lambda states: states[number - 1].state == "learned"


async def idle(client: Client, question: str) -> None:
    """Forget a question once the process that learned has ended."""
    while isinstance(found := await said(client, "forget", questions=[question]), str):
        assert "a lesson is being learned" in found
        await asyncio.sleep(0.1)
    (fact,) = found["facts"]
    assert (fact["question"], fact["answer"]) == (question, "Ann")
    assert fact["after"] < 1e-3 < fact["before"]
    assert found["answered"] == found["others"] == 1


def test_what_is_wrong_is_a_line(own: Path) -> None:
    """And changes nothing."""
    before = learned(own)
    near = FACTS[0][0].replace("lighthouse", "light")

    async def talk() -> None:
        async with Client(MemoryForAgent(Memory(own)).server) as client:
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
                found = await said(client, tool, **values)
                assert isinstance(found, str) and text in found, (tool, found)
                assert "\n" not in found

    asyncio.run(talk())
    assert learned(own) == before


def test_one_that_may_only_read(own: Path) -> None:
    before = learned(own)

    async def talk() -> None:
        async with agent(own, "--read-only") as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"ask", "what_do_you_know"}
            assert (await said(client, "ask", question=FACTS[0][0]))["answer"] == FACTS[0][1]

    asyncio.run(talk())
    assert learned(own) == before


def test_what_it_was_learning_is_learned_by_the_next_one(own: Path) -> None:
    """The server is killed in a lesson, or its client leaves: the facts are on file."""

    async def leave(*, killed: bool) -> None:
        with contextlib.suppress(Exception):
            async with agent(own) as client:
                await said(client, "teach", facts=taught(NEW if killed else LATER))
                if killed:
                    pids = await asyncio.to_thread(servers, own)
                    for pid in pids:
                        os.kill(pid, signal.SIGKILL)

    asyncio.run(leave(killed=True))
    asyncio.run(leave(killed=False))
    questions = [NEW[0][0], LATER[0][0]]
    assert {fact.question for fact in Memory(own).facts} >= set(questions)

    async def come_back() -> None:
        async with agent(own) as client:
            await asyncio.to_thread(
                when, own, lambda states: all(state.state == "learned" for state in states)
            )
            for question in questions:
                assert (await said(client, "ask", question=question))["source"] == "weights"

    asyncio.run(come_back())


def servers(place: Path) -> list[int]:
    """The processes of `holdfast mcp` for a memory."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"mcp" in words and str(place).encode() in words:
                found.append(int(entry.name))
    return found


def test_a_memory_of_its_own_is_begun(tmp_path: Path, chat_memory: Path) -> None:
    """In the client's process; where nothing is taught yet, that is said."""
    place, model = tmp_path / "new", Memory(chat_memory).model

    async def talk() -> None:
        async with Client(MemoryForAgent(Memory(place, model)).server) as client:
            told = await said(client, "ask", question=NEW[0][0])
            assert isinstance(told, str) and told.endswith(
                "nothing was taught yet; teach a fact first"
            )
            assert (await said(client, "what_do_you_know")) == {"facts": [], "found": 0, "known": 0}
            filed = await said(client, "teach", facts=taught(NEW))
            assert filed["lessons"] == [1]
            assert (await said(client, "ask", question=NEW[0][0]))["answer"] == NEW[0][1]
            await asyncio.to_thread(when, place, is_learned(1))

    asyncio.run(talk())
    assert [state.state for state in lesson_states(place)] == ["learned"]
    with lock_directory(place):
        pass  # nobody learns there any more


def test_the_command_refuses(
    holdfast: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = holdfast("mcp", tmp_path / "m", "--read-only")
    assert found.status == 2 and "no such memory" in found.err and found.out == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = holdfast("mcp", tmp_path / "m")
    assert found.status == 2 and 'pip install "holdfast[mcp]"' in found.err
