"""`holdfast serve`: a memory for programs and a browser; `holdfast mcp`: for an agent."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.progress import loading
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory


def serve(
    memory: MemoryPath,
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str,
        Option(
            help="The address to listen on; any but a loopback address needs an API key, of "
            "HOLDFAST_API_KEY or made now."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="A name under which a proxy before the server is reached; may be repeated. Then "
            "an API key is needed too.",
        ),
    ] = None,
    name: Annotated[
        str | None, Option(help="The model's name for clients.", show_default="the directory's")
    ] = None,
    teach: Annotated[bool, Option("--teach", help="Let clients teach facts.")] = False,
    consolidate_after: Annotated[
        float | None,
        Option(
            metavar="MINUTES",
            help="With --teach: learn all facts into one adapter when nobody has asked for so "
            "long. Takes hours of all cores for some hundred facts; saves disk and memory.",
            show_default="never",
        ),
    ] = None,
    taught_only: Annotated[
        bool,
        Option(
            "--taught-only",
            help='Answer only what was taught, and all else with "I was not taught that.".',
        ),
    ] = False,
    model: Annotated[
        str | None,
        Option(help="Of a new memory, with --teach: as of learn.", show_default="smollm2"),
    ] = None,
) -> None:
    """Serve a memory as an OpenAI-compatible endpoint, with a page to ask, teach and look at it.

    Another process may teach it meanwhile; its lessons are loaded. Ctrl-C ends the server.
    """  # fmt: skip
    if None in map(importlib.util.find_spec, ("fastapi", "uvicorn")):
        raise HoldfastError('serving needs FastAPI and uvicorn; pip install "holdfast[serve]"')
    if consolidate_after is not None and not consolidate_after > 0:
        raise HoldfastError(f"--consolidate-after: is {consolidate_after:g}; give minutes above 0")
    if consolidate_after is not None and not teach:
        raise HoldfastError("--consolidate-after changes the memory; give --teach with it")

    with loading():
        from holdfast.serving import listening
        from holdfast.serving.idle import IdleConsolidation
        from holdfast.serving.served_memory import ServedMemory

    # What is cheap to refuse is checked before a model is fetched and loaded.
    proxied = list(map(listening.host_name, allow_host or ()))
    address = listening.bind(host, port)
    given_key = os.environ.get("HOLDFAST_API_KEY")
    with address.listener:
        key = listening.key_for(address, given_key, proxied=bool(proxied))
        opened = memory_to_serve(memory, model, teach=teach)
        idle = None
        if consolidate_after is not None:
            say = partial(typer.echo, err=True)
            idle = IdleConsolidation(opened.directory, 60 * consolidate_after, say)
        with loading("loading the model"):
            if not teach:
                opened.check_facts()
            opened.answerer()
            opened.engine().read(["Are you ready?"])  # so that the first question is not slower
            service = ServedMemory(opened, taught_only=taught_only)
        model_name = name or memory.resolve().name

        def announce() -> None:
            # A client may connect as soon as it reads the address, so nothing may fail after it.
            tell_waiting(memory, teach=teach)
            # Browsers do not send the part after #. A key that the user has set is not shown.
            print(f"page: {address.url}/" + (f"#key={key}" if key and given_key is None else ""))
            print(f"endpoint: {address.url}/v1, model {model_name}", flush=True)
            if given_key is not None:
                print("key: that of HOLDFAST_API_KEY", file=sys.stderr)

        with contextlib.suppress(KeyboardInterrupt):  # SIGTERM too: a server's normal end
            listening.serve(
                service,
                address,
                announce,
                name=model_name,
                key=key,
                teach=teach,
                idle=idle,
                proxied=proxied,
            )


def mcp(
    memory: MemoryPath,
    read_only: Annotated[
        bool, Option("--read-only", help="Let the agent ask and look, and change nothing.")
    ] = False,
    model: Annotated[
        str | None, Option(help="Of a new memory: as of learn.", show_default="smollm2")
    ] = None,
) -> None:
    """Let an agent ask, teach, correct and forget, by the Model Context Protocol over stdio.

    A client starts this command; a person does not talk to it. What is taught is answered at once
    and learned in the background.
    """
    if importlib.util.find_spec("mcp") is None:
        raise HoldfastError('an agent is served by the MCP SDK; pip install "holdfast[mcp]"')
    with loading():
        from holdfast.serving.agent import MemoryForAgent

    opened = memory_to_serve(memory, model, teach=not read_only)
    MemoryForAgent(opened, read_only=read_only).server.run("stdio")


def memory_to_serve(memory: Path, model: str | None, *, teach: bool) -> Memory:
    """Open the memory; with ``teach``, a new one if there is none."""
    from holdfast.cli.learn import model_of
    from holdfast.core.file_checks import refuse_links
    from holdfast.memory.memory import Memory
    from holdfast.memory.record import PARTS

    if model is not None and not teach:
        raise HoldfastError("--model: is of a new memory, and none is made here; leave it out")
    if teach:
        refuse_links(memory, PARTS)
        return opened_memory(memory, model_of(memory, model))
    require_memory(memory)
    return Memory(memory)


def tell_waiting(memory: Path, *, teach: bool) -> None:
    """Print how many lessons are on file but not learned yet, if any."""
    from holdfast.memory.states import waiting_lessons
    from holdfast.streams.item import counted

    waiting = waiting_lessons(memory)
    if not waiting:
        return
    lessons = f"{counted(len(waiting), 'lesson')} on file"
    facts = counted(sum(state.facts for state in waiting), "fact")
    then = "learned now" if teach else f"not learned; holdfast learn {memory} learns them"
    drop = f"holdfast lessons {memory} --cancel all drops them"
    print(f"waiting: {lessons}, {facts}; {then}, {drop}", file=sys.stderr)
