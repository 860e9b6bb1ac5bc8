"""The options that select the language model a command asks."""

from __future__ import annotations

from typing import Annotated

import typer

Backbone = Annotated[
    str | None, typer.Option("--backbone", help='"embedded", a hub name or a directory, run here.')
]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint", help="An OpenAI-compatible URL, such as http://localhost:8000/v1."),
]
ServedModel = Annotated[
    str | None, typer.Option("--model", help="Which of the endpoint's models; its first if unsaid.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, help="Requests to the endpoint at a time; 16 if unsaid."),
]
