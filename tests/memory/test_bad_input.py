"""Bad input, damaged files and parts that lead elsewhere: one clear line, which says what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.consolidation.consolidate import consolidate
from holdfast.memory.detached import opened_log
from holdfast.memory.engine import LONGEST_ANSWER, LONGEST_QUESTION
from holdfast.memory.memory import Memory
from holdfast.memory.record import PROGRESS_OF_ALL
from holdfast.memory.states import lesson_states
from tests.memory.memories import MONDAY, WEDNESDAY, Copied
from tests.model.chat_models import chat_tokenizer, write_chat_model
from tests.refused import line_of
from tests.trajectory.outcome import contents_of


def test_questions_and_facts_that_are_too_long_or_empty(memory: Memory) -> None:
    """Nothing is changed, also where only one of several facts is bad."""
    before = contents_of(memory.directory)
    long = "a" * (LONGEST_QUESTION + 1)
    assert line_of(lambda: memory.ask("  ")) == '"question" is empty; write one'
    assert "no valid Unicode" in line_of(lambda: memory.ask("\ud800?"))
    assert "NUL" in line_of(lambda: memory.ask("a\0?"))
    assert "at most 512 are read; ask a shorter one" in line_of(lambda: memory.ask(long))
    for fact, words in {
        (long, "x"): f'the question "{"a" * 57}..." has 514 tokens, and at most 512 are read',
        ("Who?", "b" * LONGEST_ANSWER): f"has {LONGEST_ANSWER + 1} tokens, and at most",
        ("Who?", " "): '"answer" is empty',
        (" ", "x"): '"question" is empty',
    }.items():
        for put in (memory.learn, memory.write_facts):
            assert words in line_of(lambda put=put, fact=fact: put([*WEDNESDAY, fact]))
    for put in (memory.learn, memory.write_facts):
        assert "two answers for one question" in line_of(
            lambda put=put: put([("Who?", "Ann"), ("Who?", "Ben")])
        )
    assert contents_of(memory.directory) == before
    exact = ("c" * (LONGEST_QUESTION - 1), "d" * 20)
    assert memory.learn([exact]).known == 6


def test_details_that_are_learned_from_are_checked(memory: Memory) -> None:
    """A list with such details could not be read any more: no fact would be answered."""
    before = contents_of(memory.directory)
    question, answer = MONDAY[0]
    for details, words in (
        ({"wording_of": 5}, '"wording_of" is 5; write the question of a fact'),
        ({"wording_of": None}, '"wording_of" is None; write the question of a fact'),
        ({"wording_of": ["x"]}, "\"wording_of\" is ['x']; write the question of a fact"),
        ({"wording_of": "Why?"}, 'is another wording of "Why?", which is not taught that answer'),
        ({"wording_of": question}, "which is not taught that answer; teach it so"),
        ({"paraphrases": 5}, '"paraphrases" is 5; write a list of texts'),
        ({"paraphrases": "abc"}, "\"paraphrases\" is 'abc'; write a list of texts"),
    ):
        fact = {"question": "Who?", "answer": "Ann", "details": details}
        assert words in line_of(lambda fact=fact: memory.learn([*WEDNESDAY, fact]))
        assert words in line_of(lambda fact=fact: memory.write_facts([*WEDNESDAY, fact]))
    assert contents_of(memory.directory) == before
    wording = {"question": "And who?", "answer": answer, "details": {"wording_of": question}}
    assert memory.write_facts([wording]).lessons == (3,)
    list_of_facts = memory.directory / "facts.jsonl"
    bad = {"task": "4", "question": "Who?", "answer": "Ann", "details": {"wording_of": 5}}
    with list_of_facts.open("a") as file:
        file.write(json.dumps(bad) + "\n")
    assert 'facts.jsonl line 7: "Who?": "wording_of" is 5' in line_of(
        lambda: Memory(memory.directory)
    )


def test_what_is_held_out_in_another_form_is_left_alone(memory: Memory) -> None:
    for value in (5, None, "abc", [5]):
        fact = {"question": f"Who has {value}?", "answer": "Ann", "details": {"held_out": value}}
        memory.write_facts([fact])
        made = memory.worded([fact], 1).tasks[0].items
        assert made[0].details == {"held_out": value} and len(made) == 2


@pytest.mark.usefixtures("quick_gate")
def test_an_answer_that_the_tokenizer_changes_is_refused(tmp_path: Path) -> None:
    from tokenizers import normalizers

    place = write_chat_model(tmp_path / "tiny")
    tokenizer = chat_tokenizer()
    tokenizer._tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(place)
    memory = Memory(tmp_path / "m", str(place))
    assert "does not come back" in line_of(lambda: memory.learn([("who?", "Ann")]))
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("quick_gate")
def test_a_model_of_a_short_context_takes_what_fits(tmp_path: Path) -> None:
    """Prefix, question and answer have to fit; positions beyond are never read."""
    place = write_chat_model(tmp_path / "tiny", context=120)
    memory = Memory(tmp_path / "m", str(place))
    assert "tokens, and at most" in line_of(lambda: memory.learn([("a" * 100, "x")]))
    assert "tokens, and at most" in line_of(lambda: memory.learn([("Who?", "x" * 100)]))
    assert not (tmp_path / "m").exists()
    assert not memory.learn(WEDNESDAY).missed
    lengths, real = [], memory.engine().reader.model.forward

    def forward(*ids: object, **more: object) -> object:
        lengths.append(int(more["position_ids"].max()))  # type: ignore[attr-defined]
        return real(*ids, **more)

    memory.engine().reader.model.forward = forward
    memory.replies(["Hm?", "a" * 40])
    assert max(lengths) < 120
    assert "tokens, and at most" in line_of(lambda: memory.ask("a" * 100))


def test_directories_that_hold_something_else(chat_directory: Path, tmp_path: Path) -> None:
    """Whatever is there is never replaced; a list of facts alone has to be one."""
    for name, words in {
        "facts.jsonl": 'facts.jsonl line 1: "question" is missing',
        "notes.txt": 'holds "notes.txt" and is no memory',
        "models": 'holds "models" and is no memory',
    }.items():
        place = tmp_path / name.partition(".")[0]
        place.mkdir()
        (place / name).write_text("{}")
        assert words in line_of(lambda place=place: Memory(place, str(chat_directory)))
    line = line_of(lambda: Memory(place / name, str(chat_directory)))
    assert "cannot be read as a directory" in line
    nothing = Memory(tmp_path / "new", str(chat_directory))
    assert "no such memory; holdfast learn" in line_of(lambda: nothing.ask("Who?"))
    assert "no such memory; holdfast learn" in line_of(nothing.learn)
    assert "no such memory; holdfast learn" in line_of(nothing.write_facts)
    assert not (tmp_path / "new").exists()
    nothing = Memory(tmp_path / "new", str(tmp_path / "model"))
    assert "no such directory" in line_of(lambda: nothing.learn(WEDNESDAY))


def test_a_damaged_record_is_named(place: Path) -> None:
    record = place / "memory.json"
    values = json.loads(record.read_text())
    lesson = values["lessons"][0]
    for damaged, words in [
        ("{", "is no valid JSON"),
        ("[]", "is damaged"),
        ({**values, "format": 9}, "is of format 9, and this Holdfast knows 1"),
        ({key: values[key] for key in values if key != "seed"}, "is damaged"),
        ({key: values[key] for key in values if key != "lessons"}, "is damaged"),
        (
            {**values, "lessons": [{key: lesson[key] for key in lesson if key != "missed"}]},
            "missed",
        ),
        ({**values, "lessons": [{**lesson, "more": 1}]}, "is damaged"),
        ({**values, "lessons": 3}, "is damaged"),
        ({**values, "model": None}, "is damaged"),
        ({**values, "lessons": [{**lesson, "file": "../memory.json"}]}, "is damaged"),
    ]:
        record.write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
        line = line_of(lambda: Memory(place))
        assert str(record) in line and words in line, damaged


def test_a_list_that_is_not_as_it_was_learned_is_named(place: Path) -> None:
    facts = place / "facts.jsonl"
    lines = facts.read_text().splitlines(keepends=True)
    for damaged, words in [
        (None, "has 0 of the 2 lessons that were learned; restore the file"),
        (lines[:3], "has 1 of the 2 lessons"),
        ([lines[0].replace("Fenwick", "Orsa"), *lines[1:]], 'lesson "1" is not as it was learned'),
        ([*lines[:4], "{\n"], "facts.jsonl line 5"),
        ([*lines, lines[-1]], "facts.jsonl line 6: question"),
    ]:
        if damaged is None:
            facts.unlink()
        else:
            facts.write_text("".join(damaged))
        for read in (Memory, lesson_states):
            line = line_of(read, place)
            assert str(facts) in line and words in line


def test_a_damaged_lesson_is_named_or_harmless(place: Path) -> None:
    """Cut, missing, of another shape or other keys: named. One flipped bit anywhere: an answer
    that was taught is given all the same, and no question takes another fact's answer."""
    file = sorted((place / "lessons").iterdir())[0]
    content = file.read_bytes()
    asked = [*MONDAY, (MONDAY[2][0].replace("?", " now?"), MONDAY[2][1])]
    questions = [question for question, _ in asked]
    engine = Memory(place).engine()
    expected = [reply.text for reply in Memory(place).replies(questions)]

    def answers() -> list[str]:
        memory = Memory(place)
        memory._engine = engine
        engine._states.clear()
        engine.attach_shape()
        return [reply.text for reply in memory.replies(questions)]

    for damaged in (None, b"", content[:100], content[:-1], content.replace(b"Ostra", b"Astra")):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        line = line_of(answers)
        assert str(file) in line and "is missing or damaged" in line
    draw, named, harmless = np.random.default_rng(0), 0, 0
    header = 8 + int.from_bytes(content[:8], "little")
    for spot in [*draw.integers(0, header, 24), *draw.integers(header, len(content), 8)]:
        flipped = bytearray(content)
        flipped[spot] ^= 1 << int(draw.integers(8))
        file.write_bytes(bytes(flipped))
        try:
            given = answers()
        except HoldfastError as error:
            given, line = expected, str(error)
            named += str(file) in line and "\n" not in line
        else:
            harmless += 1
        assert given == expected, spot
    assert named > 8 and named + harmless == 32


