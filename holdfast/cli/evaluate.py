"""`holdfast evaluate`, what a memory knows and costs; `capability`, what a model can still do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, counting, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import is_memory, require_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.capability.model import Model
    from holdfast.memory.evaluation.result import MemoryEvaluation
    from holdfast.results import CapabilityRow


def evaluate(
    memory: MemoryPath,
    probes: Annotated[
        Path | None, Option(help="JSON lines with further questions about taught facts.")
    ] = None,
    everyday: Annotated[
        Path | None, Option(help="JSON lines {question, answers}; 240 come along.")
    ] = None,
    limit: Annotated[int | None, Option(min=1, help="Questions of each kind at most.")] = None,
    out: Annotated[
        Path | None, Option(help="Folder for the numbers, a picture and all answers.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Measure a memory: recall, other wordings, what else is kept, costs.

    With --out the same command continues where it was stopped.
    """
    require_memory(memory)
    found = _measured(memory, probes, everyday, limit, out)
    if as_json:
        print(json_line(found.values()))
    else:
        from holdfast.memory.evaluation.telling import about_lines, notes, table_rows

        print("\n".join(about_lines(found)))
        print_table(["", "of", "memory", "weights", "list"], table_rows(found))
        print("\n".join(notes(found)))
    if out is not None:
        from holdfast.report.bars import plot_evaluation
        from holdfast.report.figures import save

        save(plot_evaluation(found.values()), out / "evaluation")
        if not as_json:
            print(out)


def _measured(
    directory: Path, probes: Path | None, everyday: Path | None, limit: int | None, out: Path | None
) -> MemoryEvaluation:

    with loading():
        from holdfast.memory.evaluation import result
        from holdfast.memory.evaluation.measure import evaluate as measure
        from holdfast.memory.evaluation.probes import everyday_questions, probes_of, with_probes

    memory = opened_memory(directory)
    asked = probes_of(memory.learned)
    if probes is not None:
        asked = with_probes(asked, probes)
    common = everyday_questions(everyday)
    with loading(f"loading {memory.model}"):
        memory.load()
    kept = 0

    def keep(evaluation: MemoryEvaluation, answers: list[dict[str, Any]]) -> None:
        nonlocal kept
        if out is not None:
            result.write_evaluation(evaluation, answers, out)
            kept = len(evaluation.stages)

    def before(identity: str) -> MemoryEvaluation | None:
        return None if out is None else result.read_evaluation(out, identity)

    try:
        with WorkBars() as report:
            return measure(memory, asked, common, limit, report, before, keep)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{kept} measures are kept in {out}" if out else "nothing is kept without --out DIR"
        )
        raise


def capability(
    targets: Annotated[
        list[str],
        Argument(
            metavar="DIR|MODEL...",
            help="Trajectories or memories, or one backbone: embedded, a hub name or a directory.",
        ),
    ],
    tasks: Annotated[
        str, Option(help="Suites, also mmlu and corpus.", metavar="NAME,...")
    ] = "gsm8k,math,mgsm,mmlu_redux,text",
    limit: Annotated[
        int | None, Option(help="Items of each suite at most; all by default.")
    ] = None,
    data_root: Annotated[
        Path | None, Option(help="Folder of published files; without it, the hub.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Where the results go; a trajectory's lie beside it by default.")
    ] = None,
    after_task: Annotated[
        int | None, Option(help="Of a trajectory: a kept boundary, 0 for the unmodified backbone.")
    ] = None,
    redux_errors: Annotated[
        Literal["drop", "keep", "correct"], Option(help="Items that MMLU-Redux marks as wrong.")
    ] = "drop",
) -> None:
    """Measure general capability: mathematics, knowledge, and the language itself.

    The same command continues where it was stopped.
    """
    from holdfast.results.description import is_trajectory

    backbones = [target for target in targets if not is_trajectory(Path(target))]
    if out is not None and len(targets) > 1:
        raise HoldfastError("--out takes the results of one model; give one, or leave --out away")
    for backbone in backbones:
        _check_backbone(backbone, out, after_task)

    with loading():
        from holdfast.capability.model import plain_model, trajectory_model
        from holdfast.capability.run import measure, questions, suites

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    with loading("reading the questions"):
        asked = questions(suites(redux_errors), names, data_root, limit)
    with loading("loading the model"):
        models = [
            plain_model(target, out)
            if target in backbones and out is not None
            else trajectory_model(Path(target), after_task, out)
            for target in targets
        ]
    for model in models:
        measure(model, asked, counting)
    for model in models:
        _print_scores(model, [question.suite.name for question in asked])
    for model in models:
        print(model.directory)


def _check_backbone(name: str, out: Path | None, after_task: int | None) -> None:

    if is_memory(Path(name)):
        raise HoldfastError(f"{name}: is a memory; holdfast evaluate {name} measures what it keeps")
    if out is None:
        raise HoldfastError(
            f"{name}: is no trajectory, and the results of a backbone need a place; add --out DIR"
        )
    if after_task is not None:
        raise HoldfastError(f"{name}: --after-task is for trajectories; leave it away")


def _print_scores(model: Model, suites: Sequence[str]) -> None:
    from holdfast.results.capability import boundary, read_boundary

    past: dict[str, CapabilityRow] = {}
    if model.after_task:
        before = boundary(Path(model.label), 0)
        past = {row.suite: row for row in read_boundary(before, 0)}
        print(f"{model.label} after {model.after_task} tasks; change since before the first:")
    else:
        print(f"{model.label}, unmodified:")
    found = {row.suite: row for row in read_boundary(model.directory, model.after_task)}
    rows = []
    for row in (found[suite] for suite in suites):
        value, items = f"{row.value:.3f}", str(row.items)
        cells = [value, "-", items, str(row.extracted)]
        if row.bits_per_byte is not None:
            cells = ["-", value, items, "-"]
        rows.append([row.suite, *cells, _change(row, past.get(row.suite))])
    print_table(["suite", "score", "bits/byte", "items", "extracted", "change"], rows)


def _change(row: CapabilityRow, before: CapabilityRow | None) -> str:
    """The change from the unmodified backbone; ``-`` unless both have the same settings."""
    if before is None or before.settings != row.settings:
        return "-"
    return f"{row.value - before.value:+.3f}"
