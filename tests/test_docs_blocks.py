"""Every block of README.md and docs/ runs as it stands, or says before what it needs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from matplotlib.figure import Figure

from experiments.paper.__main__ import app as paper
from holdfast.cli import study
from holdfast.cli.main import app
from holdfast.learning.config import Optimisation
from holdfast.prediction import seconds
from holdfast.streams import Stream, StreamConfig, load
from tests.analysis.synthetic import write_suite, write_trajectory
from tests.documentation import (
    LISTED,
    MEASURED,
    PAGES,
    PAPER,
    ROOT,
    TOLD_BY,
    Block,
    blocks_of,
    opening_of,
)
from tests.studies.inline import Inline

# Shown, not run: what a program prints, the layout of files, a citation.
SHOWN = {"", "text", "bibtex"}
RUNNABLE = [page for page in PAGES if blocks_of(page) and page not in MEASURED]


def listed(block: Block, unit: str) -> tuple[str, ...]:
    """What a command needs that no test gives it; nothing if it runs as it stands."""
    if block.page in MEASURED:
        return ("minutes", *(["data"] if "real_qa" in unit and "data-root" in unit else []))
    return LISTED.get(block.page, {}).get(unit, ())


def units(page: str) -> list[tuple[Block, str, str]]:
    runs = [block for block in blocks_of(page) if block.language in ("console", "python")]
    return [(block, *unit) for block in runs if not block.file for unit in block.units]


def test_every_block_is_a_file_a_program_or_shown() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.file or block.language in {"console", "python", *SHOWN}, (page, block.text)
            if block.language == "python":
                compile(block.text, page, "exec")


def test_the_list_has_no_command_that_is_gone() -> None:
    for page, commands in LISTED.items():
        assert commands.keys() <= {unit for _, unit, _ in units(page)}, page


@pytest.mark.parametrize("page", PAGES)
def test_the_prose_before_a_block_names_what_it_needs(page: str) -> None:
    for block, unit, comment in units(page):
        prose = f"{block.prose} {comment}"
        if page in MEASURED:
            prose += opening_of(page) + (ROOT / "docs/results.md").read_text("utf-8")[:2500]
        for need in listed(block, unit):
            assert re.search(TOLD_BY[need], prose), f"{page}: nothing before `{unit}` says: {need}"


def test_what_ci_runs_is_said_to_be_run_by_it() -> None:
    run = (ROOT / ".ci" / "run").read_text("utf-8")
    stages = " ".join(re.findall(r"^(?:stage|beside \w+) ([\w ]+)$", run, re.MULTILINE)).split()
    made = {unit.removeprefix("make ") for _, unit, _ in units("README.md") if "make " in unit[:5]}
    assert made <= {*stages}
    rule = "holdfast search small --out studies/small --workers 2\n"
    assert "search" in stages and rule in (ROOT / "Makefile").read_text("utf-8")


def parsed(command: str) -> tuple[typer.Typer, list[str]]:
    """The program of a command and its words, without what starts it and a redirection after it."""
    if command.startswith(PAPER):
        return paper, shlex.split(command.removeprefix(PAPER))
    words = shlex.split(command.rpartition(" | ")[2])
    return app, words[words.index("holdfast") + 1 : words.index("<") if "<" in words else None]


@pytest.mark.parametrize("page", PAGES)
def test_what_no_test_runs_is_a_command_with_settings_that_exist(page: str) -> None:
    """Names of verbs and options, recipes and dotted keys cannot rot where nothing runs them."""
    from holdfast import RunConfig
    from holdfast.cli.run import configuration

    files = {block.file: block.text for block in blocks_of(page) if block.file}
    for block, unit, _ in units(page):
        ours = "holdfast " in unit or unit.startswith(PAPER)
        if not listed(block, unit) or not ours or block.language == "python":
            continue
        program, words = parsed(unit)
        command = typer.main.get_command(program)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        given = command.make_context("holdfast", words, resilient_parsing=False).params
        if command.name == "run" and given["config"] not in files:
            RunConfig.of(configuration(given["config"]), given["overrides"] or ())


@pytest.fixture
def stand_ins(backbone_directory: Path) -> dict[str, Callable[[Path], object]]:
    """Small runs in the place of those that the pages take minutes to learn."""
    from holdfast import RunConfig, Trajectory, recipe

    def run(directory: Path, *more: str, tasks: int = 3) -> None:
        small = [
            f"backbone.name={backbone_directory}", "stream.tasks=3", "stream.items_per_task=2",
            "optim.epochs=1", "lora.rank=2", "sampling.samples=4", "sampling.max_new_tokens=4",
            "evaluation.max_new_tokens=24", "keep.factors=true",
        ]  # fmt: skip
        Trajectory(RunConfig.of(recipe("demo"), [*small, *more]), directory).advance(tasks)

    def with_curvature(directory: Path) -> None:
        run(directory, "method=kfac_merge", "sampling.general=2", tasks=2)

    def pair(directory: Path) -> None:
        write_suite(directory, methods=("vanilla", "replay_merge"), seeds=(41, 42))

    def example(directory: Path) -> None:
        write_trajectory(directory, "vanilla", 42)

    return {
        "runs/demo": run,
        "studies/pair": pair,
        "runs/example": example,
        "runs/held": with_curvature,
    }


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch of four items a task, cells that this process learns, empty figures, a look at
    what a step takes.

    What they learn, how long it would take, and how it is drawn, is no matter here.
    """

    def few(config: StreamConfig) -> Stream:
        return symbol_qa(config.model_copy(update={"items_per_task": 4}))

    symbol_qa = load._BUILT_IN["symbol_qa"]
    monkeypatch.setitem(load._BUILT_IN, "symbol_qa", few)
    monkeypatch.setattr(Figure, "draw", lambda *_: None)
    for epochs in ("epochs_of", "most_epochs_of"):
        monkeypatch.setattr(Optimisation, epochs, lambda *_: 1)
    monkeypatch.setattr(seconds, "_MOMENT", 1e-9)
    monkeypatch.setattr(study, "executor", lambda *_: Inline())


