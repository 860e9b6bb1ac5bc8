"""A memory for an agent: by the SDK's own client, over pipes and in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.server import MCPServer

from holdfast.core.files import lock_directory
from holdfast.core.processes import importable
from holdfast.memory.memory import Memory
from holdfast.memory.states import lesson_states
from holdfast.serving.agent import MemoryForAgent
from tests.cli.conftest import Outcome, refused
from tests.serving.chat_memories import FACTS, LATER, NEW, UNTAUGHT, as_facts, learned, when
from tests.serving.served import forked_lessons

TOOLS = {"ask", "what_do_you_know", "teach", "correct", "forget"}


@pytest.fixture
def forked() -> Iterator[None]:
    with forked_lessons():
        yield


async def call(client: Client, tool: str, **values: Any) -> Any:
    """What a tool gives; the line that it refuses with."""
    result = await client.call_tool(tool, values)
    if result.is_error:
        (part,) = result.content
        assert part.type == "text" and "\n" not in part.text
        return part.text
    return result.structured_content


def in_this_process(place: Path, model: str | None = None) -> Client:
    """A client of the same server, without pipes."""
    return Client(MemoryForAgent(Memory(place, model)).server)


def test_a_conversation_over_pipes(directory: Path) -> None:
    """With real processes; killed with all of them, it leaves the facts on file for the next."""

    async def talk() -> None:
        command = ["-P", "-m", "holdfast", "mcp", str(directory)]
        environment = {**os.environ, "PYTHONPATH": importable()}
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment)
        with open(os.devnull, "w") as nothing:
            async with Client(stdio_client(parameters, errlog=nothing)) as client:
                assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
                assert client.instructions and "Ask it" in client.instructions
                filed = await call(client, "teach", facts=as_facts(NEW))
                assert filed["state"] == "waiting" and filed["lessons"] == [2]
                assert (await call(client, "ask", question=NEW[0][0]))["answer"] == NEW[0][1]
                await asyncio.to_thread(when, directory, is_learned(2))
                assert (await call(client, "ask", question=NEW[0][0]))["source"] == "weights"
                await forgotten(client, NEW[0])
                await call(client, "teach", facts=as_facts(LATER))
                for pid in await asyncio.to_thread(working_on, directory):
                    os.kill(pid, signal.SIGKILL)

    async def come_back() -> None:
        async with in_this_process(directory) as client:
            await asyncio.to_thread(when, directory, is_learned(2))
            assert (await call(client, "ask", question=LATER[0][0]))["source"] == "weights"

    asyncio.run(talk())
    assert LATER[0][0] in {fact.question for fact in Memory(directory).facts}
    with forked_lessons():
        asyncio.run(come_back())


def working_on(place: Path) -> list[int]:
    """The processes that have a memory in their command."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(place).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                processes.append(int(entry.name))
    return processes


async def forgotten(client: Client, fact: tuple[str, str]) -> Any:
    """Forget a fact once the process that learned has ended."""
    question, answer = fact
    while isinstance(result := await call(client, "forget", questions=[question]), str):
        assert "a lesson is being learned" in result
        await asyncio.sleep(0.1)
    (gone,) = result["facts"]
    assert (gone["question"], gone["answer"]) == (question, answer) and gone["before"] > 1e-3
    assert (await call(client, "ask", question=question))["source"] == "model"
    return result