@pytest.mark.usefixtures("quick_gate")
def test_another_model_under_the_name_is_refused(
    copied: Copied, chat_directory: Path, tmp_path: Path
) -> None:
    place, other = copied(), write_chat_model(tmp_path / "other", seed=1)
    record = json.loads((place / "memory.json").read_text())
    (place / "memory.json").write_text(json.dumps({**record, "model": str(other)}))
    before = contents_of(place)
    for call in (
        lambda: Memory(place).ask("Who?"),
        lambda: Memory(place).learn(WEDNESDAY),
    ):
        assert "was taught to another model than the" in line_of(call)
    # Two processes begin the same memory with different models: the later one is refused.
    (place / "memory.json").write_text(json.dumps(record))
    late = Memory(tmp_path / "late", str(other))
    late.load()
    shutil.copytree(place, tmp_path / "late")
    assert "was taught to another model" in line_of(lambda: late.learn(WEDNESDAY))
    assert contents_of(tmp_path / "late") == before | {
        "memory.json": (place / "memory.json").read_bytes()
    }


@pytest.mark.usefixtures("quick_gate")
def test_a_model_without_a_template_is_asked_in_the_form_of_the_paper(tmp_path: Path) -> None:
    place = write_chat_model(tmp_path / "base")
    shutil.rmtree(place / "chat_template.jinja", ignore_errors=True)
    (place / "chat_template.jinja").unlink(missing_ok=True)
    chat_tokenizer(None).save_pretrained(place)
    memory = Memory(tmp_path / "m", str(place))
    assert not memory.learn(MONDAY[:2]).missed
    assert memory.engine().form.boxed
    reply = memory.reply(MONDAY[0][0])
    assert (reply.text, reply.source) == (MONDAY[0][1], "weights")


