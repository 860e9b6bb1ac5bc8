"""What is forgotten is gone as if never taught; killed anywhere, it is all or nothing."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tofu
from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.files import lock_directory, write_json
from holdfast.memory import forgetting
from holdfast.memory.documents import PROPOSALS
from holdfast.memory.forgetting import Forgetting, forget, what_goes
from holdfast.memory.memory import Memory
from holdfast.memory.record import CONSOLIDATION_LOCK, LearnedNeurons, write_record
from holdfast.memory.states import cancel_lessons
from holdfast.streams import Item, Stream, Task
from tests.cli.conftest import refused
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, Copied, Holdfast
from tests.memory.test_killed import copied_at_instants, files_of, quick_engine

pytestmark = pytest.mark.usefixtures("unflushed")
GONE, ANSWER = MONDAY[0]


@pytest.fixture(scope="module")
def never_taught(
    chat_directory: Path,
    chat_cache: Path,
    two_lessons: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, bytes]:
    """The files of a memory that was taught the two lessons without the first fact."""
    place = tmp_path_factory.mktemp("never") / "m"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        memory = Memory(place, str(chat_directory))
        for facts in (MONDAY[1:], TUESDAY):
            memory.learn(facts)
    return files_of(place)


def test_it_is_as_if_it_had_never_been_taught(
    place: Path, memory: Memory, never_taught: dict[str, bytes]
) -> None:
    """To the bit, in every file; the probabilities are of the weights before and after."""
    forgetting = forget(memory, [GONE.upper()])
    assert files_of(place) == never_taught
    assert not any(ANSWER.encode() in content for content in files_of(place).values())
    (fact,) = forgetting.facts
    assert (fact.question, fact.answer) == (GONE, ANSWER)
    assert fact.before is not None and fact.after is not None and fact.untouched is not None
    assert fact.before > 0.01 > 1e-9 > max(fact.after, fact.untouched)
    assert forgetting == Forgetting((fact,), ("1",), 2, 2)
    reply = memory.reply(GONE)
    assert reply.source == "model" and reply.text == Memory(place).reply(GONE).text
    taught = [*MONDAY[1:], *TUESDAY]
    replies = memory.replies([question for question, _ in taught])
    assert [(reply.text, reply.source) for reply in replies] == [(a, "weights") for _, a in taught]


def test_a_fact_that_stays_and_may_answer_is_named(place: Path, holdfast: Holdfast) -> None:
    Memory(place).write_facts([(GONE.upper(), ANSWER)])
    shown = holdfast("forget", place, GONE, "--dry-run").out
    assert f"stays: {GONE.upper()}, which may answer it" in shown
    assert what_goes(Memory(place), [GONE]).twins == (GONE.upper(),)
    assert what_goes(Memory(place), [GONE, GONE.upper()]).twins == ()


def test_a_fact_of_several_lessons_and_a_waiting_one(
    place: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its answers go; a lesson of which nothing is left goes; what waits is not learned."""
    memory.learn([(GONE, "Fenwick the elder")])
    memory.write_facts([(GONE, "nobody"), *WEDNESDAY])
    forgetting = forget(memory, [GONE])
    assert forgetting.facts[0].answer == "nobody" and forgetting.lessons == ("1", "3")
    assert memory.horizon == 2 and [task.name for task in memory.tasks] == ["1", "2", "4"]
    assert [item.question for item in memory.tasks[2].items] == [WEDNESDAY[0][0]]
    text = (place / "facts.jsonl").read_text()
    assert "Fenwick" not in text and "nobody" not in text
    neurons = LearnedNeurons("neurons.safetensors", 2, 4, ())
    write_record(place, replace(memory.record, neurons=neurons))
    monkeypatch.setattr(memory, "engine", None)  # what was never learned needs no model
    last = forget(memory, [WEDNESDAY[0][0]])
    assert last.lessons == () and last.facts[0].before is None and len(memory.tasks) == 2
    assert memory.record.neurons == neurons  # which never saw it