@pytest.mark.usefixtures("forked")
def test_an_agent_asks_teaches_corrects_and_forgets(directory: Path) -> None:
    """What it teaches is answered at once, and by the weights once its lesson is learned."""

    async def leave() -> None:
        async with in_this_process(directory) as client:
            filed = await call(client, "teach", facts=as_facts([*NEW, *LATER]))
            assert filed["corrected"] == []

    async def talk() -> None:
        async with in_this_process(directory) as client:
            question, answer = FACTS[0]
            reply = await call(client, "ask", question=question)
            assert (reply["answer"], reply["source"], reply["taught"]) == (answer, "weights", True)
            unknown = await call(client, "ask", question=UNTAUGHT)
            assert unknown["source"] == "model" and not unknown["taught"]
            # What it taught before it left is learned now.
            await asyncio.to_thread(when, directory, is_learned(2))
            listing = await call(client, "what_do_you_know", about=NEW[0][1].upper(), most=1)
            assert listing["found"] == 1 and listing["known"] == len(FACTS) + 2
            assert listing["facts"] == [{**as_facts(NEW)[0], "source": "weights"}]
            changed = await call(client, "correct", question=NEW[0][0].lower(), answer="Ann")
            assert [correction["was"] for correction in changed["corrected"]] == [NEW[0][1]]
            assert (await call(client, "ask", question=NEW[0][0]))["answer"] == "Ann"
            await asyncio.to_thread(when, directory, is_learned(changed["lesson"]))
            result = await forgotten(client, (NEW[0][0], "Ann"))
            assert result["answered"] == result["others"] == 1
            assert result["facts"][0]["after"] < 1e-3
            assert (await call(client, "ask", question=LATER[0][0]))["source"] == "weights"
            few = await call(client, "what_do_you_know", most=1)
            assert (len(few["facts"]), few["found"]) == (1, few["known"])
            listing = await call(client, "what_do_you_know")
            assert NEW[0][0] not in [fact["question"] for fact in listing["facts"]]

    asyncio.run(leave())
    asyncio.run(talk())


def is_learned(number: int) -> Callable[[list[Any]], bool]:
    return lambda states: len(states) >= number and states[number - 1].state == "learned"


def test_what_is_wrong_is_a_line(directory: Path) -> None:
    """And changes nothing."""
    before = learned(directory)
    near = FACTS[0][0].replace("lighthouse", "light")
    fact = {"question": "Who?", "answer": "x"}

    async def talk() -> None:
        async with in_this_process(directory) as client:
            for tool, values, text in (
                ("ask", {"question": " "}, "question"),
                ("teach", {"facts": []}, "no facts; give at least one question"),
                ("teach", {"facts": [fact | {"answer": " "}]}, '"answer" is empty'),
                ("correct", {"question": near, "answer": "x"}, f'taught is "{FACTS[0][0]}"'),
                ("forget", {"questions": [near]}, "is not on its list of facts"),
                ("forget", {"questions": []}, "no questions"),
                ("ask", {}, "tool ask: question: Field required"),
                ("what_do_you_know", {"text": "x"}, "text is unknown; known: about, most"),
                ("teach", {"facts": [fact | {"by": "A"}]}, "facts.0.by: "),
                ("teach", {"facts": [fact | {"answer": 5}]}, "facts.0.answer: Input"),
                ("what_do_you_know", {"most": 0}, "most: Input should be greater than or equal"),
            ):
                refusal = await call(client, tool, **values)  # of one line
                assert isinstance(refusal, str) and text in refusal, (tool, refusal)

    asyncio.run(talk())
    assert learned(directory) == before


def test_one_that_may_only_read(
    directory: Path, holdfast: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, servers = learned(directory), []
    monkeypatch.setattr(MCPServer, "run", lambda server, _: servers.append(server))
    refused(holdfast("mcp", directory / "none", "--read-only"), "no such memory")
    assert holdfast("mcp", directory, "--read-only").status == 0

    async def talk() -> None:
        async with Client(*servers) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"ask", "what_do_you_know"}
            assert (await call(client, "ask", question=FACTS[0][0]))["answer"] == FACTS[0][1]

    asyncio.run(talk())
    assert learned(directory) == before


@pytest.mark.usefixtures("forked")
def test_a_memory_of_its_own_is_begun(tmp_path: Path, chat_memory: Path) -> None:
    """Where nothing is taught yet, that is said."""
    place, model = tmp_path / "new", Memory(chat_memory).model

    async def talk() -> None:
        async with in_this_process(place, model) as client:
            refusal = await call(client, "ask", question=NEW[0][0])
            assert str(refusal).endswith("nothing was taught yet; teach a fact first")
            assert (await call(client, "what_do_you_know")) == {"facts": [], "found": 0, "known": 0}
            filed = await call(client, "teach", facts=as_facts(NEW))
            assert filed["lessons"] == [1]
            assert (await call(client, "ask", question=NEW[0][0]))["answer"] == NEW[0][1]
            await asyncio.to_thread(when, place, is_learned(1))

    asyncio.run(talk())
    assert [state.state for state in lesson_states(place)] == ["learned"]
    with lock_directory(place):
        pass  # nobody learns there any more
