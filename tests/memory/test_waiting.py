"""Facts that wait for their lesson are answered from the list; all else as without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.consolidation.consolidate import consolidate
from holdfast.memory.evaluation.measure import evaluate
from holdfast.memory.gate import WaitingQuestions
from holdfast.memory.memory import Memory
from holdfast.memory.states import lesson_states
from holdfast.model.reading import PromptReader
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, write_batches
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, Holdfast

CORRECTED = (MONDAY[0][0], "Orsa")
UNTAUGHT = ["Tell me a joke about zebras", "2 + 2"]


def replied(memory: Memory, question: str) -> tuple[str, str, bool]:
    answer = memory.reply(question)
    return answer.text, answer.source, answer.waiting


def test_what_waits_is_answered_from_the_list(memory: Memory) -> None:
    """With the new answer of a correction, at once; and from the weights once it is learned."""
    others = [*UNTAUGHT, MONDAY[1][0], TUESDAY[0][0]]
    before = memory.answerer().replies(others, longest=32)
    assert memory.reply(WEDNESDAY[0][0]).source == "model"
    wording = {"question": CORRECTED[0], "answer": "Orsa", "paraphrases": ["Nets: mended by?"]}
    memory.write_facts([*WEDNESDAY, wording])
    for reader in (memory, Memory(memory.directory)):
        for question in (WEDNESDAY[0][0], WEDNESDAY[0][0].lower()):
            assert replied(reader, question) == (WEDNESDAY[0][1], "list", True)
        for question in (CORRECTED[0], "nets mended by"):
            assert replied(reader, question) == ("Orsa", "list", True)
        assert reader.answerer().replies(others, longest=32) == before
        assert reader.horizon == 2 and len(reader.learned) == 5
    memory.learn()
    for question in (WEDNESDAY[0][0], CORRECTED[0]):
        assert memory.reply(question).source == "weights" and not memory.reply(question).waiting
    assert memory.ask(CORRECTED[0]) == "Orsa"


def test_a_waiting_question_that_is_too_long_disturbs_no_other(memory: Memory) -> None:
    """One that was put on file for another model; its lesson will fail, and say why."""
    facts = ((f"Who keeps the tower of Velm{' and more' * 300}?", "Una"), *WEDNESDAY)
    task = Task("3", tuple(Item(*fact) for fact in facts))
    write_batches(memory.directory / FACTS_FILE, [*memory.tasks, task])
    memory.refresh()
    assert memory.reply("Who keeps the tower of Velm?").source == "model"
    assert replied(memory, WEDNESDAY[0][0]) == (WEDNESDAY[0][1], "list", True)


def test_what_is_learned_once_more_stays_with_its_lesson(memory: Memory) -> None:
    """A new wording of a learned fact is known at once; the weights answer as before."""
    question, answer = MONDAY[2]
    memory.write_facts([{"question": question, "answer": answer, "paraphrases": ["Its name"]}])
    assert [state.state for state in lesson_states(memory.directory)][2:] == ["waiting"]
    assert replied(memory, question) == (answer, "weights", False)
    reply = memory.reply("its name")
    assert (reply.text, reply.waiting) == (answer, False) and reply.source != "model"


def test_without_a_lesson_the_list_answers(
    holdfast: Holdfast, chat_directory: Path, tmp_path: Path
) -> None:
    place = tmp_path / "m"
    Memory(place, str(chat_directory)).write_facts(MONDAY)
    outcome = holdfast("ask", place, MONDAY[0][0])
    assert (outcome.status, outcome.out) == (0, "Fenwick\n")
    assert "from the list of facts; its lesson is not learned yet" in outcome.err
    values = json.loads(holdfast("ask", place, MONDAY[0][0], "--json").out)
    assert (values["source"], values["taught"], values["waiting"]) == ("list", True, True)
    assert holdfast("ask", place, "--taught-only", UNTAUGHT[0]).status == 3
    assert Memory(place).reply(UNTAUGHT[0]).source == "model"
    outcome = holdfast("ask", tmp_path / "none", "Who?")  # a wrong path, most likely
    assert outcome.status == 2 and "no such memory" in outcome.err
    for work in (consolidate, lambda memory: evaluate(memory, [], [])):
        with pytest.raises(HoldfastError, match="has learned nothing yet"):
            work(Memory(place))


def test_a_question_reads_only_what_may_be_meant_and_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Velm", "Tolm", "Arren", "Ilm"]
    memory.write_facts([(f"Who keeps the tower of {name}?", "Una") for name in names])
    read: list[str] = []
    real = PromptReader.states

    def counted(self: PromptReader, prompts: list[list[int]], *more: Any, **named: Any) -> object:
        read.extend(self.form.text(prompt) for prompt in prompts)
        return real(self, prompts, *more, **named)

    monkeypatch.setattr(PromptReader, "states", counted)

    def reads(question: str) -> int:
        read.clear()
        memory.ask(question)
        return len(read)

    assert reads("What is the capital of France?") == 0
    assert reads("Velm: its tower, who keeps it?") == len(names)  # they share a word
    assert reads("Velm: its tower, who keeps it?") == 0
    memory.write_facts(WEDNESDAY)
    assert reads("Velm: its tower, who keeps it?") == 0


def test_waiting_questions_are_given_once_to_whom_asks_of_the_same() -> None:
    """A typing error finds them too; a question without a name finds those without one."""
    texts = ["Who mends the nets of Ostrava?", "Where is the key of Pell?", "What is it?"]
    waiting = WaitingQuestions(enumerate(texts))
    assert waiting.about(["When was Lum born?"]) == []
    assert waiting.about(["the nets of ostrvaa", "ostrava"]) == [(0, texts[0])]
    assert waiting.about(["Ostrava"]) == []
    assert waiting.about(["It is what?"]) == [(2, texts[2])]
    many = WaitingQuestions((number, f"Where is part {number} of Ostrava?") for number in range(99))
    assert len(many.about(["Where is Ostrava?"])) == 32
