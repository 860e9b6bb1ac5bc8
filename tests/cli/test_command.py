"""The command around the verbs: exit status, `--debug` anywhere, interruption, help."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError
from holdfast.results.commit import completed_in
from tests.forked import Forked


@pytest.fixture
def recipes_raise(monkeypatch):
    """Let `holdfast recipes` fail in a given way."""

    def arrange(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr("holdfast.cli.recipes.recipe_names", fail)

    return arrange


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (HoldfastError("x.yaml: is empty"), 2, "holdfast: x.yaml: is empty"),
        (
            RuntimeError("a wire\ncame loose"),
            1,
            "holdfast: this is our fault: RuntimeError: a wire came loose "
            "(--debug shows the traceback)",
        ),
        (
            KeyboardInterrupt(),
            130,
            "holdfast: interrupted; the same command continues",
        ),
    ],
)
@pytest.mark.parametrize("debug", [None, 0, 1])
def test_errors_are_one_line_and_a_status(error, status, line, debug, recipes_raise):
    recipes_raise(error)
    arguments = ["recipes"]
    if debug is not None:
        arguments.insert(debug, "--debug")
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    lines = result.stderr.splitlines()
    assert lines[-1] == line
    assert (len(lines) > 1) == (debug is not None)
    assert result.stderr.startswith("Traceback") == (debug is not None)


def test_an_error_of_a_plug_in_is_not_ours(monkeypatch, recipes_raise):
    code = compile(
        "def fail():\n    raise RuntimeError('a wire came loose')\n", "tether.py", "exec"
    )
    own = {"__name__": "tethered.tether"}
    exec(code, own)  # noqa: S102
    installed = [SimpleNamespace(module="tethered.tether")]
    monkeypatch.setattr("holdfast.core.plugins.installed", lambda group: installed)
    monkeypatch.setattr("holdfast.cli.recipes.recipe_names", own["fail"])
    result = CliRunner().invoke(app, ["recipes"])
    assert result.exit_code == 1
    assert result.stderr == (
        "holdfast: this is the fault of the plug-in tethered (tether.py line 2): RuntimeError: "
        "a wire came loose (--debug shows the traceback)\n"
    )
    recipes_raise(RuntimeError("a wire came loose"))
    assert "this is our fault" in CliRunner().invoke(app, ["recipes"]).stderr


@pytest.mark.parametrize(
    "arguments", [["learns"], ["run"], ["run", "demo", "--tasks", "two"], ["doctor", "--all"]]
)
def test_wrong_usage_is_status_2_without_a_traceback(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_configuration_must_be_a_mapping(tmp_path):
    (tmp_path / "list.yaml").write_text("- method\n- seed\n")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "list.yaml"), "--out", "unused"])
    assert result.exit_code == 2
    assert "list.yaml: must hold a mapping" in result.stderr
    result = CliRunner().invoke(app, ["run", str(tmp_path), "--out", "unused"])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_dry_run_prints_a_configuration_that_resolves_to_itself(holdfast, settings, tmp_path):
    first = holdfast("run", "demo", *settings, "--dry-run").out
    (tmp_path / "again.yaml").write_text(first)
    assert holdfast("run", tmp_path / "again.yaml", "--dry-run").out == first


def test_a_dry_run_checks_the_directory_and_leaves_it_alone(holdfast, settings, tmp_path):
    place = tmp_path / "run"
    command = ["run", "demo", "method=vanilla", *settings, "--out", place]
    assert holdfast(*command, "--tasks", 2).status == 0
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert "where 2 tasks are learned" in holdfast(*command, "--dry-run").out
    refused = holdfast(*command, "optim.lr=0.25", "--dry-run")
    assert refused.status == 2
    assert "optim.lr: 0.002 -> 0.25" in refused.err
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped")],
)
def test_an_interrupted_run_says_so_and_the_same_command_continues(
    sent, status, said, holdfast, settings, tmp_path
):
    place = tmp_path / "run"
    arguments = ["run", "demo", "method=vanilla", *settings, "stream.tasks=8", "--out", str(place)]
    running = Forked(arguments, stderr="pipe")
    deadline = time.monotonic() + 180
    while not (place / "matrix.csv").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(sent)
    _, err = running.communicate(timeout=60)
    assert running.poll() == status
    last = re.fullmatch(
        rf"holdfast: {said}; (\d+) of 8 tasks are kept; the same command continues",
        err.splitlines()[-1],
    )
    assert last is not None, err
    assert completed_in(place) == int(last[1]) < 8
    assert "Traceback" not in err
    finished = holdfast(*arguments)
    assert finished.status == 0, finished.err
    assert "task 8 of 8" in finished.err
    assert "task 1 of 8" not in finished.err


def test_the_help_of_every_verb_loads_no_torch():
    check = (
        "import sys\n"
        "from holdfast.cli.main import app\n"
        "for verb in [[], *map(list, zip(sys.argv[1:]))]:\n"
        "    app([*verb, '--help'], standalone_mode=False)\n"
        "app(['--version'], standalone_mode=False)\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & sys.modules.keys()\n"
    )
    verbs = ["run", "recipes", "doctor", "demo", "learn", "ask", "export", "capability"]
    done = subprocess.run([sys.executable, "-c", check, *verbs], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage") == 1 + len(verbs)


PROGRAM = "import sys; from holdfast.cli.main import app; app(sys.argv[1:])"


def test_a_reader_that_leaves_ends_it_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "recipes"],
            stdout=writing,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_broken_pipe_that_is_not_ours_is_told(recipes_raise):
    recipes_raise(BrokenPipeError("a worker is gone"))
    result = CliRunner().invoke(app, ["recipes"])
    assert result.exit_code == 1
    assert "this is our fault: BrokenPipeError: a worker is gone" in result.stderr


def test_a_terminal_without_the_symbols_shows_others(tmp_path):
    made = ["stream", "symbol-qa", "--tasks", "1", "--items", "1", "--out", str(tmp_path / "là")]
    refused = "holdfast: standard output is ascii, which has no character \\xe0; set "
    for arguments, line, status, error in (
        (made, "", 2, refused + "PYTHONIOENCODING=utf-8\n"),
        (["--help"], "--version", 0, ""),
    ):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
        )
        assert (done.returncode, done.stderr) == (status, error)
        assert line in done.stdout


def test_an_interrupt_while_it_is_loading_is_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "recipes"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 130
    assert done.stderr == "holdfast: interrupted; the same command continues\n"


def test_the_module_is_the_command():
    wrong = subprocess.run(
        [sys.executable, "-m", "holdfast", "nonsense"], capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert "Usage: holdfast " in wrong.stderr
