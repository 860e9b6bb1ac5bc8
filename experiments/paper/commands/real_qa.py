"""`python -m experiments.paper stream real-qa`: ten public sources, filtered against one model."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.paper.commands.model import Backbone, Concurrency, EndpointUrl, ServedModel
from experiments.paper.commands.output import claim, finish
from holdfast.builders.load import text_model
from holdfast.cli.stream import Layout, Out
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from experiments.paper.real_qa import CandidateItem, SourceRecords


class MatchRule(StrEnum):
    """How an answer is found in a completion."""

    word_boundary = "word_boundary"
    lenient = "lenient"


def real_qa(
    out: Out,
    data_root: Annotated[
        Path | None,
        typer.Option(
            "--data-root",
            help="Folder with a folder of published files for each source; without it, the hub.",
        ),
    ] = None,
    sources: Annotated[
        str | None,
        typer.Option("--sources", help="Only these, such as squad,sciq; all by default."),
    ] = None,
    tasks: Annotated[int, typer.Option("--tasks", help="How many tasks.")] = 100,
    items: Annotated[int, typer.Option("--items", help="Items in each task.")] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Of every draw.")] = 42,
    backbone: Backbone = None,
    endpoint: EndpointUrl = None,
    model: ServedModel = None,
    concurrency: Concurrency = None,
    match: Annotated[
        MatchRule,
        typer.Option(
            "--match",
            help="What the model knows: an accepted answer between word boundaries, or also one "
            "that differs in articles, quotes, spacing and punctuation around it.",
        ),
    ] = MatchRule.word_boundary,
    max_length: Annotated[
        int,
        typer.Option(
            "--max-length",
            min=3,
            help="Leave out longer items, in tokens of --backbone, which with an endpoint only "
            "counts them.",
        ),
    ] = 384,
    layout: Annotated[Layout, typer.Option("--layout", help="The format.")] = "released",
) -> None:
    """Build Real-QA from public question sets, without what the model answers already.

    Verdicts are kept in OUT/verdicts with every completion; the same command continues from them.
    """
    from experiments.paper.real_qa import SOURCES, RealQASettings, build
    from holdfast.cli.progress import counting, loading
    from holdfast.core.config import build as configured

    claim(out, layout)
    values = {"tasks": tasks, "items": items, "seed": seed, "match": match.value}
    settings = configured(RealQASettings, values, source="stream real-qa")
    names = sorted(SOURCES) if sources is None else [name.strip() for name in sources.split(",")]
    with loading("reading the sources"):
        readings = _readings(names, data_root)
    with loading("loading the model"):
        asked = text_model(backbone or "embedded", endpoint, model, concurrency)
        counted = backbone or (None if endpoint else "embedded")
        fits = None if counted is None else _fitting(counted, max_length)
    if fits is None:
        print("lengths are not checked: name the backbone that will learn", file=sys.stderr)
    with counting("real_qa") as report:
        made = build(readings, asked, out, settings, fits=fits, report=report)
    print(
        f"{'source':<14}{'records':>8}{'usable':>8}{'asked':>7}{'known':>7}{'errors':>7}{'kept':>6}"
    )
    for name, account in made.about["sources"].items():
        usable = account["records"] - sum(account["left_out"].values())
        numbers = (account[key] for key in ("asked", "known", "errors", "kept"))
        asked_known_errors_kept = "{:>7}{:>7}{:>7}{:>6}".format(*numbers)
        print(f"{name:<14}{account['records']:>8}{usable:>8}{asked_known_errors_kept}")
    finish(made, out, layout)


def _readings(names: list[str], data_root: Path | None) -> dict[str, SourceRecords]:
    from experiments.paper.real_qa import find_files, read_files, read_hub

    if data_root is None:
        return {name: read_hub(name) for name in names}
    files = {name: find_files(data_root, name) for name in names}
    missing = [name for name, paths in files.items() if not paths]
    if missing:
        raise HoldfastError(
            f"{data_root}: holds no published files of {', '.join(missing)} (in a folder of that "
            "name); put them there, or name the others with --sources"
        )
    return {name: read_files(name, paths) for name, paths in files.items()}


def _fitting(backbone: str, max_length: int) -> Callable[[CandidateItem], bool]:
    """Whether a candidate's sequence, plus two special tokens, fits the length limit."""
    from holdfast.model.load import load_tokenizer
    from holdfast.streams import Template

    template, tokenizer = Template(), load_tokenizer(backbone)

    def fits(candidate: CandidateItem) -> bool:
        ids = tokenizer(template.text(candidate.item()), add_special_tokens=False)["input_ids"]
        return len(ids) + 2 <= max_length

    return fits