@pytest.mark.usefixtures("quick", "brief")
@pytest.mark.parametrize("page", RUNNABLE)
def test_the_blocks_of_a_page_run_in_its_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stand_ins: dict[str, Callable[[Path], object]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And a program prints what the page says that it prints."""
    monkeypatch.chdir(tmp_path)
    made_by_page = {out_of(unit) for block, unit, _ in units(page) if listed(block, unit)}
    text = (ROOT / page).read_text("utf-8")
    for place, make in stand_ins.items():
        if place in text and place not in made_by_page:
            make(Path(place))
    for block in blocks_of(page):
        if "<!-- prints -->" in block.prose:
            assert capsys.readouterr().out == block.text
        capsys.readouterr()
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, "utf-8")
        elif block.language in ("console", "python"):
            for unit, _ in block.units:
                if not listed(block, unit):
                    run_as_it_stands(block, unit, monkeypatch)
                elif (place := out_of(unit)) in stand_ins and not Path(place).exists():
                    stand_ins[place](Path(place))


def out_of(unit: str) -> str:
    """The directory that a command writes, empty if it names none."""
    named = re.search(r"--out (\S+)", unit)
    return named[1] if named else ""


def run_as_it_stands(block: Block, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if block.language == "python":
        exec(compile(block.text, block.page, "exec"), {})  # noqa: S102
    elif unit.startswith(("holdfast ", PAPER)):
        program, words = parsed(unit)
        monkeypatch.setattr(sys, "argv", ["holdfast", *words])
        with pytest.raises(SystemExit) as ended:
            program()
        assert not ended.value.code, f"{block.page}: {unit} ended with {ended.value.code}"
    else:
        subprocess.run(["bash", "-euc", unit], check=True)
