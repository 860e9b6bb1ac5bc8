"""All lessons in one adapter: what it answers, what it drops and keeps, kills and damage."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.files import lock_directory
from holdfast.memory.batch import read_lesson
from holdfast.memory.consolidation import consolidate as module
from holdfast.memory.consolidation import rehearsal
from holdfast.memory.consolidation import run as run_module
from holdfast.memory.consolidation.consolidate import ConsolidationOutcome, consolidate
from holdfast.memory.consolidation.rehearsal import Rehearsal
from holdfast.memory.evaluation import measure
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.memory.record import CONSOLIDATION_LOCK, PROGRESS_OF_ALL, Gone, LearnedNeurons
from holdfast.streams.item import question_key
from tests.cli.conftest import Outcome
from tests.memory.consolidation.conftest import FACTS, SETTINGS, Done
from tests.memory.memories import MONDAY, WEDNESDAY
from tests.memory.test_killed import files_of
from tests.trajectory.instants import heard

pytestmark = pytest.mark.usefixtures("unflushed")
Gives = Callable[[list[bool]], None]


@pytest.fixture
def all_in_one(done: Done, tmp_path: Path) -> Path:
    return shutil.copytree(done.place, tmp_path / "one" / "m")


@pytest.fixture
def gives(done: Done, monkeypatch: pytest.MonkeyPatch) -> Gives:
    """Makes an adapter be learned at once that gives these facts."""
    return lambda given: monkeypatch.setattr(
        module, "learn_adapter", lambda *_: (done.state, given)
    )


def adapters(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "lessons").iterdir())


def answers(memory: Memory, facts: list[tuple[str, str]] = FACTS) -> list[tuple[str, str]]:
    replies = memory.replies([question for question, _ in facts])
    return [(reply.text, reply.source) for reply in replies]


RIGHT = [(answer, "weights") for _, answer in FACTS]


def test_one_adapter_answers_what_two_did(done: Done, two_lessons: Path) -> None:
    """By itself, from a fresh object; the untouched model's answers are the same as before."""
    place = done.place
    assert done.outcome == ConsolidationOutcome(facts=5, answered=5, lessons=2, lessons_kept=0)
    (file,) = adapters(place)
    assert file.startswith("all-00002-")
    memory, before = Memory(place), Memory(two_lessons)
    assert len(memory.answerer().adapter_names) == 1 and len(before.answerer().adapter_names) == 2
    assert answers(memory) == answers(before) == RIGHT
    assert memory.horizon == 2 and not memory.missed() and memory.facts == before.facts
    assert not (place / PROGRESS_OF_ALL).exists()
    untaught = "What is the capital of France?"
    assert memory.reply(untaught).source == "model"
    assert memory.ask(untaught) == before.ask(untaught)


