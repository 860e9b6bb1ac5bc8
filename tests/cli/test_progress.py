"""Times to go that are honest, lines that are plain, words for what a table cannot hold."""

from __future__ import annotations

import gc
import io
import json

import pytest
from rich.console import Console

from holdfast import RunConfig
from holdfast.cli.progress import TaskBars, bars_on, counting, loading, showing
from holdfast.cli.run import half_life_words, matrix_text, print_summary
from holdfast.cli.study_table import StudyTable, watching
from holdfast.learning.progress import Pace, TaskLines, duration, recalled
from holdfast.results import RecallMatrix, summarise
from holdfast.results.record import _OF_A_TASK, write_commit
from holdfast.studies.executor import Cell, Outcome
from tests.results.matrices import dense


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("durations", "since", "expected"),
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
def test_the_time_to_go(durations, since, expected):
    clock = Clock()
    pace = Pace(0, clock)
    for done, seconds in enumerate(durations, start=1):
        clock.now += seconds
        pace.reached(done, 10)
        assert pace.latest == seconds
    clock.now += since
    assert str(pace) == expected


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
    assert recalled(RecallMatrix().with_row(2, {2: (1, 1)})) == "recall not measured"


def test_bars_follow_tasks_and_phases_and_keep_brackets():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with bars_on(console) as bars:
        drawn = TaskBars("[x]", 2, 5, Pace(2, Clock()), bars)
        tasks, phase = bars.tasks
        assert (tasks.completed, tasks.total, phase.total) == (2, 5, None)
        drawn.step("training", 3, 4, 8)
        assert (phase.description.strip(), phase.completed, phase.total) == ("task 3", 4, 8)
        drawn.step("evaluation", 3, 1, 3)
        assert (phase.completed, phase.total, phase.fields["note"]) == (1, 3, "evaluation")
        drawn.task_done(3, 5, dense([[1.0], [1.0, 1.0], [0.5, 0.5, 0.5]]))
        assert (tasks.completed, tasks.fields["note"]) == (3, "recall of all so far 0.50")
        drawn.event("kept [bold]as it is")
        bars.refresh()
    for text in ("kept [bold]as it is", "[x]", "evaluation", "recall of all so far", "about"):
        assert text in console.file.getvalue()


def test_an_interruption_counts_what_is_committed_not_what_was_reported(capsys, tmp_path):
    def interrupted():
        with showing("vanilla", 0, 3, tmp_path) as progress:
            progress.step("training", 1, 1, 2)
            assert isinstance(progress, TaskLines)  # elsewhere than on a terminal no bars are drawn
            write_commit(tmp_path, {"completed": 2})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted()
    assert stopped.value.__notes__ == ["2 of 3 tasks are kept"]
    assert capsys.readouterr() == ("", "")


def test_a_matrix_as_text():
    matrix = dense([[1.0], [0.25, 1.0]]).with_row(3, {1: (0, 1), 3: (1, 1), 4: (1, 1)})
    assert matrix_text(matrix).splitlines() == [
        "  after task   1   2   3  on task",
        "           1 100",
        "           2  25 100",
        "           3   0   - 100",
    ]
    assert "too many" in matrix_text(dense([[0.5] * task for task in range(1, 20)]))


def test_a_summary_has_a_row_for_each_run(capsys, tmp_path):
    event = {"event": "task", "losses": [], "seconds": {"training": 2, "commit": 1}}
    lines = [dict.fromkeys(_OF_A_TASK, task) | event for task in (1, 2)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    matrix = dense([[1.0], [0.4, 1.0]])
    print_summary({"vanilla": (matrix, tmp_path), "si_sd_replay_olora[1]": (matrix, tmp_path)})
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(head) == "method tasks Final Diag Forget W(10) transfer half-life seconds"
    numbers = ["2", "0.700", "1.000", "0.600", "-", "-", "1", "6"]
    assert rows == [["vanilla", *numbers], ["si_sd_replay_olora[1]", *numbers]]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (dense([[1.0], [0.4, 1.0]]), "1"),
        (dense([[1.0], [0.8, 1.0]]), ">1"),  # at the last age that was seen
        (dense([[0.0], [0.0, 0.0]]), "-"),  # nothing was learned
        (RecallMatrix().with_row(3, {1: (1, 1), 3: (1, 1)}), "-"),  # ages that nobody saw
    ],
)
def test_half_lives_in_words(matrix, words):
    assert half_life_words(summarise(matrix)) == words


@pytest.mark.parametrize("at_once", [False, True])
def test_counting_in_a_log_is_a_line_now_and_then_with_an_honest_rest(capsys, at_once):
    """What was there at the start took no time, so it says nothing of how long the rest takes."""
    clock = Clock()
    with counting("real_qa", clock, at_once=at_once) as report:
        report(40, 100, "found on disk")
        clock.now += 12
        report(60, 100, "sciq")  # 20 in 12 s: 40 more take 24
        clock.now += 3
        report(65, 100, "too soon for a line")
        clock.now += 9
        report(100, 100, "squad")
        report(100, 100, "squad")  # it goes on, as a lesson does when every answer is right
    assert capsys.readouterr().err.splitlines() == [
        *(["real_qa: 40 of 100, found on disk"] if at_once else []),
        "real_qa: 60 of 100, sciq, about 24 s left",
        "real_qa: 100 of 100, squad",
    ]


def test_the_collector_rests_while_libraries_load_and_works_again_afterwards():
    with loading():
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(RuntimeError), loading():
        raise RuntimeError
    assert gc.isenabled()


def cell(seed: int) -> Cell:
    return Cell("replay[0.5]", RunConfig.of({"method": "replay", "seed": seed}), horizon=4)


def tell(watch: StudyTable) -> None:
    """Four cells of four tasks: one was there, one is at work, one has failed, one waits."""
    watch.begins(cells=4, tasks=16, missing=12)
    watch.finished(Outcome(cell(1)))
    watch.started(cell(2))
    watch.task_done(cell(2), 1)
    watch.task_done(cell(2), 2)
    watch.started(cell(3))
    watch.event(cell(3), "lost its worker")
    watch.finished(Outcome(cell(3), "no room"))


def test_the_table_of_a_study_says_who_is_where_and_what_failed():
    console, clock = Console(file=io.StringIO(), width=100, force_terminal=False), Clock()
    drawn = StudyTable("search", 16, console, clock)
    tell(drawn)
    console.print(drawn)
    clock.now += 10
    drawn.task_done(cell(2), 3)
    console.print(drawn)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "search: replay[0.5], seed 3: lost its worker"
    assert "6 of 16 tasks" in lines[1]
    assert lines[2] == "2 of 4 cells done, 1 running, 1 failed"
    assert lines[3].startswith("replay[0.5], seed 2 task 2 of 4")
    assert lines[4] == "failed: replay[0.5], seed 3: no room"
    assert "7 of 16 tasks about 1:30 min left" in lines[5]  # nine more, ten seconds each
    drawn.begins(cells=2, tasks=8, missing=8)  # of the next horizon, counted from zero
    assert drawn.counts() == "0 of 2 cells done, 1 running, 1 failed"


def test_a_study_in_a_log_has_lines(capsys):
    with watching("suite", 16) as watch:
        tell(watch)
        watch.learned = 15
        watch.task_done(cell(2), 4)
    assert capsys.readouterr().err.splitlines() == [
        "suite: replay[0.5], seed 3: lost its worker",
        "suite, tasks: 16 of 16, 2 of 4 cells done, 1 running, 1 failed",
    ]
