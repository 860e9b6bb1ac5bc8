"""What is learned once more when it was forgotten, and a memory's own file changed by hand."""

from __future__ import annotations

import unicodedata

import pytest

from holdfast import HoldfastError, Memory
from holdfast.memory.plan import plan
from holdfast.streams import Item, Stream, Task
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, config
from tests.trajectory.outcome import contents_of

pytestmark = pytest.mark.usefixtures("quick")


def pending(place, *facts):
    """Put a batch on file as a process that was killed before it was learned leaves it."""
    lines = [f'{{"task": "late", "question": "{q}", "answer": "{a}"}}\n' for q, a in facts]
    with (place / "facts.jsonl").open("a") as file:
        file.writelines(lines)


def test_a_correction_that_is_still_to_be_learned_is_not_undone(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    memory.learn(MONDAY)
    assert len(memory.forgotten()) == len(MONDAY)
    pending(tmp_path / "m", (MONDAY[0][0], "Orsa"))
    learned = Memory(tmp_path / "m").learn(again=True)
    assert learned.corrected == ()
    assert learned.batches == ("late", "3")
    assert [item.answer for item in Memory(tmp_path / "m").facts] == [
        "Orsa",
        *dict(MONDAY[1:]).values(),
    ]
    assert (learned.known, learned.recalled) == (3, 3 - len(learned.missed))


def test_a_correction_by_another_process_is_not_undone(backbone_directory, tmp_path):
    Memory(tmp_path / "m", config(backbone_directory)).learn(MONDAY)
    late = Memory(tmp_path / "m")
    late.load()
    Memory(tmp_path / "m").learn([(MONDAY[0][0], "Orsa"), *TUESDAY])
    learned = late.learn(again=True)
    assert learned.corrected == ()
    assert late.facts[0].answer == "Orsa"
    assert {item.question for item in learned.facts} == {q for q, _ in MONDAY + TUESDAY}


def test_an_empty_memory_has_forgotten_nothing(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    with pytest.raises(HoldfastError, match="no such memory"):
        memory.learn(again=True)
    assert not (tmp_path / "m").exists()
    assert memory.learn(MONDAY, again=True).batches == ("1",)


def test_an_answer_in_another_coding_is_no_correction():
    composed, apart = (unicodedata.normalize(form, "Zo\u00eb") for form in ("NFC", "NFD"))
    known = [Task("1", (Item("Who?", composed),))]
    again = Stream((Task("1", (Item("Who?", apart),)),), "again")
    assert plan(known, 1, again).corrected == ()
    assert len(plan(known, 1, again).tasks) == 1


def test_what_cannot_be_seen_makes_a_correction_and_case_two_facts(caplog):
    known = [Task("1", (Item("Who is it?", "Ann"),))]
    given = Stream((Task("2", (Item("Who  is\u200b it?", "Bo"),)),), "given")
    (correction,) = plan(known, 1, given).corrected
    assert (correction.before.answer, correction.after.answer) == ("Ann", "Bo")
    assert not caplog.messages
    given = Stream((Task("2", (Item("who is it?", "Bo"), Item("What?", "Cy"))),), "given")
    planned = plan(known, 1, given)
    assert planned.corrected == () and len(planned.tasks[1].items) == 2
    assert caplog.messages == [
        '"Who is it?" and "who is it?" differ in case alone and are two facts; to correct one, '
        "write it alike"
    ]
    caplog.clear()
    assert plan(planned.tasks, 2, given).repeated and not caplog.messages


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[1:], 'batch "1" is not as it was learned; restore the file'),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 'batch "1" is not as it was learned'),
        (lambda lines: [*lines, lines[0]], "line 4: question .* already stands at .* line 1"),
        (lambda lines: [], "has 0 of the 1 batches that were learned"),
    ],
)
def test_what_was_learned_cannot_be_changed_by_hand(change, words, backbone_directory, tmp_path):
    Memory(tmp_path / "m", config(backbone_directory)).learn(MONDAY)
    path = tmp_path / "m" / "facts.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    before = contents_of(tmp_path / "m")
    with pytest.raises(HoldfastError, match=words) as error:
        Memory(tmp_path / "m")
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert contents_of(tmp_path / "m") == before


def test_facts_appended_by_hand_are_the_next_batch(backbone_directory, tmp_path):
    Memory(tmp_path / "m", config(backbone_directory)).learn(MONDAY)
    pending(tmp_path / "m", *WEDNESDAY)
    assert Memory(tmp_path / "m").learn().batches == ("late",)
    pending(tmp_path / "m", ("Who?", "Lum"))
    with pytest.raises(HoldfastError, match='batch "late" is not as it was learned'):
        Memory(tmp_path / "m")


def test_a_correction_is_compared_with_the_batch_before_it():
    """Both batches come at once: the second one takes the first one's correction back."""
    known = [Task("1", (Item("Who?", "Lum"),))]
    batches = (Task("a", (Item("Who?", "Orsa"),)), Task("b", (Item("Who?", "Lum"),)))
    decided = plan(known, 1, Stream(batches, "both", repeats=True))
    assert [(c.before.answer, c.after.answer) for c in decided.corrected] == [
        ("Lum", "Orsa"),
        ("Orsa", "Lum"),
    ]
    assert decided.tasks == (*known, *batches)


def test_what_is_on_file_but_not_learned_yet_is_not_called_learned():
    known = [Task("1", (Item("Who?", "Lum"),)), Task("late", (Item("What?", "rye"),))]
    given = Stream((Task("1", (Item("Who?", "Lum"), Item("What?", "rye"))),), "given")
    decided = plan(known, 1, given)
    assert decided.tasks == tuple(known)
    assert decided.repeated == (Item("Who?", "Lum"),)
