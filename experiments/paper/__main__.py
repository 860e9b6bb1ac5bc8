"""`python -m experiments.paper`: the commands that only the paper's study needs."""

from __future__ import annotations

import typer

from experiments.paper.commands.analyse import analyse
from experiments.paper.commands.compare import compare
from experiments.paper.commands.inspect import inspect
from experiments.paper.commands.llm_qa import llm_qa
from experiments.paper.commands.real_qa import real_qa
from holdfast.cli.main import options
from holdfast.cli.verbs import Verb, VerbGroup, Verbs

app = typer.Typer(
    cls=Verbs,
    help="The paper's study: its streams, its statistics, and the comparison with its tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(options)
app.command(cls=Verb)(analyse)
app.command(cls=Verb)(compare)
stream = typer.Typer(
    name="stream", cls=VerbGroup, help="Build LLM-QA and Real-QA.", no_args_is_help=True
)
stream.command("llm-qa", cls=Verb)(llm_qa)
stream.command("real-qa", cls=Verb)(real_qa)
stream.command("inspect", cls=Verb)(inspect)
app.add_typer(stream)

if __name__ == "__main__":
    app(prog_name="python -m experiments.paper")