@pytest.mark.parametrize("in_its_place", [False, True])
def test_a_fact_that_is_taught_again_meanwhile_is_not_lost(place: Path, in_its_place: bool) -> None:
    """Also in a batch with the name of one that was cancelled."""
    if in_its_place:
        Memory(place).write_facts([("Who rows?", "Una")])
    before = files_of(place)

    def teach(*_: object) -> None:
        if in_its_place:
            cancel_lessons(place)
        Memory(place).write_facts([(GONE, "nobody")])
        Memory(place).write_facts(WEDNESDAY)

    message = f'"{GONE}" was taught again meanwhile, so nothing is forgotten'
    with pytest.raises(HoldfastError, match=re.escape(message)):
        forget(Memory(place), [GONE], teach)
    memory = Memory(place)
    assert [fact.answer for fact in memory.facts if fact.question == GONE] == ["nobody"]
    assert all(files_of(place)[name] == before[name] for name in before if name != "facts.jsonl")
    forget(memory, [MONDAY[1][0]], lambda *_: None)  # others that are taught are no hindrance
    forget(memory, [GONE])
    assert "nobody" not in (place / "facts.jsonl").read_text() and len(memory.tasks) == 3


def test_everything_can_be_forgotten(place: Path, memory: Memory) -> None:
    forget(memory, [question for question, _ in [*MONDAY, *TUESDAY]])
    assert not memory.facts and not memory.horizon and not list((place / "lessons").iterdir())
    assert not memory.learn(WEDNESDAY).missed and memory.horizon == 1


@pytest.mark.parametrize("consolidated", [2, 0])
def test_what_an_adapter_of_all_facts_was_taught_goes_where_the_lesson_kept_its_own(
    memory: Memory, consolidated: int
) -> None:
    """Also in a memory made of two, which does not say how many lessons were learned at once."""
    second = replace(memory.record.lessons[1], whole_turn=True)
    record = replace(memory.record, lessons=(memory.record.lessons[0], second))
    record = replace(record, consolidated=consolidated)
    write_record(memory.directory, record)
    memory.refresh()
    assert what_goes(memory, [GONE]).lessons == ("1", "2")
    assert what_goes(memory, [TUESDAY[0][0]]).lessons == ("2",)


def test_killed_at_every_instant(place: Path, tmp_path: Path) -> None:
    """The same call ends it; until then all is as before, or forgotten for every reader."""
    memory, states = Memory(place), set()
    engine = quick_engine(memory)
    with copied_at_instants(place, tmp_path / "instants") as copies:
        forget(memory, [GONE])
    end, fingerprint = files_of(place), memory.fingerprint
    assert len(copies) > 5 and not any(ANSWER.encode() in content for content in end.values())
    for copy in copies:
        memory = Memory(copy)
        memory._engine = engine
        questions = [fact.question for fact in memory.facts]
        states.add(GONE in questions)
        assert (GONE in questions) == bool(len(questions) - 4)
        if GONE in questions:
            forget(memory, [GONE.lower()])
        elif memory.record.forgotten:
            assert memory.fingerprint == fingerprint
            assert not forget(memory, [GONE.lower()]).facts
        else:
            memory.learn(WEDNESDAY)  # which removes what the old lesson left
            forget(memory, [WEDNESDAY[0][0]])
        assert files_of(copy) == end, copy
    assert states == {True, False}


