"""The command around the verbs: exit status, `--debug` anywhere, signals, help."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import start as program
from holdfast.cli.main import app
from holdfast.cli.verbs import Terminated, stopped_by_signals
from holdfast.core.errors import HoldfastError
from holdfast.results.record import completed_in
from tests.cli.conftest import refused
from tests.forked import Forked

PROGRAM = "import sys; from holdfast.cli.main import app; app(sys.argv[1:])"
SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


@pytest.fixture
def recipes_raise(monkeypatch):
    """Let `holdfast recipes` fail in a given way."""

    def arrange(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr("holdfast.cli.run.recipe_names", fail)

    return arrange


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (HoldfastError("x.yaml: is empty"), 2, "x.yaml: is empty"),
        (RuntimeError("a wire\ncame loose"), 1, "this is our fault: RuntimeError: a wire came "
         "loose (--debug shows the traceback)"),
        (BrokenPipeError("a worker is gone"), 1, "this is our fault: BrokenPipeError: a worker is "
         "gone (--debug shows the traceback)"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues"),
        (Terminated(), 143, "stopped; the same command continues"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("words", [["recipes"], ["--debug", "recipes"], ["recipes", "--debug"]])
def test_errors_are_one_line_and_a_status(error, status, line, words, recipes_raise, holdfast):
    recipes_raise(error)
    outcome = holdfast(*words)
    assert (outcome.status, outcome.out) == (status, "")
    *traceback, last = outcome.err.splitlines()
    assert last == f"holdfast: {line}"
    assert outcome.err.startswith("Traceback") == bool(traceback) == ("--debug" in words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["learns"], "holdfast: No such command 'learns'. Did you mean 'learn', 'lessons'? (holdf"),
        (["--none"], "holdfast: No such option: --none"),
        (["stream", "mae"], "holdfast stream: No such command 'mae' (holdfast stream --help exp"),
        (["run"], "holdfast run: Missing argument 'config' (holdfast run --help explains)\n"),
        (["run", "demo", "--tasks", "two"], "holdfast run: Invalid value for '--tasks': "),
        *(
            (["suite", "factorial", option, "0"], f"holdfast suite: Invalid value for '{option}'")
            for option in ("--workers", "--workers-per-gpu", "--threads")
        ),
        (["export", "a", "b"], "holdfast export: Missing option '--to'. Choose from"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(words, line, holdfast):
    outcome = holdfast(*words)
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["diff", "m", "--since", "1", "--facts-only", "--limit", "3"], "--facts-only asks nothi"),
        (["learn", "m", "--detach", "--wait"], "--detach returns at once and --wait waits; give"),
        (["learn", "m", "Who?", "Ann", "--question-column", "q"], "--question-column and --answer"),
        (["serve", "m", "--port", "0", "--model", "smollm2"], "--model: is of a new memory, and"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(words, line, holdfast):
    refused(holdfast(*words), line)


def test_an_interrupted_run_says_so_and_the_same_command_continues(holdfast, settings, tmp_path):
    place = tmp_path / "run"
    arguments = ["run", "demo", "method=vanilla", *settings, "stream.tasks=6", "--out", str(place)]
    running = Forked(arguments, stderr="pipe")
    deadline = time.monotonic() + 180
    while not (place / "matrix.csv").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.poll() == 130
    wanted = r"holdfast: interrupted; (\d+) of 6 tasks are kept; the same command continues"
    last = re.fullmatch(wanted, err.splitlines()[-1])
    assert last is not None, err
    assert completed_in(place) == int(last[1]) < 6
    assert "Traceback" not in err
    finished = holdfast(*arguments)
    assert finished.status == 0, finished.err
    assert "task 6 of 6" in finished.err and "task 1 of 6" not in finished.err


def test_the_help_of_every_verb_loads_no_torch():
    check = (
        "import sys\n"
        "from holdfast.cli.main import app\n"
        "for verb in [[], *map(list, zip(sys.argv[1:]))]:\n"
        "    app([*verb, '--help'], standalone_mode=False)\n"
        "app(['--version'], standalone_mode=False)\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & sys.modules.keys()\n"
    )
    verbs = ["run", "doctor", "demo", "learn", "ask", "export", "capability", "suite", "serve"]
    done = subprocess.run([sys.executable, "-c", check, *verbs], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage") == 1 + len(verbs)


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "PASSIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_how_threads_wait_is_the_users_to_say(given: dict[str, str]) -> None:
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
    code = f"import os, holdfast.cli.main; print([os.environ.get(name) for name in {names}])"
    variables = {name: value for name, value in os.environ.items() if name not in names}
    out = subprocess.run(
        [sys.executable, "-c", code], env=variables | given, capture_output=True, check=True
    ).stdout
    expected = [given.get(name) for name in names] if given else ["2000", "ACTIVE", "1"]
    assert out.decode().strip() == str(expected)


def test_a_reader_that_leaves_ends_it_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        process = Forked(["recipes"], stdout=output, stderr="pipe")
    assert process.communicate() == ("", "")
    assert process.poll() == 1


def test_an_interrupt_while_it_is_loading_is_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "recipes"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 130
    assert done.stderr == "holdfast: interrupted; the same command continues\n"


def in_a_finalizer(send) -> None:
    class Closed:
        def __del__(self) -> None:
            send()

    Closed()


def in_a_collection(send) -> None:
    def collected(phase: str, _info: object) -> None:
        if phase == "start":
            send()

    gc.callbacks.append(collected)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collected)


def test_a_signal_that_is_raised_again_at_once_is_not_lost(monkeypatch):
    """As on a busy machine, where the alarm finds the hook still at work."""
    setitimer, calls = signal.setitimer, []

    def at_once(which: int, seconds: float) -> None:
        calls.append(seconds)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGALRM)
        else:
            setitimer(which, seconds)

    def work() -> None:
        in_a_collection(lambda: os.kill(os.getpid(), signal.SIGINT))
        time.sleep(10)

    monkeypatch.setattr(signal, "setitimer", at_once)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), stopped_by_signals():
        work()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("place", [in_a_finalizer, in_a_collection, lambda send: send()])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_verb_wherever_it_arrives(number, place):
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    begun = time.monotonic()

    def work() -> None:
        place(lambda: os.kill(os.getpid(), number))
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt) as raised, stopped_by_signals():
        work()
    assert raised.type is SIGNALS[number]
    assert time.monotonic() - begun < 5
    assert {number: signal.getsignal(number) for number in before} == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_errors_that_nobody_catches_are_still_told(monkeypatch):
    def broken() -> None:
        raise ValueError

    error_types: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: error_types.append(dropped.exc_type))
    with stopped_by_signals():
        in_a_finalizer(broken)
    assert error_types == [ValueError]


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ("ask memory Who?", True),
        ("ask other Who?", False),  # perhaps of a model in four bits
        ("export memory out", False),
        ("", False),
    ],
)
def test_bitsandbytes_is_left_out_of_a_memory(words, left_out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.json").write_text("{}")
    modules = {name: module for name, module in sys.modules.items() if name != "bitsandbytes"}
    monkeypatch.setattr(sys, "modules", modules)
    monkeypatch.setattr(program, "app", lambda prog_name: None)
    monkeypatch.setattr(sys, "argv", ["holdfast", *words.split()])
    program.start()
    assert (modules.get("bitsandbytes", "there") is None) is left_out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = open("/dev/full", "w")  # noqa: SIM115 its end would flush it, and fail
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(SystemExit) as end:
        app(["recipes"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error == "holdfast: the output cannot be written (No space left on device)\n"
    with contextlib.suppress(OSError):
        full.close()