def test_what_it_was_trained_on_is_no_other_wording(
    done: Done, two_lessons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation asks the library's wordings only of lessons that were not consolidated."""
    add = lambda _, facts: [[f"{fact.key}!"] for fact in facts]  # noqa: E731
    monkeypatch.setattr(measure, "related_wordings", add)
    more = {f"{question}!" for question, _ in FACTS}
    assert more <= set(measure.learned_wordings(Memory(done.place)))
    assert more.isdisjoint(measure.learned_wordings(Memory(two_lessons)))


def test_a_single_lesson_is_learned_for_whole_turns(
    chat_directory: Path, tmp_path: Path, gives: Gives
) -> None:
    """So that it can be merged; once only."""
    memory = Memory(tmp_path / "m", str(chat_directory))
    memory.learn(MONDAY)
    gives([True] * len(MONDAY))
    for is_new in (True, False):
        outcome = consolidate(memory, SETTINGS)
        assert outcome == ConsolidationOutcome(len(MONDAY), len(MONDAY), 1, 0, is_new)
        assert memory.record.lessons[0].whole_turn
    module.write_record(memory.directory, replace(memory.record, consolidated=0))  # as of a merger
    assert consolidate(memory, SETTINGS) == outcome
    assert answers(memory, MONDAY) == RIGHT[: len(MONDAY)]


def test_later_lessons_and_corrections_stand_beside_it_and_are_taken_in(all_in_one: Path) -> None:
    memory = Memory(all_in_one)
    corrected = [*WEDNESDAY, (MONDAY[0][0], "Quill")]
    assert not memory.learn(corrected).missed
    now = [*corrected, *FACTS[1:]]
    expected = [(answer, "weights") for _, answer in now]
    assert len(adapters(all_in_one)) == 2
    assert answers(Memory(all_in_one), now) == expected
    outcome = consolidate(memory, replace(SETTINGS, least=30))
    assert (outcome.facts, outcome.lessons) == (6, 3)
    assert (len(adapters(all_in_one)) == 1) == (not outcome.lessons_kept)
    assert answers(memory, now) == answers(Memory(all_in_one), now) == expected


def test_a_lesson_keeps_the_adapter_that_answers_more(
    holdfast: Callable[..., Outcome], copied: Callable[[], Path], gives: Gives,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The new adapter gives nothing of TUESDAY: MONDAY's goes, TUESDAY's stays."""
    place = copied()
    gives([True, True, True, False, True])
    before = adapters(place)
    memory = Memory(place)
    assert consolidate(memory, SETTINGS) == ConsolidationOutcome(5, 4, 2, 1)
    assert adapters(place)[0] == before[1] and len(adapters(place)) == 2
    assert memory.record.consolidated == 2 and memory.record.is_consolidated
    assert not replace(memory.record, consolidated=1).is_consolidated
    assert answers(memory) == answers(Memory(place)) == RIGHT
    _, note = read_lesson(place, memory.record.lessons[0].file)  # has the questions that it answers
    assert set(note["owners"]) == {question_key(question) for question, _ in MONDAY}
    monkeypatch.setattr(module, "learn_adapter", None)  # hours, which would be spent again
    assert consolidate(memory, SETTINGS) == ConsolidationOutcome(5, 5, 2, 1, is_new=False)
    assert "5 of 5 facts answered from the weights\n1 of 2" in holdfast("consolidate", place).out
    first, kept = memory.record.lessons
    kept = replace(kept, whole_turn=True)  # as one that an earlier consolidation learned
    module.write_record(place, replace(memory.record, lessons=(first, kept)))
    assert consolidate(Memory(place), SETTINGS).lessons_kept == 1


def test_what_a_lesson_missed_may_be_missed(copied: Callable[[], Path], gives: Gives) -> None:
    """Only what its adapter gave counts; it is then answered from the list, and said."""
    place = copied()
    gives([False, True, True, True, True])
    record = Memory(place).record
    first, *others = record.lessons
    missed = (question_key(MONDAY[0][0]),)
    module.write_record(place, replace(record, lessons=(replace(first, missed=missed), *others)))
    assert consolidate(Memory(place), SETTINGS) == ConsolidationOutcome(5, 4, 2, 0)
    assert [item.question for item in Memory(place).missed()] == [MONDAY[0][0]]


def test_an_adapter_that_no_lesson_with_facts_takes_is_not_named(
    chat_directory: Path, tmp_path: Path, gives: Gives
) -> None:
    """The first lesson's only fact is corrected, and the new adapter does not give the answer."""
    memory, (question, _) = Memory(tmp_path / "m", str(chat_directory)), MONDAY[0]
    for answer in ("the mill", "the barn"):
        memory.learn([(question, answer)])
    gives([False])
    assert consolidate(memory, SETTINGS) == ConsolidationOutcome(1, 0, 2, 2)
    assert Memory(tmp_path / "m").ask(question) == "the barn"
    assert consolidate(memory, SETTINGS) == ConsolidationOutcome(1, 1, 2, 2, is_new=False)


@pytest.mark.parametrize("all_given", [True, False])
def test_neurons_go_where_one_adapter_has_all_lessons(
    all_given: bool, copied: Callable[[], Path], gives: Gives
) -> None:
    """It is what is exported then; where a lesson keeps its own they still are."""
    place = copied()
    gives([True, True, True, all_given, True])
    neurons = LearnedNeurons("neurons.safetensors", 2, 5, ())
    module.write_record(place, replace(Memory(place).record, neurons=neurons))
    assert consolidate(Memory(place), SETTINGS).lessons_kept == (not all_given)
    assert Memory(place).record.neurons == (None if all_given else neurons)


def test_killed_anywhere_it_continues(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy at every instant of its files answers, and ends in the same bytes."""
    monkeypatch.setattr(run_module, "_SECONDS", 0.0)
    learn = module.learn_adapter
    # So few steps answer nothing; the adapter is taken all the same.
    monkeypatch.setattr(module, "learn_adapter", lambda *more: (learn(*more)[0], [True] * 5))
    short = replace(SETTINGS, least=4, visits=1)
    place = copied()
    copies: dict[tuple[object, ...], Path] = {}

    def hear(_: str) -> None:
        key = tuple(files_of(place).items())
        if key not in copies:
            copies[key] = shutil.copytree(place, tmp_path / f"at-{len(copies)}" / "m")

    memory = Memory(place)
    engine = memory.engine()
    with heard(hear):
        consolidate(memory, short)
    expected = {path.name: path.read_bytes() for path in (place / "lessons").iterdir()}
    record = (place / "memory.json").read_bytes()
    assert len(copies) >= 8
    steps: list[int] = []
    advance = Rehearsal.advance

    def counted(self: Rehearsal) -> tuple[float, float]:
        steps[-1] += 1
        return advance(self)

    monkeypatch.setattr(Rehearsal, "advance", counted)
    for copy in copies.values():
        steps.append(0)
        again = Memory(copy)
        again._engine = engine
        assert [text for text, _ in answers(again)] == [answer for _, answer in FACTS]
        consolidate(again, short)
        assert (copy / "memory.json").read_bytes() == record
        files = {path.name: path.read_bytes() for path in (copy / "lessons").iterdir()}
        assert expected.items() <= files.items()
    assert set(steps) == {0, 1, 2, 3, 4} and steps == sorted(steps, reverse=True), steps


def test_stopped_within_a_step_it_loses_that_step(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and SIGTERM come anywhere, here between two changes of the third step."""
    short = replace(SETTINGS, least=4, visits=1)
    straight, stopped = copied(), copied()
    consolidate(Memory(straight), short)
    advance, steps = Rehearsal.advance, []

    def interrupted(self: Rehearsal) -> tuple[float, float]:
        steps.append(self.step)
        if len(steps) != 3:
            return advance(self)
        with torch.no_grad():
            next(iter(self.parameters.values())).mul_(2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Rehearsal, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consolidate(Memory(stopped), short)
    assert Memory(stopped).record.consolidated == 0
    consolidate(Memory(stopped), short)
    assert steps == [0, 1, 2, 2, 3]
    for name in ("memory.json", *(f"lessons/{file}" for file in adapters(straight))):
        assert (stopped / name).read_bytes() == (straight / name).read_bytes()


def test_progress_of_another_run_or_damaged_begins_anew(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_SECONDS", 0.0)
    short = replace(SETTINGS, least=3, visits=1)
    place = copied()
    contents = []
    write = run_module.write_tensors

    def write_and_keep(path: Path, *arguments: object) -> None:
        write(path, *arguments)  # type: ignore[arg-type]
        contents.append(path.read_bytes())

    monkeypatch.setattr(run_module, "write_tensors", write_and_keep)
    consolidate(Memory(place), short)
    assert len(contents) == 3
    for content, settings in (
        (contents[1][:-9], short),
        (contents[1], replace(short, weight=0.03)),
    ):
        other = copied()
        (other / PROGRESS_OF_ALL).write_bytes(content)
        contents.clear()
        consolidate(Memory(other), settings)
        assert len(contents) == 3


def test_one_at_a_time_beside_lessons(
    copied: Callable[[], Path], done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one is refused; a lesson that is learned meanwhile stays as it is, and removes no
    file that is being written. What it finished forgetting does not come back."""
    place = copied()
    module.write_record(
        place, replace(Memory(place).record, forgotten=("k",), former=(("k", "v"),))
    )
    with lock_directory(place, lock=CONSOLIDATION_LOCK), pytest.raises(InUseError):
        consolidate(Memory(place), SETTINGS)

    def meanwhile(*_: object) -> object:
        assert not Memory(place).learn(WEDNESDAY).missed
        return done.state, [True] * 5

    monkeypatch.setattr(module, "learn_adapter", meanwhile)
    memory = Memory(place)
    writing = place / "lessons" / ".all.safetensors.7.part"  # as if it were being written
    progress = place / f".{PROGRESS_OF_ALL}.7.part"
    for path in (writing, progress):
        path.mkdir()
        (path / ".tmpXyZ").touch()  # safetensors writes under a name of its own first
    mine = [place / ".notes", place / "lessons" / ".notes"]
    for path in mine:
        path.touch()
    assert consolidate(memory, SETTINGS) == ConsolidationOutcome(5, 5, 2, 0)
    assert len(adapters(place)) == 2 + 2 and memory.record.gone == Gone()
    expected = [*RIGHT, (WEDNESDAY[0][1], "weights")]
    assert answers(memory, [*FACTS, *WEDNESDAY]) == expected
    assert writing.exists() and not progress.exists()
    memory.learn([("Who rows?", "Una")])
    assert not writing.exists()  # once nobody consolidates
    assert all(path.exists() for path in mine)


def test_an_empty_memory_and_the_command(
    holdfast: Callable[..., Outcome], all_in_one: Path, copied: Callable[[], Path], gives: Gives,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The command says how many facts are answered; what it cannot do is one line.

    Again it does nothing.
    """
    monkeypatch.setattr(module, "learn_adapter", None)
    with pytest.raises(HoldfastError, match="no such memory"):
        consolidate(Memory(tmp_path / "none"), SETTINGS)
    result = holdfast("consolidate", tmp_path / "none")
    assert result.status == 2 and "no such memory" in result.err
    assert result.err.count("\n") == 1
    content = (all_in_one / "memory.json").read_bytes()
    result = holdfast("consolidate", all_in_one)
    assert (result.status, result.err) == (0, "")
    assert result.out.splitlines() == [
        "nothing new since it was done before",
        "5 of 5 facts answered from one set of weights",
        str(all_in_one),
    ]
    assert (all_in_one / "memory.json").read_bytes() == content
    monkeypatch.setattr(rehearsal, "ConsolidationSettings", partial(replace, SETTINGS))
    gives([True] * 5)
    place = copied()
    result = holdfast("consolidate", place, "--json")
    assert result.status == 0
    outcome = '{"facts": 5, "answered": 5, "lessons": 2, "lessons_kept": 0, "is_new": true}\n'
    assert result.out == outcome
    assert len(adapters(place)) == 1


@pytest.mark.parametrize("moment", ["within", "last"])
def test_a_memory_that_is_moved_meanwhile_is_not_made_anew(
    moment: str, two_lessons: Path, tmp_path: Path
) -> None:
    place, away = shutil.copytree(two_lessons, tmp_path / "m"), tmp_path / "away"

    def report(label: str, done: int, total: int) -> None:
        if label == "consolidating" and place.exists() and (moment == "within" or done == total):
            place.rename(away)

    with pytest.raises(HoldfastError, match="was moved or removed"):
        consolidate(Memory(place), replace(SETTINGS, least=3, visits=1), report)
    assert not place.exists() and (away / "memory.json").is_file()


def test_what_one_adapter_knew_is_forgotten_by_all_its_lessons(all_in_one: Path) -> None:
    """They have adapters of their own again; what waits to be learned at once is begun anew."""
    (all_in_one / PROGRESS_OF_ALL).write_bytes(b"half a consolidation")
    memory = Memory(all_in_one)
    engine, tokens = memory.engine(), memory.engine().form.answer(FACTS[0][1])
    readings, _ = engine.read([FACTS[0][0]])
    with torch.no_grad(), engine.using(memory.answerer().adapter(0), readings) as read:
        loss = engine.reader.answer_logits(read, [tokens]).losses()[0] * len(tokens)
    outcome = forget(memory, [FACTS[0][0]])
    assert outcome.lessons == ("1", "2") and outcome.others == outcome.answered == 4
    before, after = outcome.facts[0].before, outcome.facts[0].after
    assert before == pytest.approx(math.exp(-float(loss)), rel=1e-4)
    assert after is not None and before > 0.5 > 1e-6 > after
    assert answers(memory, FACTS[1:]) == RIGHT[1:]
    assert memory.reply(FACTS[0][0]).source == "model"
    assert len(adapters(all_in_one)) == 2 and not memory.record.is_consolidated
    assert not (all_in_one / PROGRESS_OF_ALL).exists()
