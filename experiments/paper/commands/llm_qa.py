"""`python -m experiments.paper stream llm-qa`: facts about invented entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.paper.commands.model import Concurrency, EndpointUrl, ServedModel
from experiments.paper.commands.output import claim, finish
from holdfast.builders.load import text_model
from holdfast.cli.stream import Layout, Out
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.builders.text_model import Failure, TextModel
    from holdfast.streams import Item, Stream

WRITER = "Qwen/Qwen3-4B-Instruct-2507"


def llm_qa(
    out: Out,
    tasks: Annotated[int, typer.Option("--tasks", help="How many; each has a topic.")] = 100,
    items: Annotated[int, typer.Option("--items", help="Items in each task.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of what is written.")] = 42,
    order_seed: Annotated[int, typer.Option("--order-seed", help="Of the order of tasks.")] = 0,
    offline: Annotated[
        bool, typer.Option("--offline", help="Let a grammar invent the facts, without a model.")
    ] = False,
    backbone: Annotated[
        str | None,
        typer.Option("--backbone", help=f"The model that writes, run here; {WRITER} if unsaid."),
    ] = None,
    endpoint: EndpointUrl = None,
    model: ServedModel = None,
    concurrency: Concurrency = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", help="Prompts of this call; four times the fewest by default."),
    ] = None,
    novel_to: Annotated[
        str | None,
        typer.Option("--novel-to", help="Leave out what this backbone answers; off by default."),
    ] = None,
    layout: Annotated[Layout, typer.Option("--layout", help="The format.")] = "released",
) -> None:
    """Write LLM-QA: questions about fictional entities, a topic a task.

    Replies are kept in OUT/replies.jsonl; the same command continues from them.
    """
    from experiments.paper.llm_qa import GrammarWriter, LLMQASettings, ModelWriter, generate
    from holdfast.cli.progress import counting, loading
    from holdfast.core.config import build as configured

    claim(out, layout)
    writers: dict[str, object] = {
        "--offline": offline,
        "--backbone": backbone,
        "--endpoint": endpoint,
    }
    if offline:
        writers |= {"--model": model, "--concurrency": concurrency}
    _refuse_two(writers)
    values = {
        "tasks": tasks,
        "items": items,
        "seed": seed,
        "order_seed": order_seed,
        "budget": budget,
    }
    settings = configured(LLMQASettings, values, source="stream llm-qa")
    with loading("loading the model"):
        writer = (
            GrammarWriter()
            if offline
            else ModelWriter(text_model(backbone or WRITER, endpoint, model, concurrency))
        )
        asked = None if novel_to is None else text_model(novel_to)
    known = None if asked is None else _known_to(asked, seed)
    name = "none" if asked is None else asked.name
    with counting("llm_qa") as report:
        made = generate(writer, out, settings, report, known=known, novel_to=name)
    _print_rejected(made)
    finish(made, out, layout)


def _refuse_two(writers: dict[str, object]) -> None:
    options = [option for option, value in writers.items() if value]
    if len(options) > 1:
        raise HoldfastError(f"{' and '.join(options)} exclude each other; give one of them")


def _print_rejected(made: Stream) -> None:
    about = made.about
    reasons = {**about["rejected"], **about["failed"]}
    listed = ", ".join(f"{reason} {count}" for reason, count in reasons.items()) or "nothing"
    print(f"{about['prompts']} prompts to {about['writer']}; left out: {listed}")


def _known_to(asked: TextModel, seed: int) -> Callable[[list[Item]], list[bool | Failure]]:
    """Build Real-QA's test of whether a model answers each item in any of five samples."""
    from experiments.paper.real_qa import known

    return lambda items: known(asked, items, seed)
