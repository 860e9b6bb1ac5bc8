"""Control sequences and overrides of directions are printed in sight; JSON stays exact."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.table import Table

from holdfast.cli.printing import SafeConsole, SafeStream, escaped, safe_output
from holdfast.core.errors import HoldfastError
from holdfast.streams import Item

EVIL = "a\x1b]0;gone\x07\x1b[2Jb\x9b3Jc\x7fd\re\u202efdp.\u2066x\u2069\x08"
SEEN = r"a\u001b]0;gone\u0007\u001b[2Jb\u009b3Jc\u007fd\u000de\u202efdp.\u2066x\u2069\u0008"
KEPT = (
    "tab\there\n\u0639\u0631\u0628\u064a \u05e2\u05d1\u05e8\u05d9\u05ea \U0001f469\u200d\U0001f680"
)


def test_what_is_escaped_and_what_is_not() -> None:
    assert escaped(EVIL) == SEEN == escaped(SEEN)
    assert escaped(KEPT) == KEPT
    assert json.loads(escaped(json.dumps(EVIL, ensure_ascii=False))) == EVIL


def test_all_that_is_printed_in_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    outer = sys.stdout, sys.stderr
    with safe_output():
        sys.stdout.write(f"{EVIL}\n")
        print(EVIL, file=sys.stderr)  # noqa: T201
        sys.stderr.writelines([EVIL, KEPT])
    assert (sys.stdout, sys.stderr) == outer
    out, err = capsys.readouterr()
    assert out == f"{SEEN}\n" and err == f"{SEEN}\n{SEEN}{KEPT}"


def test_a_table_draws_its_own_sequences_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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
    shown = screen.getvalue()
    assert r"a\u001b]0;gone" in shown
    assert "\x1b]0" not in shown and "\u202e" not in shown and "\x9b" not in shown
    assert "\x1b[1m" in shown or "\x1b[1;" in shown  # its own


def test_facts_in_a_table_of_the_command(holdfast, tmp_path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(json.dumps({"question": f"Who is {EVIL}?", "answer": f"{EVIL}1"}) + "\n")
    said = holdfast("stream", "inspect", path)
    assert said.status == 0, said
    assert SEEN in said.out
    assert not any(symbol in said.out for symbol in "\x1b\x07\x9b\x7f\r\u202e\u2066")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_of_ask(as_json: bool, holdfast, chat_memory, monkeypatch) -> None:
    from holdfast.memory import memory as module
    from holdfast.memory.answer import Answer

    fact = Item("Who?", EVIL)
    monkeypatch.setattr(module.Memory, "load", lambda _: None)
    monkeypatch.setattr(module.Memory, "reply", lambda *_: Answer("Who?", EVIL, "weights", fact))
    said = holdfast("ask", chat_memory, "Who?", *(["--json"] if as_json else []))
    assert said.status == 0, said
    assert not any(symbol in said.out for symbol in "\x1b\x07\x9b\x7f\r\u202e\u2066")
    if as_json:
        assert json.loads(said.out)["answer"] == EVIL
    else:
        assert said.out == f"{SEEN}\n"

    def refuse(*_: object) -> None:
        raise HoldfastError(f"{EVIL}: is no question; ask another")

    monkeypatch.setattr(module.Memory, "reply", refuse)
    said = holdfast("ask", chat_memory, "Who?")
    assert said.status == 2 and said.err == f"holdfast: {SEEN}: is no question; ask another\n"


OTHERS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1:replace"},
    "the C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
# Verbs that print what they are told, beside the others.
PRINTS = """
import json, os
from holdfast.cli.main import app
from holdfast.cli.printing import SafeConsole, json_line
from holdfast.cli.verbs import Verb
text = json.loads(os.environ["TOLD"])
@app.command(cls=Verb)
def say(how: str):
    if how == "json":
        print(json_line({"answer": text}))
    elif how == "text":
        print(text)
    else:
        SafeConsole().print(text)
@app.command(cls=Verb, help=text)
def other(): pass
app()
"""


@pytest.mark.parametrize("name", OTHERS)
def test_an_output_that_is_not_utf_8(name) -> None:
    text = "Łódź 東京 \U0001f680"

    def say(*arguments: str, told: str = text) -> subprocess.CompletedProcess[bytes]:
        mine = {"PATH", "PYTHONPATH", "HOME"}
        kept = {key: value for key, value in os.environ.items() if key in mine}
        environment = {**kept, **OTHERS[name], "TOLD": json.dumps(told)}
        command = [sys.executable, "-c", PRINTS, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, check=False)

    found = say("say", "json")
    assert found.returncode == 0, found.stderr
    assert found.stdout.isascii() and json.loads(found.stdout) == {"answer": text}
    others = [["say", "table"], ["other", "--help"]] if name == "ascii" else []
    for arguments in [["say", "text"], *others]:
        found = say(*arguments)
        assert found.returncode == 2, (arguments, found)
        assert b"?" not in found.stdout + found.stderr
        assert re.fullmatch(
            rb"holdfast: standard output is \S+, which has no character \\u0141; "
            rb"set PYTHONIOENCODING=utf-8\n",
            found.stderr,
        ), found.stderr
    if name == "ascii":
        plain = say("say", "text", told="Lodz")
        assert (plain.returncode, plain.stdout) == (0, b"Lodz\n")


def test_half_of_a_pair_is_shown() -> None:
    assert escaped("a\udcffb") == r"a\udcffb"