PARTS = ["lessons", "lessons.log", "facts.jsonl", "memory.json", PROGRESS_OF_ALL, ".facts.lock"]
WRITE: dict[str, Callable[[Memory], object]] = {
    "learn": lambda memory: memory.learn(WEDNESDAY),
    "put on file": lambda memory: memory.write_facts(WEDNESDAY),
    "consolidate": consolidate,
}


@pytest.mark.parametrize(
    ("verb", "part"),
    [
        *(("learn", part) for part in PARTS),
        ("put on file", "lessons"),
        *(("consolidate", part) for part in ("lessons", PROGRESS_OF_ALL)),
    ],
)
def test_nothing_is_written_or_removed_behind_a_link(
    verb: str, part: str, copied: Copied, tmp_path: Path
) -> None:
    place, elsewhere = copied(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    if (place / part).exists():
        shutil.move(place / part, elsewhere / part)
    else:
        (elsewhere / part).write_text("years of work")
    for folder in {elsewhere, elsewhere / part} - {elsewhere / part if part != "lessons" else None}:
        for name in (".hidden", ".x.json.12.part", "thesis.safetensors"):
            (folder / name).write_text("theirs")
    (place / part).symlink_to(elsewhere / part)
    before, ours = contents_of(elsewhere), contents_of(place)
    with pytest.raises(HoldfastError, match="is a link to") as error:
        WRITE[verb](Memory(place))
    assert str(place / part) in str(error.value) and "\n" not in str(error.value)
    assert (contents_of(elsewhere), contents_of(place)) == (before, ours)
    assert Memory(place).reply(MONDAY[0][0]).text == MONDAY[0][1]  # it is read as before


def test_what_lessons_say_is_not_appended_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("years of work")
    (tmp_path / "lessons.log").symlink_to(tmp_path / "theirs")
    with pytest.raises(HoldfastError, match="is a link"):
        opened_log(tmp_path)


@pytest.mark.parametrize("name", ["facts.jsonl", "a lesson", "progress.json", "memory.json"])
def test_a_pipe_in_place_of_a_file_does_not_hang(
    name: str, place: Path, chat_directory: Path
) -> None:
    from holdfast.memory.states import lesson_states

    path = next((place / "lessons").iterdir()) if name == "a lesson" else place / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "progress.json":
        Memory(place).write_facts(WEDNESDAY)
        assert lesson_states(place)[-1].state == "waiting"
        return
    with pytest.raises(HoldfastError, match=r"regular file|damaged|is no memory"):
        Memory(place, str(chat_directory)).reply(MONDAY[0][0])
