"""`holdfast stream`: make, convert and look at streams."""

from __future__ import annotations

import typer

from holdfast.cli.stream.convert import convert
from holdfast.cli.stream.inspect import inspect
from holdfast.cli.stream.llm_qa import llm_qa
from holdfast.cli.stream.real_qa import real_qa
from holdfast.cli.stream.symbol_qa import symbol_qa
from holdfast.cli.verbs import Verb

stream = typer.Typer(
    name="stream",
    help="Make a stream of tasks, convert one, look at one.",
    no_args_is_help=True,
)
stream.command("symbol-qa", cls=Verb)(symbol_qa)
stream.command("llm-qa", cls=Verb)(llm_qa)
stream.command("real-qa", cls=Verb)(real_qa)
stream.command("convert", cls=Verb)(convert)
stream.command("inspect", cls=Verb)(inspect)
