"""Control sequences and overrides of directions are printed in sight; JSON stays exact."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer
from rich.table import Table

from holdfast.cli.main import options
from holdfast.cli.printing import SafeConsole, SafeStream, escaped, json_line, safe_output
from holdfast.cli.verbs import Verb, Verbs
from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Answer
from holdfast.memory.memory import Memory
from holdfast.streams import Item
from tests.cli.conftest import refused

EVIL = "a\x1b]0;gone\x07\x1b[2Jb\x9b3Jc\x7fd\re\u202efdp.\u2066x\u2069\x08\udcff"
SEEN = r"a\u001b]0;gone\u0007\u001b[2Jb\u009b3Jc\u007fd\u000de\u202efdp.\u2066x\u2069\u0008\udcff"
KEPT = (
    "tab\there\n\u0639\u0631\u0628\u064a \u05e2\u05d1\u05e8\u05d9\u05ea \U0001f469\u200d\U0001f680"
)


def test_what_is_escaped_and_what_is_not():
    assert escaped(EVIL) == SEEN == escaped(SEEN)
    assert escaped(KEPT) == KEPT
    assert json.loads(escaped(json.dumps(EVIL, ensure_ascii=False))) == EVIL


def test_all_that_is_printed_in_a_block(capsys):
    outer = sys.stdout, sys.stderr
    with safe_output():
        sys.stdout.write(f"\r{EVIL}\n")
        sys.stderr.writelines([EVIL, KEPT])
    assert (sys.stdout, sys.stderr) == outer
    assert capsys.readouterr() == (f"\\u000d{SEEN}\n", f"{SEEN}{KEPT}")


def test_a_table_draws_its_own_sequences_alone(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", SafeStream(screen))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table(title="[bold]facts")
    table.add_column("answer", no_wrap=True)
    table.add_row(EVIL)
    SafeConsole().print(table)
    output = screen.getvalue()
    assert r"a\u001b]0;gone" in output
    assert not any(symbol in output for symbol in ("\x1b]0", "\u202e", "\x9b"))
    assert "\x1b[1m" in output or "\x1b[1;" in output  # its own


@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_of_ask(as_json, holdfast, chat_memory, monkeypatch):
    evil = EVIL[:-1]  # a fact has no half of a pair
    fact = Item("Who?", evil)
    monkeypatch.setattr(Memory, "load", lambda _: None)
    monkeypatch.setattr(Memory, "reply", lambda *_: Answer("Who?", evil, "weights", fact))
    outcome = holdfast("ask", chat_memory, "Who?", *(["--json"] if as_json else []))
    assert outcome.status == 0, outcome
    if as_json:
        assert not any(symbol in outcome.out for symbol in evil if escaped(symbol) != symbol)
        assert json.loads(outcome.out)["answer"] == evil
    else:
        assert outcome.out == f"{escaped(evil)}\n"

    def refuse(*_: object) -> None:
        raise HoldfastError(f"{EVIL}: is no question; ask another")

    monkeypatch.setattr(Memory, "reply", refuse)
    refused(
        holdfast("ask", chat_memory, "Who?"), f"holdfast: {SEEN}: is no question; ask another\n"
    )


@pytest.mark.parametrize(
    ("encoding", "errors"),
    [("ascii", "strict"), ("ascii", "surrogateescape"), ("latin-1", "replace")],
)
def test_an_output_that_is_not_utf_8(encoding, errors, monkeypatch, capsys):
    text = "Łódź 東京 \U0001f680"

    def run_app(*arguments: str) -> tuple[int, bytes, str]:
        app = typer.Typer(cls=Verbs, pretty_exceptions_enable=False)
        app.callback()(options)

        @app.command(cls=Verb, help=text)
        def say(how: str) -> None:
            if how == "table":
                SafeConsole().print(text)
            else:
                print(json_line({"answer": text}) if how == "json" else how)  # noqa: T201

        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            with pytest.raises(SystemExit) as end:
                app(["say", *arguments])
        written = out.buffer.getvalue()
        return end.value.code or 0, written, capsys.readouterr().err

    status, out, _ = run_app("json")
    assert (status, out.isascii(), json.loads(out)) == (0, True, {"answer": text})
    assert run_app("Lodz") == (0, b"Lodz\n", "")
    line = f"holdfast: standard output is {encoding}, which has no character \\u0141; "
    for arguments in ([text], ["table"], ["--help"]):
        status, out, err = run_app(*arguments)
        assert (status, err) == (2, line + "set PYTHONIOENCODING=utf-8\n")
        assert b"?" not in out
