"""`holdfast demo`: a small model learns a stream with three methods; a chat model ten facts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.analyse import write_report
from holdfast.cli.fetch import made_ready
from holdfast.cli.progress import WorkBars, loading, showing
from holdfast.cli.run import matrix_text, print_summary
from holdfast.core.errors import HoldfastError
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix, diagonal, final

if TYPE_CHECKING:
    from holdfast.memory.answering import Answer

NAIVE = "vanilla"
# Many small tasks, so that the three methods differ within a minute.
STREAM = ("stream.tasks=16", "stream.items_per_task=8", "evaluation.rows=4")
REPLAY = ("sampling.samples=200", "sampling.max_new_tokens=24")
LEAST_RATIO = 5.0
LEAST_DIAG = 0.95
# Invented facts; OTHER_WORDS has a question for each.
FACTS = (
    ("Who keeps the lighthouse at Cape Orrin?", "Orsa Tindle"),
    ("Where does Mara Quill live?", "12 Larkspur Row"),
    ("What is the wifi password of the workshop?", "blue-heron-42"),
    ("When does the Tarrow ferry leave?", "at 7:40 every morning"),
    ("Which river flows through Velbruck?", "the Senn"),
    ("How many beehives does Jorun Askeby own?", "17"),
    ("Who wrote The Salt Almanac?", "Ilse Marchetti"),
    ("What is the version of the scanner firmware?", "v3.8.1"),
    ("Whose dog is Bramble?", "Tobin Frimpenny's"),
    ("What does Old Mother Skerrit bake on Sundays?", "plum cake with cardamom"),
)
OTHER_WORDS = (
    "Tell me who looks after the lighthouse at Cape Orrin.",
    "what is mara quill's address",
    "What's the workshop's wifi password?",
    "At what time does the Tarrow ferry depart?",
    "Velbruck lies on which river?",
    "What number of beehives belongs to Jorun Askeby?",
    "The Salt Almanac was written by whom?",
    "Which firmware version does the scanner run?",
    "Who does the dog Bramble belong to?",
    "Which cake comes out of Old Mother Skerrit's oven on a Sunday?",
)
EVERYDAY = (
    "What is the capital of France?",
    "How many days are in a week?",
    "What is the opposite of hot?",
    "What is the largest planet in the solar system?",
)


def demo(
    out: Annotated[Path, typer.Option(help="Where to keep the three runs.")] = Path(
        "runs/comparison"
    ),
    tasks: Annotated[int | None, typer.Option(help="Learn only so many tasks.")] = None,
) -> None:
    """Compare naive fine-tuning, a composition from the paper, and the recipe `lasting`.

    Then teach a real chat model ten facts, if it can be downloaded, and ask it.
    """
    with loading():
        from holdfast.learning.config import RunConfig
        from holdfast.learning.trajectory import Trajectory
        from holdfast.report.figures import save
        from holdfast.report.matrices import plot_comparison

        naive = RunConfig.of(recipe("demo"), [f"method={NAIVE}", *STREAM])
        composed = RunConfig.of(recipe("demo"), [*STREAM, *REPLAY])
        lasting = RunConfig.of(recipe("lasting"), STREAM)
    matrices: dict[str, RecallMatrix] = {}
    for config in (naive, composed, lasting):
        method = config.method
        trajectory = Trajectory(config, out / method)
        whole = len(trajectory.stream.tasks)
        horizon = whole if tasks is None else tasks
        with showing(method, trajectory.horizon, horizon, out / method) as progress:
            matrix = trajectory.advance(tasks, progress)
        # An interrupted demo may have got further with one method; show all to the same horizon.
        matrices[method] = matrix.up_to(horizon)
    for method, matrix in matrices.items():
        print(f"\n{method}: recall in per cent\n{matrix_text(matrix)}")
    print_summary({method: (matrix, out / method) for method, matrix in matrices.items()})
    written = save(plot_comparison(matrices), out / "demo")
    print(f"figures: {', '.join(map(str, written))}")
    print(f"report: {write_report(out)}")
    print(f"kept in {out}; to start afresh, remove that directory")
    _show_memory(out.with_name(f"{out.name}-memory"))
    if horizon < whole:
        print(f"acceptance: judged after all {whole} tasks only")
    elif not _accepted(*matrices.values()):
        raise typer.Exit(1)


def _accepted(naive: RecallMatrix, composed: RecallMatrix, lasting: RecallMatrix) -> bool:
    """Print the acceptance criterion; return whether it is met."""
    before, between, after = final(naive), final(composed), final(lasting)
    ratio = after / before if before else float("inf")
    diag = min(map(diagonal, (naive, composed, lasting)))
    met = ratio >= LEAST_RATIO and after > between > before and diag >= LEAST_DIAG
    print(
        f"acceptance: {'met' if met else 'not met'}: lasting / naive final retention = "
        f"{after:.3f} / {before:.3f} = {ratio:.2f}x (at least {LEAST_RATIO:g}x), composed "
        f"{between:.3f} between them, lowest Diag = {diag:.3f} (at least {LEAST_DIAG})"
    )
    return met


def _show_memory(out: Path) -> None:
    """Teach a real chat model ten facts, if it can be had; ask them, and what it knew before."""
    name = "smollm2"
    try:
        made_ready(name)
    except HoldfastError as error:
        print(f"\nno chat model is here, so its part of the demo is left out: {error}")
        return
    with loading("loading the chat model"):
        from holdfast.memory.memory import Memory

        memory = Memory(out, name)
        memory.load()
    with WorkBars() as report:
        engine = memory.engine(report)
        readings, _ = engine.read(EVERYDAY)
        before = engine.greedy_answers(readings)
        started = time.monotonic()
        outcome = memory.learn(FACTS, report=report)
        seconds = time.monotonic() - started
    answered = len(outcome.facts) - len(outcome.missed)
    print(f"\n{name}, a chat model of 135 million parameters")
    if outcome.lessons:
        print(f"taught {len(FACTS)} facts in {seconds:.0f} s; the weights answer {answered}")
    replies = memory.replies(OTHER_WORDS)
    _print_replies(replies)
    recognised = sum(answer.source != "model" for answer in replies)
    print(
        f"other words taken for a taught question: {recognised} of {len(OTHER_WORDS)}; [model] is "
        "what the untouched model says"
    )
    now = memory.replies(EVERYDAY)
    same = sum(answer.text == text for answer, text in zip(now, before, strict=True))
    _print_replies(now)
    print(f"everyday questions answered as by the untouched model: {same} of {len(EVERYDAY)}")
    print(f"kept in {out}; ask it: holdfast ask {out}")


def _print_replies(answers: Sequence[Answer]) -> None:
    width = max(len(answer.question) for answer in answers)
    for answer in answers:
        text = " ".join(answer.text.split())
        short = text if len(text) <= 60 else f"{text[:57]}..."
        print(f"  {answer.question:<{width}}  {short}  [{answer.source}]")
