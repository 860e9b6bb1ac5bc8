"""Times to go that are honest, lines that are plain, words for what a table cannot hold."""

from __future__ import annotations

import gc
import io
import math

import pytest
from rich.console import Console

from holdfast.cli.progress import TaskBars, bars_on, counting, loading, showing
from holdfast.cli.summary import half_life_words, matrix_text
from holdfast.learning.task_lines import Pace, TaskLines, duration, recalled
from holdfast.results import RecallMatrix, summarise
from holdfast.results.commit import write_commit
from tests.results.matrices import dense


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def paced(durations: list[float], learned: int, horizon: int, since: float = 0.0) -> str:
    """What is said after tasks of these durations, and ``since`` seconds into the next."""
    clock = Clock()
    pace = Pace(learned, clock)
    for done, seconds in enumerate(durations, start=learned + 1):
        clock.now += seconds
        pace.reached(done, horizon)
        assert pace.latest == seconds
    clock.now += since
    return str(pace)


@pytest.mark.parametrize(
    ("durations", "since", "said"),
    [
        ([], 50, ""),  # nothing is known yet
        ([10], 0, "about 1:30 min left"),  # 9 tasks to go
        ([100, 10], 0, "about 1:20 min left"),  # the first task loaded the model
        ([100, 10], 4, "about 1:16 min left"),  # counts down within a task
        ([100, 10], 60, "about 1:10 min left"),  # a slow task never makes it negative
        ([100, 1, 10, 20, 30], 0, "about 1:40 min left"),  # the mean of the last three
        ([1] * 10, 0, ""),  # done
    ],
)
def test_the_time_to_go(durations, since, said):
    assert paced(durations, 0, 10, since) == said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (3599, "59:59 min"), (11_400, "3:10 h")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_log_has_one_plain_line_a_task(capsys):
    clock = Clock()
    lines = TaskLines("vanilla", Pace(0, clock))
    lines.step("training", 1, 5, 10)
    clock.now += 7
    lines.task_done(1, 3, dense([[1.0]]))
    clock.now += 9
    lines.task_done(2, 3, dense([[1.0], [0.5, 1.0]]))
    lines.event("something [odd]")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "vanilla: task 1 of 3 in 7 s, recall of all so far 1.00, about 14 s left",
        "vanilla: task 2 of 3 in 9 s, recall of all so far 0.75, about 9 s left",
        "vanilla: something [odd]",
    ]


def test_bars_follow_tasks_and_phases_and_keep_brackets():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with bars_on(console) as bars:
        drawn = TaskBars("[x]", 2, 5, Pace(2, Clock()), bars)
        tasks, phase = bars.tasks
        assert (tasks.completed, tasks.total, phase.total) == (2, 5, None)
        drawn.step("training", 3, 4, 8)
        assert (phase.description.strip(), phase.completed, phase.total) == ("task 3", 4, 8)
        assert phase.fields["note"] == "training"
        drawn.step("evaluation", 3, 1, 3)
        assert (phase.completed, phase.total, phase.fields["note"]) == (1, 3, "evaluation")
        drawn.task_done(3, 5, dense([[1.0], [1.0, 1.0], [0.5, 0.5, 0.5]]))
        assert (tasks.completed, tasks.fields["note"]) == (3, "recall of all so far 0.50")
        drawn.event("kept [bold]as it is")
        bars.refresh()
    for shown in ("kept [bold]as it is", "[x]", "evaluation", "recall of all so far", "about"):
        assert shown in console.file.getvalue()


def test_elsewhere_than_on_a_terminal_no_bars_are_drawn(capsys, tmp_path):
    with showing("vanilla", 0, 3, tmp_path) as progress:
        progress.step("training", 1, 1, 2)
    assert isinstance(progress, TaskLines)
    assert capsys.readouterr() == ("", "")


def test_an_interruption_counts_what_is_committed_not_what_was_reported(tmp_path):
    def interrupted():
        with showing("vanilla", 0, 3, tmp_path):
            write_commit(tmp_path, {"completed": 2})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted()
    assert stopped.value.__notes__ == ["2 of 3 tasks are kept"]


def test_recall_that_nobody_measured_is_no_number():
    assert recalled(dense([[1.0], [0.5, 1.0]])) == "recall of all so far 0.75"
    assert recalled(RecallMatrix().with_row(2, {2: (1, 1)})) == "recall not measured"


def test_a_matrix_as_text():
    matrix = dense([[1.0], [0.25, 1.0]]).with_row(3, {1: (0, 1), 3: (1, 1), 4: (1, 1)})
    assert matrix_text(matrix).splitlines() == [
        "  after task   1   2   3  on task",
        "           1 100",
        "           2  25 100",
        "           3   0   - 100",
    ]
    widest = dense([[0.5] * task for task in range(1, 19)])
    assert max(map(len, matrix_text(widest).splitlines())) <= 100
    assert "too many" in matrix_text(dense([[0.5] * task for task in range(1, 20)]))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0], [0.4, 1.0]], "1"),
        ([[1.0], [0.8, 1.0]], ">1"),  # at the last age that was seen
        ([[0.0], [0.0, 0.0]], "-"),  # nothing was learned
    ],
)
def test_half_lives_in_words(rows, words):
    assert half_life_words(summarise(dense(rows))) == words


def test_no_half_life_is_claimed_over_ages_that_nobody_saw():
    matrix = RecallMatrix().with_row(3, {1: (1, 1), 3: (1, 1)})
    assert math.isnan(matrix[3, 2])
    assert half_life_words(summarise(matrix)) == "-"


def test_counting_in_a_log_is_a_line_now_and_then_with_an_honest_rest(capsys) -> None:
    """What was there at the start took no time, so it says nothing of how long the rest takes."""
    clock = Clock()
    with counting("real_qa", clock) as report:
        report(40, 100, "found on disk")
        clock.now += 12
        report(60, 100, "sciq")  # 20 in 12 s: 40 more take 24
        clock.now += 3
        report(65, 100, "too soon for a line")
        clock.now += 9
        report(100, 100, "squad")
    assert capsys.readouterr().err.splitlines() == [
        "real_qa: 60 of 100, sciq, about 24 s left",
        "real_qa: 100 of 100, squad",
    ]


def test_the_collector_rests_while_libraries_load_and_works_again_afterwards() -> None:
    with loading():
        assert not gc.isenabled()
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError), loading():
        raise RuntimeError
    assert gc.isenabled()
