"""A memory for an agent, by the Model Context Protocol: ask, teach, correct, forget, look.

The official Python SDK speaks the protocol, over standard input and output. One thread owns the
model; lessons are learned by a process of their own, as behind ``holdfast serve --teach``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.memory.forgetting import what_goes
from holdfast.memory.memory import Memory
from holdfast.memory.telling import answer_values, remembered
from holdfast.serving.refusal import RefusalError
from holdfast.serving.teacher import Teacher

_INSTRUCTIONS = """\
A memory of facts that were taught. Ask it before you say that you do not know; teach it what is \
worth keeping, each fact as a question with its answer. A lesson is learned in the background in \
seconds to minutes, and its facts are answered meanwhile."""
_Value = TypeVar("_Value")
Question = Annotated[str, Field(description="A whole question, with the name it is about.")]


class TaughtFact(BaseModel):
    """A fact."""

    model_config = ConfigDict(extra="forbid")

    question: Question
    answer: Annotated[str, Field(description="Short, as it should be said.")]


class _Server(MCPServer[None]):
    """The SDK's server, but wrong arguments are one-line errors, and unknown ones are refused."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *more: Any, **further: Any
    ) -> Any:
        for tool in await self.list_tools():
            known = tool.input_schema["properties"]
            if tool.name == name and (unknown := sorted(arguments.keys() - known.keys())):
                hint = did_you_mean(unknown[0], list(known))
                raise ToolError(f"Error executing tool {name}: {unknown[0]} is unknown; {hint}")
        try:
            return await super().call_tool(name, arguments, *more, **further)
        except ToolError as error:
            if not isinstance(cause := error.__cause__, ValidationError):
                raise
            first = cause.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ToolError(f"Error executing tool {name}: {place}: {first['msg']}") from None


class MemoryForAgent:
    """The tools. server: the SDK's, which calls them; ``server.run("stdio")`` serves."""

    def __init__(self, memory: Memory, *, read_only: bool = False) -> None:
        """memory: opened; its model is loaded while the client connects. read_only: no changes."""
        self._memory, self._read_only = memory, read_only
        self._thread = ThreadPoolExecutor(1, "memory")
        self._teacher = Teacher(memory.directory, self._on_thread)
        self.server = _Server(
            memory.directory.resolve().name,
            instructions=_INSTRUCTIONS,
            version=version("holdfast"),
            log_level="WARNING",
            lifespan=self._life,
        )
        tools: list[Callable[..., Any]] = [self.ask, self.what_do_you_know]
        if not read_only:
            tools += [self.teach, self.correct, self.forget]
        for tool in tools:
            self.server.tool()(tool)

    @contextlib.asynccontextmanager
    async def _life(self, _: MCPServer[None]) -> AsyncIterator[None]:
        loading = self._thread.submit(self._memory.load)
        if not self._read_only:
            self._teacher.start()
        try:
            yield
        finally:
            await self._teacher.end()
            loading.cancel()
            await asyncio.to_thread(self._thread.shutdown)

    async def _on_thread(self, function: Callable[[Memory], _Value]) -> _Value:
        def work() -> _Value:
            self._memory.refresh()
            return function(self._memory)

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def ask(self, question: Question) -> dict[str, Any]:
        """Ask the memory.

        `source` says where the answer comes from: `weights` or `list` for what was taught, `model`
        for what was not; then it is the small untouched model's own, and may be wrong. `nearest`
        are taught questions that are like it.
        """

        def answered(memory: Memory) -> dict[str, Any]:
            if not memory.facts:
                raise HoldfastError("nothing was taught yet; teach a fact first")
            return answer_values(memory, memory.reply(question))

        with _refusals_as_lines():
            return await self._on_thread(answered)

    async def teach(self, facts: list[TaughtFact]) -> dict[str, Any]:
        """Teach facts: they are answered from now on, and learned in the background.

        A question that is known already is corrected, and `corrected` says what it was; `notices`
        says what may be unintended. Facts that belong together are best taught in one call.
        """
        with _refusals_as_lines():
            return await self._taught(facts)

    async def correct(self, question: Question, answer: str) -> dict[str, Any]:
        """Correct the answer to a question that was taught; a question that was not is refused."""
        with _refusals_as_lines():
            forgetting = await self._on_thread(lambda memory: what_goes(memory, [question]))
            return await self._taught(
                [TaughtFact(question=forgetting.facts[0].question, answer=answer)]
            )

    async def _taught(self, facts: list[TaughtFact]) -> dict[str, Any]:
        if not facts:
            raise HoldfastError("no facts; give at least one question with its answer")
        _, values = await self._teacher.teach([fact.model_dump() for fact in facts], 0, wait=False)
        return dict(values)

    async def forget(self, questions: list[Question]) -> dict[str, Any]:
        """Forget facts for good: they leave the list and the weights.

        Lessons that had them are learned again without them, which takes a minute or so. `before`,
        `after` and `untouched` are the answer's probability by the weights then and now, and by
        the untouched model. What was exported or copied before still has them.
        """
        with _refusals_as_lines():
            if not questions:
                raise HoldfastError("no questions; give those to forget, as they were taught")
            return await self._teacher.forget(questions)

    async def what_do_you_know(
        self,
        about: Annotated[str, Field(description="Part of a question or an answer.")] = "",
        most: Annotated[int, Field(ge=1, le=1000)] = 50,
    ) -> dict[str, Any]:
        """The facts that were taught, the newest first.

        `source` of a fact: `weights`, `list`, or `waiting` until its lesson is learned.
        """
        with _refusals_as_lines():
            known = await self._on_thread(remembered)
        wanted = about.casefold()
        matches = [
            {key: fact[key] for key in ("question", "answer", "source")}
            for fact in known["facts"]
            if wanted in f"{fact['question']}\n{fact['answer']}".casefold()
        ]
        return {"facts": matches[:most], "found": len(matches), "known": len(known["facts"])}


@contextlib.contextmanager
def _refusals_as_lines() -> Iterator[None]:
    """Turn refusals in the block into the SDK's ToolError, whose one line the agent reads."""
    try:
        yield
    except (HoldfastError, RefusalError) as error:
        raise ToolError(str(error)) from None
