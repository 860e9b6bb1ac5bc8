"""What was corrected is gone as if the newest answer alone had been taught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.forgetting import Forgetting, forget, what_goes
from holdfast.memory.memory import Memory
from holdfast.memory.record import PROGRESS_OF_ALL, write_record
from tests.cli.conftest import refused
from tests.memory.memories import MONDAY, TUESDAY, Copied, Holdfast
from tests.memory.test_forgetting import never_taught
from tests.memory.test_killed import copied_at_instants, files_of, quick_engine

__all__ = ["never_taught"]

pytestmark = pytest.mark.usefixtures("unflushed")
GONE, ANSWER = MONDAY[0]


def test_former_answers_go_and_the_newest_stays(
    copied: Copied, never_taught: dict[str, bytes], tmp_path: Path
) -> None:
    """To the bit as if the newest alone had been taught; what a kill left goes with them."""
    place, other = copied(), tmp_path / "never" / "m"
    for name, content in never_taught.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(content)
    Memory(other).learn([(GONE, "Quill")])
    memory = Memory(place)
    memory.learn([(GONE, "Quill")])
    forgetting = forget(Memory(place), corrected=True)
    assert files_of(place) == files_of(other)
    (fact,) = forgetting.facts
    assert (fact.question, fact.answer) == (GONE, ANSWER)
    assert fact.before is not None and fact.after is not None and fact.untouched is not None
    assert fact.before > 0.01 > 1e-6 > max(fact.after, fact.untouched)
    assert forgetting == Forgetting((fact,), ("1",), 2, 2)
    memory.refresh()
    assert (memory.reply(GONE).text, memory.reply(GONE).source) == ("Quill", "weights")
    (place / "lessons" / "00001-left.safetensors").write_text("left")
    progress = place / PROGRESS_OF_ALL
    progress.write_text("hours")
    assert forget(memory, corrected=True) == Forgetting((), (), 0)
    assert progress.exists() and not (place / "lessons" / "00001-left.safetensors").exists()


def test_also_where_the_newest_waits_and_is_told_of_in_other_words(
    copied: Copied, place: Path, memory: Memory, holdfast: Holdfast
) -> None:
    """An answer that was taken back is the newest one; what waits needs no lesson anew."""
    memory.write_facts([{"question": "Who?", "answer": "Ann", "paraphrases": ["W?"]}])
    memory.write_facts([(GONE, "Quill"), ("W?", "Ben")])
    memory.write_facts([(GONE, ANSWER)])
    before = files_of(place)
    dry = holdfast("forget", place, "--corrected", "--dry-run")
    facts = ["Who? (Ann)", f"{GONE} (Quill)"]
    assert dry.out.splitlines() == [f"would forget: {fact}" for fact in facts]
    assert files_of(place) == before
    outcome = holdfast("forget", place, "--corrected")
    assert outcome.out.splitlines() == [f"forgot: {fact}" for fact in facts]
    items = [
        (item.question, item.answer) for task in Memory(place).tasks[2:] for item in task.items
    ]
    assert items == [("W?", "Ben"), ("Who?", "Ben"), (GONE, ANSWER)]
    assert Memory(place).record == Memory(copied()).record
    outcome = holdfast("forget", place, "--corrected")
    assert (outcome.status, outcome.out) == (0, "no former answer is on its list of facts\n")
    refused(holdfast("forget", place, GONE, "--corrected"), "leave out QUESTION, --task and")
    with pytest.raises(HoldfastError, match="leave out the questions"):
        forget(Memory(place), [GONE], corrected=True)


def test_killed_while_former_answers_go(place: Path, tmp_path: Path) -> None:
    """The newest answer stays at every instant, and the same call ends it."""
    memory = Memory(place)
    engine = quick_engine(memory)
    memory.learn([(GONE, "Quill")])
    (place / PROGRESS_OF_ALL).write_text("hours")  # of a consolidation, which has seen the answer
    with copied_at_instants(place, tmp_path / "instants") as copies:
        forget(memory, corrected=True)
    end, states = files_of(place), set()
    assert len(copies) > 5 and not any(ANSWER.encode() in content for content in end.values())
    for copy in copies:
        memory = Memory(copy)
        memory._engine = engine
        states.add((len(memory.tasks[0].items), bool(memory.record.former)))
        assert [fact.answer for fact in memory.facts if fact.question == GONE] == ["Quill"]
        forget(memory, corrected=True)
        assert files_of(copy) == end, copy
    assert states == {(3, False), (2, True), (2, False)}


def test_an_answer_that_is_taught_again_meanwhile_is_not_lost(
    place: Path,
    memory: Memory,
) -> None:
    memory.learn([(GONE, "Quill")])

    def teach(*_: object) -> None:
        Memory(place).write_facts([(GONE, ANSWER)])

    with pytest.raises(HoldfastError, match="was taught again meanwhile, so nothing is forgotten"):
        forget(memory, (), teach, corrected=True)
    assert [fact.answer for fact in Memory(place).facts if fact.question == GONE] == [ANSWER]


def test_an_adapter_of_all_facts_that_never_saw_a_former_answer_stays(
    place: Path,
    memory: Memory,
) -> None:
    """It was taught the newest answers alone; one that was corrected later it had."""
    quick_engine(memory)
    memory.learn([(question, "nobody") for question, _ in TUESDAY])
    file = memory.record.lessons[2].file
    at_once = [replace(lesson, file=file, whole_turn=True) for lesson in memory.record.lessons]
    write_record(place, replace(memory.record, lessons=tuple(at_once), consolidated=3))
    memory.refresh()
    assert what_goes(memory, corrected=True).lessons == ()
    forget(memory, corrected=True)
    assert (memory.horizon, memory.record.consolidated) == (2, 2)  # one had nothing else
    assert {lesson.file for lesson in memory.record.lessons} == {file}
    assert [reply.text for reply in memory.replies([q for q, _ in TUESDAY])] == ["nobody"] * 2
    memory.learn([(GONE, "Quill")])
    assert what_goes(memory, corrected=True).lessons == ("1", "3")
    forget(memory, corrected=True)
    assert memory.record.consolidated == 0 and len(memory.record.files) == 3