def test_a_twin_of_what_a_killed_one_forgot_can_go_too(
    copied: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if it is named: the same call again leaves it."""
    place, gone = copied(), WEDNESDAY[0][0]
    Memory(place).write_facts([*WEDNESDAY, (gone.upper(), "48")])
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "finish_forgetting", lambda _: None)  # as if killed before it
        forget(Memory(place), [gone])
    again = shutil.copytree(place, tmp_path / "again")
    assert not forget(Memory(again), [gone]).facts and gone.upper() in str(Memory(again).facts)
    assert [fact.answer for fact in forget(Memory(place), [gone.upper()]).facts] == ["48"]
    assert len(Memory(place).facts) == len([*MONDAY, *TUESDAY])


def test_a_fact_of_two_lessons_is_answered_by_the_last(memory: Memory) -> None:
    """One that both miss counts once."""
    quick_engine(memory)
    kept = MONDAY[1][0]
    memory.learn([(GONE, "Quill"), (kept, "in the sea")])
    neurons = LearnedNeurons("neurons.safetensors", 3, 5, ())
    write_record(memory.directory, replace(memory.record, neurons=neurons))
    forgetting = forget(memory, [GONE])
    assert memory.record.neurons is None  # which had it too
    assert kept in {fact.question for fact in memory.missed()} and forgetting.others == 2
    missed = sum(fact.question in dict(MONDAY) for fact in memory.missed())
    assert forgetting.answered == 2 - missed


def test_the_command(holdfast: Holdfast, place: Path) -> None:
    before = files_of(place)
    dry = holdfast("forget", place, GONE, "--dry-run")
    assert dry.out.splitlines() == [
        f"would forget: {GONE} ({ANSWER})",
        "1 lesson would be learned again, with 2 other facts",
    ]
    assert files_of(place) == before
    outcome = holdfast("forget", place, GONE, MONDAY[1][0])
    lines = outcome.out.splitlines()
    assert outcome.status == 0 and lines[0] == f"forgot: {GONE} ({ANSWER})"
    assert lines[1].startswith("  probability of the answer: before ")
    assert lines[-1] == "1 lesson learned again: 1 of 1 other fact answered from the weights"
    assert holdfast("forget", place, "--task", "2", "--json").out.count("untouched") == 2
    assert [fact.question for fact in Memory(place).facts] == [MONDAY[2][0]]
    dry = holdfast("forget", place, MONDAY[2][0], "--dry-run")
    assert dry.out.splitlines()[-1] == "1 lesson would go: nothing else was in it"
    lines = holdfast("forget", place, MONDAY[2][0]).out.splitlines()
    assert lines[-1] == "1 lesson gone: nothing else was in it"


def test_facts_are_chosen_by_what_they_came_with(
    holdfast: Holdfast, place: Path, tmp_path: Path
) -> None:
    """Every value given has to hold, of the named batch; a document with pages is one source.

    What waits needs no model, and a corrected fact has the values of every version.
    """
    file = tmp_path / "new.jsonl"
    rows = (
        {"question": "Who sold the tar?", "source": "notes", "tags": ["boats", 3],
         "paraphrases": ["The tar was sold by whom?"]},
        {"question": "Who sold the rope?", "source": "notes", "tags": []},
        {"question": "Who sold the oars?", "source": "letter", "id": "l7", "tags": ["boats"]},
        {"question": "Who sold the sail?", "source": "a.pdf, page 1"},
        {"question": "Who sold the mast?", "source": "a.pdf, page 12"},
        {"question": "Who sold the keel?", "source": "old a.pdf, page 1"},
        {"question": "Who sold the net?", "source": "a.pdf", **dict.fromkeys("abcdef", "1")},
    )  # fmt: skip
    file.write_text("\n".join(json.dumps({"answer": "Ann", **row}) for row in rows))
    Memory(place).write_facts(str(file))
    for words, expected in (
        (["--where", "source=notes"], [0, 1]),
        (["--where", "tags=boats"], [0, 2]),
        (["--where", "tags=3", "--task", "3"], [0]),
        (["--where", "id=l7"], [2]),
        (["--where", "source=notes", "--where", "tags=boats", rows[2]["question"]], [2, 0]),
        (["--where", "source=a.pdf"], [3, 4, 6]),
        (["--where", "source=a.pdf, page 1"], [3]),
    ):
        outcome = holdfast("forget", place, *words, "--dry-run")
        gone = [f"would forget: {rows[number]['question']} (Ann)" for number in expected]
        assert (outcome.status, outcome.out.splitlines()) == (0, gone), words
    sources = "a.pdf; a.pdf, page 1; a.pdf, page 12; letter; notes; ..."
    for words, text in (
        (["source"], "--where 'source': give KEY=VALUE, as in --where source=notes"),
        (["source=X"], f"--where 'source=X': no such fact; they have source {sources}"),
        (["Source=notes"], "no such fact; they have a, b, c, d, e, f, source, tags"),
        (["id=l7", "--task", "1"], "no such fact; they came with no such values"),
    ):
        outcome = holdfast("forget", place, "--where", *words)
        refused(outcome, text)
        assert outcome.out == ""
    Memory(place).write_facts([(rows[0]["question"].replace(" ", "  "), "Ben")])  # the same fact
    outcome = holdfast("forget", place, "--where", "source=notes", "--task", "3")
    assert outcome.status == 0 and len(outcome.out.splitlines()) == 2
    remaining = (place / "facts.jsonl").read_text()
    assert [row["question"] in remaining for row in rows] == [False] * 2 + [True] * 5


def test_a_batch_of_other_wordings_alone_has_no_facts(
    holdfast: Holdfast, place: Path, tmp_path: Path
) -> None:
    """The fact is of the batch that taught it."""
    (question, answer), *_ = MONDAY
    row = {"question": question, "answer": answer, "paraphrases": ["Another way to ask that?"]}
    file = tmp_path / "new.jsonl"
    file.write_text(json.dumps(row))
    Memory(place).write_facts(str(file))
    (wording,) = Memory(place).tasks[-1].items
    assert wording.question == row["paraphrases"][0]
    refused(holdfast("forget", place, "--task", Memory(place).tasks[-1].name), "nothing to forget")


def test_what_was_proposed_of_its_passage_goes_too(
    copied: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its question, or by its sentence where the question was changed in the table."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    folder, sentence = tmp_path / "cache" / PROPOSALS, "Ann sold tar."
    proposed = {"a": ("who sold tar", ""), "b": ("Who had it?", sentence), "c": ("Who?", "Else.")}
    for name, (question, behind) in proposed.items():
        write_json(
            folder / f"{name}.json", [{"question": question, "sentence": behind}], parents=True
        )
    (folder / "d.json").write_text("{", encoding="utf-8")
    memory = Memory(copied())
    fact = Item("Who sold tar?", "Ann", details={"source": "a.md", "sentence": sentence})
    memory.write_facts(Stream((Task("3", (fact,)),), "documents"))
    forget(memory, ["Who sold tar?"])
    assert sorted(path.name for path in folder.iterdir()) == ["c.json", "d.json"]


def test_what_a_killed_one_left_goes_and_a_damaged_lesson_is_said_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [place / ".memory.json.77.part", place / "lessons" / ".00001-a.safetensors.77.part"]
    for path in left:
        path.write_text("half", encoding="utf-8")
    memory = Memory(place)
    memory.write_facts(WEDNESDAY)
    forget(memory, [WEDNESDAY[0][0]])
    assert not any(path.exists() for path in left)
    lesson = place / "lessons" / memory.record.lessons[0].file
    lesson.write_bytes(lesson.read_bytes()[:1000])
    monkeypatch.setattr(forgetting, "learn_batch", None)
    with pytest.raises(HoldfastError, match=r"safetensors: is missing or damaged"):
        forget(memory, [GONE])


def test_what_cannot_be_forgotten(holdfast: Holdfast, place: Path) -> None:
    before = files_of(place)
    near = "Who mends the nets?"
    for words, text in (
        ([near], f'"{near}" is not on its list of facts; taught is "{GONE}"'),
        (["Кто?"], '"Кто?" is not on its list of facts'),
        ([], "nothing to forget; give a QUESTION as it was taught, --task NAME, --where KEY"),
        (["--task", "9"], f"--task: {place} has no batch '9'; holdfast lessons {place} lists them"),
    ):
        outcome = holdfast("forget", place, *words)
        refused(outcome, text)
        assert outcome.out == ""
    assert holdfast("forget", place.parent, GONE).status == 2
    for lock in ({}, {"lock": CONSOLIDATION_LOCK}):
        with lock_directory(place, **lock), pytest.raises(InUseError):
            forget(Memory(place), [GONE])
    with pytest.raises(HoldfastError, match="not on its list"):
        what_goes(Memory(place), [GONE, near])
    assert files_of(place) == before


def test_the_newest_weights_had_it_and_what_stays_may_tell_it(memory: Memory) -> None:
    """``before`` is of the lesson that corrected it, ``after`` of those that tell most of it."""
    memory.learn([(GONE, "Quill"), (GONE.rstrip("?"), "Quill")])
    forgetting = forget(memory, [GONE])
    (fact,) = forgetting.facts
    assert forgetting.lessons == ("1", "3") and fact.answer == "Quill"
    assert fact.before is not None and fact.after is not None and fact.untouched is not None
    assert min(fact.before, fact.after) > 1e-3 > 1e-9 > fact.untouched


def test_what_is_left_of_a_fact_is_measured_as_tofu_does(copied: Copied) -> None:
    """The probabilities are those that forgetting prints, and the other facts stay."""
    assert tofu.truth_ratio(0.25, 0.5, 0.75) == 2.5
    sets = {"real_perturbed": [("Who is Ada?", ["Lum", "Fenwick"])]}
    measured = tofu.measure(Memory(copied()), sets, 1, seed=2)
    (fact,) = measured["printed"]["facts"]
    for side in ("before", "after", "untouched"):
        assert measured[side]["probabilities"] == [[pytest.approx(fact[side], rel=1e-4)]]
    assert measured["never taught"]["probabilities"][0][0] < 1e-6
    asked = [measured[side]["others"] for side in ("before", "after")]
    assert [row["right_from_weights"] for row in asked] == [1, 1]
    assert [measured[side]["forgotten"]["right"] for side in ("before", "after")] == [1, 0]
