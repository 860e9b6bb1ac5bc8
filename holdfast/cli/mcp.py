"""`holdfast mcp`: a memory for an agent."""

from __future__ import annotations

import importlib.util
from typing import Annotated

from typer import Option

from holdfast.cli.progress import loading
from holdfast.cli.serve import memory_to_serve
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError


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
