"""`holdfast ask`: answers, verdicts, JSON, and a conversation on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from holdfast import Memory
from holdfast.cli.conversation import respond
from holdfast.core.errors import HoldfastError
from tests.memory.memories import MONDAY, rehearsing_memory
from tests.trajectory.outcome import contents_of

PROGRAM = "from holdfast.cli.main import app; app()"
UNTAUGHT = "Who wrote Hamlet?"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return rehearsing_memory(tmp_path_factory.mktemp("asked") / "m")


def test_an_answer_or_not_taught(holdfast, place):
    before = contents_of(place)
    question, answer = MONDAY[0]
    assert holdfast("ask", place, question) == (0, f"{answer}\n", "")
    assert holdfast("ask", place, question.lower().rstrip("?")) == (0, f"{answer}\n", "")
    refused = holdfast("ask", place, UNTAUGHT)
    assert (refused.status, refused.out) == (3, "")
    sure = Memory(place).reply(UNTAUGHT).probability
    assert f"({'less than 1%' if sure < 0.01 else f'{sure:.0%}'} sure)" in refused.err
    assert refused.err.count("\n") == 1
    like = holdfast("ask", place, "Who mends the roofs of Ostra?")
    assert like.status == 3
    assert f'taught and like it: "{question}"' in like.err
    assert contents_of(place) == before


def test_json_tells_all(holdfast, place):
    question, answer = MONDAY[0]
    told = json.loads(holdfast("ask", place, "--json", question.lower()).out)
    assert told["question"] == question.lower()
    assert (told["asked"], told["answer"], told["would_say"]) == (question, answer, answer)
    assert told["taught"] is True and told["on_file"] is True and told["nearest"] == []
    assert 0 < told["probability"] <= 1 and told["seconds"] >= 0
    refused = holdfast("ask", place, UNTAUGHT, "--json")
    told = json.loads(refused.out)
    assert (refused.status, refused.err) == (3, "")
    assert told["taught"] is False and told["answer"] is None and told["would_say"] is not None


def test_lines_end_with_status_0(holdfast, place, monkeypatch):
    lines = f"{MONDAY[0][0]}\n{UNTAUGHT}\n{MONDAY[1][0]}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    outcome = holdfast("ask", place)
    assert outcome.status == 0
    assert outcome.out.split("\n") == [MONDAY[0][1], "", MONDAY[1][1], ""]
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    told = [json.loads(line) for line in holdfast("ask", place, "--json").out.splitlines()]
    assert [one["taught"] for one in told] == [True, False, True]


def test_what_is_half_forgotten_is_said_to_be(holdfast, place, monkeypatch):
    from holdfast.memory import knowledge

    certain = knowledge.Knowledge(threshold=0.0, facts=5, samples=512)
    monkeypatch.setattr(knowledge, "measure", lambda *_: certain)
    monkeypatch.setattr(Memory, "knowledge", lambda self: certain)
    outcome = holdfast("ask", place, MONDAY[0][0])
    assert (outcome.status, outcome.out) == (3, "")
    assert "it was taught that, but has half forgotten it" in outcome.err
    assert f"holdfast learn {place} --again teaches it again" in outcome.err


def test_what_a_conversation_says(tmp_path):
    memory = Memory(rehearsing_memory(tmp_path / "m"))
    assert respond(memory, "  ") == ""
    assert respond(memory, MONDAY[0][0]) == MONDAY[0][1]
    assert respond(memory, UNTAUGHT).startswith("it was not taught that; it would say")
    assert "/teach QUESTION? ANSWER" in respond(memory, "/help")
    assert respond(memory, "/forgotten") == "nothing; all 5 facts are recalled"
    taught = respond(memory, "/teach Who sweeps the pier? Tamsin Roe")
    assert "of 6 facts recalled" in taught
    assert memory.facts[-1].question == "Who sweeps the pier?"
    assert memory.facts[-1].answer == "Tamsin Roe"
    respond(memory, "/teach the code of the gate = 4711")
    assert (memory.facts[-1].question, memory.facts[-1].answer) == ("the code of the gate", "4711")
    for wrong, words in {
        "/teach": "/teach takes a question and its answer",
        "/teach Who is it?": "/teach takes a question and its answer",
        "/teach = Ann": "/teach takes a question and its answer",
        "/forget": "/forget is no command; /help lists them",
        "why " * 400: "ask a shorter one",
    }.items():
        with pytest.raises(HoldfastError, match=words):
            respond(memory, wrong)


@pytest.mark.parametrize("end", ["interrupt", "end of input"])
def test_a_conversation_on_a_terminal(end, place):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "ask", str(place)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(theirs)
    _until(ours, "/help explains")
    os.write(ours, b"/forgottenx\x7f\r")  # a letter too many, and backspace
    _until(ours, "all 5 facts are recalled")
    os.write(ours, f"{MONDAY[0][0]}\r".encode())
    _until(ours, MONDAY[0][1])
    os.write(ours, b"\x1b[A\r")  # up: the line before
    _until(ours, MONDAY[0][1])
    time.sleep(0.3)
    os.write(ours, b"\x03" if end == "interrupt" else b"\x04")
    _, err = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, err) == (0, b"")


def _until(terminal, words):
    seen, deadline = "", time.monotonic() + 60
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {words!r} in {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")


def test_a_long_question_is_read_a_handful_of_times(place, monkeypatch):
    from holdfast.memory import answering

    read = []

    def counted(backbone, sequences, *rest):
        read.extend(map(len, sequences))
        return likelihoods(backbone, sequences, *rest)

    likelihoods = answering.token_log_likelihoods
    monkeypatch.setattr(answering, "token_log_likelihoods", counted)
    memory = Memory(place)
    for words, most in ((8, 25), (60, 20), (150, 12)):
        read.clear()
        reply = memory.reply("who sells " + "many boats of ostra " * (words // 4))
        assert len(reply.question.split()) == words // 4 * 4 + 2
        assert len(read) <= most
