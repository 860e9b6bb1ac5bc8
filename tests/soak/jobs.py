"""Work that is killed and called again: one command after another, each continuing by itself."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.core.errors import HoldfastError
from tests.model.chat_models import write_chat_model

Command = list[str]
TELLS_TIME = {"log.jsonl", "report.html", ".lock"}


@dataclass(frozen=True)
class Job:
    """commands: as typed, PLACE for the job's directory; once: a result that is not made twice."""

    name: str
    commands: tuple[Command, ...]
    once: str = ""

    def at(self, place: Path) -> list[Command]:
        return [
            [word.replace("PLACE", str(place)) for word in command] for command in self.commands
        ]


def jobs(root: Path, backbone: Path) -> list[Job]:
    """One of each kind, over a second each; files that they read are written below ``root``."""
    settings = [
        f"backbone.name={backbone}", "stream.items_per_task=4", "stream.tasks=3", "optim.epochs=1",
        "lora.rank=2", "sampling.samples=4", "sampling.max_new_tokens=6",
        "online_ewc.sequences=3", "evaluation.max_new_tokens=24",
    ]  # fmt: skip
    root.mkdir(parents=True, exist_ok=True)
    write_chat_model(root / "chat")
    suite = {"base": "full_stack", "methods": ["vanilla", "si_merge"], "seeds": [1]}
    (root / "suite.yaml").write_text(yaml.safe_dump(suite))
    # No correction: the first command, called again after the second, would take it back.
    batches = [[("Who?", "Ann"), ("Where?", "Rome")], [("When?", "Noon"), ("Why?", "Rain")]]
    for number, batch in enumerate(batches, start=1):
        lines = [json.dumps({"question": q, "answer": a}) for q, a in batch]
        (root / f"facts-{number}.jsonl").write_text("\n".join(lines) + "\n")
    runs = [
        Job(
            method, (["run", "full_stack", f"method={method}", *settings, *more, "--out", "PLACE"],)
        )
        for method, more in (
            ("si_online_ewc_kfac_sd_replay_merge", ["keep.snapshot_every=2"]),
            ("si_replay_olora", ["keep.factors=true"]),
            ("sd_osrm", []),
            ("vanilla", []),
        )
    ]
    learned = ["run", "full_stack", "method=si_merge", *settings, "keep.factors=true", "--out"]
    exports = [
        Job(to, ([*learned, "PLACE/run"], ["export", "PLACE/run", "--to", to, "PLACE/out"]), "out")
        for to in ("hf", "peft")
    ]
    teach = [
        ["learn", "PLACE", str(root / f"facts-{number}.jsonl"), "--model", str(root / "chat")]
        for number in (1, 2)
    ]
    stream = ["stream", "llm-qa", "--offline", "--tasks", "3", "--items", "30", "--out", "PLACE"]
    return [
        *runs,
        *exports,
        Job("suite", (["suite", str(root / "suite.yaml"), *settings, "--out", "PLACE"],)),
        Job("llm-qa", (stream,)),
        Job("memory", (*teach, ["consolidate", "PLACE"])),
    ]


def call(command: Command) -> tuple[int, str]:
    """Call the command in this process: its status, and what it wrote to standard error."""
    from experiments.paper.__main__ import app as paper
    from holdfast.cli.main import app

    app = paper if command[:2] == ["stream", "llm-qa"] else app
    errors = io.StringIO()
    before, sys.argv = sys.argv, ["holdfast", *command]
    status = 0
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            app()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return status, errors.getvalue()


def work(commands: list[Command], once: str, place: str, _progress: Any) -> None:
    """In a process of its own: all commands; HoldfastError with the line of one that is refused."""
    for command in commands:
        if once and (Path(place) / once).exists() and command[0] == "export":
            continue  # an export that is there is whole, and is not made again
        status, errors = call(command)
        if status:
            raise HoldfastError(one_line(status, errors))


def one_line(status: int, errors: str) -> str:
    """The one line with which a command refuses; AssertionError for any other end."""
    lines = [line for line in errors.splitlines() if line.startswith("holdfast: ")]
    assert status == 2 and len(lines) == 1, errors
    return lines[0]


def results(place: Path) -> dict[str, Any]:
    """Every file below a directory but those that tell the time, byte by byte."""
    return dict(_results(place))


def _results(place: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(place.rglob("*")):
        if not path.is_file() or path.name in TELLS_TIME:
            continue
        name = str(path.relative_to(place))
        if path.name == "commit.json":
            commit = json.loads(path.read_text())
            yield name, {k: v for k, v in commit.items() if k not in ("log_bytes", "sha256")}
        else:
            yield name, path.read_bytes().replace(str(place).encode(), b"PLACE")
