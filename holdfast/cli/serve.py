"""`holdfast serve`: a memory for other programs, and a page for a browser."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer

from holdfast.core.errors import HoldfastError


def serve(
    memory: Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")
    ] = 8000,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="The address to listen on; any but a loopback address needs an API key, of "
            "HOLDFAST_API_KEY or made now.",
        ),
    ] = "127.0.0.1",
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="The model's name for clients.", show_default="the directory's"
        ),
    ] = None,
    teach: Annotated[bool, typer.Option("--teach", help="Let clients teach facts.")] = False,
) -> None:
    """Serve a memory as an OpenAI-compatible endpoint, with a page to ask, teach and look at it.

    Another process may teach it meanwhile; what it learns is taken up. Ctrl-C ends it.
    """  # fmt: skip
    if None in map(importlib.util.find_spec, ("fastapi", "uvicorn")):
        raise HoldfastError('serving needs FastAPI and uvicorn; pip install "holdfast[serve]"')
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.memory import Memory
        from holdfast.serving import listening

    opened = Memory(memory)
    if opened.horizon or not teach:
        opened.load()
        opened.knowledge()
    address = listening.bind(host, port)
    with address.listener, contextlib.suppress(KeyboardInterrupt):  # SIGTERM too: so a server ends
        key = listening.key_for(address, os.environ.get("HOLDFAST_API_KEY"))
        called = name or memory.resolve().name
        # The part behind # stays in the browser.
        print(f"page: {address.url}/" + (f"#key={key}" if key else ""))
        print(f"endpoint: {address.url}/v1, model {called}", flush=True)
        listening.serve(opened, address, name=called, key=key, teach=teach)
