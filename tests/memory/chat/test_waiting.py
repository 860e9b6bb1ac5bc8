"""Facts that wait for their lesson are answered from the list; all else as without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.chat.answering import Answerer
from holdfast.memory.chat.consolidation.consolidate import consolidate
from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.evaluation.measure import evaluate
from holdfast.memory.chat.evaluation.probes import probes_of
from holdfast.memory.chat.evaluation.result import MemoryEvaluation
from holdfast.memory.chat.limits import LONGEST_QUESTION
from holdfast.memory.chat.memory import ChatMemory
from holdfast.memory.chat.states import lesson_states
from tests.cli.conftest import Outcome
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY

CORRECTED = (MONDAY[0][0], "Orsa")
UNTAUGHT = ["Tell me a joke about zebras", "2 + 2"]


def told(memory: ChatMemory, question: str) -> tuple[str, str, bool]:
    answer = memory.reply(question)
    return answer.text, answer.source, answer.waiting


def test_what_waits_is_answered_from_the_list(copied: Callable[[], Path]) -> None:
    """With the new answer of a correction, at once; and from the weights once it is learned."""
    memory = ChatMemory(copied())
    before = memory.replies([*UNTAUGHT, MONDAY[1][0], TUESDAY[0][0]])
    assert memory.reply(WEDNESDAY[0][0]).source == "model"
    wording = {"question": CORRECTED[0], "answer": "Orsa", "paraphrases": ["Nets: mended by?"]}
    memory.write_facts([*WEDNESDAY, wording])
    for one in (memory, ChatMemory(memory.directory)):
        for question in (WEDNESDAY[0][0], WEDNESDAY[0][0].lower()):
            assert told(one, question) == (WEDNESDAY[0][1], "list", True)
        for question in (CORRECTED[0], "nets mended by"):
            assert told(one, question) == ("Orsa", "list", True)
        assert one.replies([*UNTAUGHT, MONDAY[1][0], TUESDAY[0][0]]) == before
        assert one.horizon == 2 and len(one.learned) == 5
    memory.learn()
    for question in (WEDNESDAY[0][0], CORRECTED[0]):
        assert memory.reply(question).source == "weights" and not memory.reply(question).waiting
    assert memory.ask(CORRECTED[0]) == "Orsa"


def test_what_is_learned_once_more_stays_with_its_lesson(copied: Callable[[], Path]) -> None:
    """A new wording of a learned fact is known at once; the weights answer as before."""
    memory = ChatMemory(copied())
    question, answer = MONDAY[2]
    memory.write_facts([{"question": question, "answer": answer, "paraphrases": ["Its name"]}])
    assert [state.state for state in lesson_states(memory.directory)][2:] == ["waiting"]
    assert told(memory, question) == (answer, "weights", False)
    found = memory.reply("its name")
    assert (found.text, found.waiting) == (answer, False) and found.source != "model"


def test_without_a_lesson_the_list_answers(
    holdfast: Callable[..., Outcome], chat_directory: Path, tmp_path: Path
) -> None:
    place = tmp_path / "m"
    ChatMemory(place, str(chat_directory)).write_facts(MONDAY)
    said = holdfast("ask", place, MONDAY[0][0])
    assert (said.status, said.out) == (0, "Fenwick\n")
    assert "from the list of facts; its lesson is not learned yet" in said.err
    values = json.loads(holdfast("ask", place, MONDAY[0][0], "--json").out)
    assert (values["source"], values["taught"], values["waiting"]) == ("list", True, True)
    assert holdfast("ask", place, "--taught-only", UNTAUGHT[0]).status == 3
    assert ChatMemory(place).reply(UNTAUGHT[0]).source == "model"
    said = holdfast("ask", tmp_path / "none", "Who?")  # a wrong path, most likely
    assert said.status == 2 and "no such memory" in said.err
    for work in (consolidate, lambda memory: evaluate(memory, [], [])):
        with pytest.raises(HoldfastError, match="has learned nothing yet"):
            work(ChatMemory(place))


def test_a_question_reads_only_what_may_be_meant_and_once(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = copied()
    memory = ChatMemory(place)
    names = ["Velm", "Tolm", "Arren", "Ilm"]
    memory.write_facts([(f"Who keeps the tower of {name}?", "Una") for name in names])
    read: list[str] = []
    real = Engine.read

    def counted(self: Engine, questions: list[str]) -> object:
        read.extend(questions)
        return real(self, questions)

    monkeypatch.setattr(Engine, "read", counted)

    def reads(question: str) -> list[str]:
        read.clear()
        memory.ask(question)
        assert read[0] == question
        return read[1:]

    assert reads("who keeps the tower of velm") == []  # on file in these words
    assert reads("Velm: its tower, who keeps it?") == ["Who keeps the tower of Velm?"]
    assert reads("Velm: its tower, who keeps it?") == []
    memory.write_facts(WEDNESDAY)
    assert reads("Velm: its tower, who keeps it?") == []
    assert reads("What is the capital of France?") == []


def test_a_fact_that_cannot_be_learned_stops_no_answer(copied: Callable[[], Path]) -> None:
    """An edited list may hold one that is too long; its lesson says so."""
    place = copied()
    memory = ChatMemory(place)
    memory.write_facts(WEDNESDAY)
    long = "Ostra " * LONGEST_QUESTION
    path = place / "facts.jsonl"
    line = json.dumps({"task": "4", "question": long, "answer": "x"})
    path.write_text(f"{path.read_text()}{line}\n")
    assert memory.refresh() and len(memory.tasks) == 4
    assert memory.ask(WEDNESDAY[0][0]) == WEDNESDAY[0][1]
    assert memory.reply("Who mends Ostra's nets?").source is not None


def test_evaluate_measures_what_is_learned(copied: Callable[[], Path]) -> None:
    def measured(memory: ChatMemory) -> MemoryEvaluation:
        return evaluate(memory, probes_of(memory.learned), [], limit=2)

    place = copied()
    before, identity = measured(ChatMemory(place)), ChatMemory(place).fingerprint
    memory = ChatMemory(place)
    memory.write_facts([*WEDNESDAY, CORRECTED])
    assert memory.reply(CORRECTED[0]).waiting and memory.fingerprint == identity
    own: Answerer = memory.learned_answerer()
    assert {fact.answer for fact in own.facts} == {answer for _, answer in [*MONDAY, *TUESDAY]}
    assert own.replies([CORRECTED[0]])[0].source == "weights"
    after = measured(memory)
    assert (after.about, after.identity) == (before.about, before.identity)
    timed = {name for name in before.rows if "seconds" in name or "bytes" in name}
    assert {**after.rows, **before.rows}.keys() == before.rows.keys() > timed
    for name in before.rows.keys() - timed:
        assert after.rows[name] == before.rows[name], name
