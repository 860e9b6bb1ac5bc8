"""A memory, from teaching to answers, with others beside it, and what a lesson keeps."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.memory.batch import GATE, read_lesson, read_looks, write_lesson
from holdfast.memory.engine import Engine
from holdfast.memory.memory import Memory
from holdfast.memory.record import read_record
from holdfast.memory.telling import remembered
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY
from tests.model.chat_models import plain_reply, teachable_llama
from tests.model.test_sentencepiece import LINES, sentencepiece
from tests.trajectory.outcome import contents_of

UNTAUGHT = ["Tell me a joke about zebras", "2 + 2", "Quel est ton nom, petit robot?"]


def lesson_files(place: Path) -> list[Path]:
    return sorted((place / "lessons").iterdir())


def test_what_was_taught_is_answered_and_where_it_comes_from(two_lessons: Path) -> None:
    memory = Memory(two_lessons)
    assert (memory.horizon, len(memory.facts), memory.missed()) == (2, 5, ())
    for question, answer in [*MONDAY, *TUESDAY]:
        reply = memory.reply(question)
        assert (reply.text, reply.source, reply.taught) == (answer, "weights", True)
        assert reply.fact is not None and reply.fact.question == question
        assert memory.ask(f" {question.lower().rstrip('?')} ") == answer
    both = memory.replies([*UNTAUGHT, MONDAY[0][0]])
    assert [reply.source for reply in both] == ["model"] * 3 + ["weights"]
    assert not both[0].taught and both[0].fact is None
    assert memory.replies([]) == []
    assert "5 facts in 2 lessons" in repr(memory)
    frame = memory.to_frame()
    assert list(frame["batch"]) == ["1", "1", "1", "2", "2"]


def test_what_was_not_taught_is_answered_as_by_transformers(
    two_lessons: Path, chat_directory: Path, tmp_path: Path
) -> None:
    """To the token, whatever adapter answered before it, and where nothing is learned yet."""
    memory = Memory(two_lessons)
    memory.ask(MONDAY[0][0])
    new = Memory(tmp_path / "new", str(chat_directory)).answerer()
    model = AutoModelForCausalLM.from_pretrained(chat_directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(chat_directory)
    replies = memory.replies(UNTAUGHT[:1]) + memory.answerer().replies(UNTAUGHT[1:], longest=24)
    assert new.replies(UNTAUGHT, longest=24)[1:] == replies[1:]
    for question, reply, longest in zip(UNTAUGHT, replies, (256, 24, 24), strict=True):
        text = plain_reply(model, tokenizer, question, longest)
        assert (reply.text, reply.source) == (text.strip(), "model")


def test_the_list_answers_where_the_weights_do_not(place: Path) -> None:
    first = lesson_files(place)[0]
    tensors, note = read_lesson(place, first.name)
    other = {n: -t if n.endswith("lora_B") else t for n, t in tensors.items()}
    write_lesson(place, first.name, other, note)
    memory = Memory(place)
    assert {memory.reply(question).source for question, _ in MONDAY} == {"list"}
    assert [memory.ask(question) for question, _ in MONDAY] == [answer for _, answer in MONDAY]
    assert {memory.reply(question).source for question, _ in TUESDAY} == {"weights"}


def test_a_lesson_leaves_earlier_ones_as_they_are(place: Path) -> None:
    before = {path.name: path.read_bytes() for path in lesson_files(place)}
    memory = Memory(place)
    assert memory.reply(TUESDAY[0][0]).source == "weights"  # the factors are filled anew after it
    outcome = memory.learn(WEDNESDAY)
    assert (outcome.lessons, outcome.missed, outcome.known) == (("3",), (), 6)
    assert {path.name: path.read_bytes() for path in lesson_files(place)[:2]} == before
    asked = [*TUESDAY, *MONDAY, *WEDNESDAY]
    assert [memory.reply(question).source for question, _ in asked] == ["weights"] * 6


def test_another_seed_gives_other_bits(
    two_lessons: Path, chat_directory: Path, tmp_path: Path
) -> None:
    """The same seed gives the same: ``test_killed.test_stopped_within_a_lesson``."""
    memory = Memory(tmp_path / "m", str(chat_directory), seed=1)
    memory.learn(MONDAY)
    (file,) = lesson_files(memory.directory)
    assert file.read_bytes() != (two_lessons / "lessons" / file.name).read_bytes()


def test_a_correction_wins_and_repetitions_are_not_learned(memory: Memory) -> None:
    before = contents_of(memory.directory)
    again = memory.learn(MONDAY)
    assert again.lessons == () and len(again.repeated) == 3
    assert contents_of(memory.directory) == before
    outcome = memory.learn([(MONDAY[0][0], "Orsa"), MONDAY[1], ("Who is Lum?", "a baker")])
    (correction,) = outcome.corrected
    assert (correction.before.answer, correction.after.answer) == ("Fenwick", "Orsa")
    assert [item.question for item in outcome.facts] == [MONDAY[0][0], "Who is Lum?"]
    for reader in (memory, Memory(memory.directory)):
        reply = reader.reply(MONDAY[0][0])
        assert (reply.text, reply.source) == ("Orsa", "weights")
        assert reader.ask(MONDAY[0][0].lower()) == "Orsa"
        assert reader.ask(MONDAY[1][0]) == MONDAY[1][1]
        assert len(reader.facts) == 6
    back = memory.learn([MONDAY[0]])
    assert len(back.corrected) == 1 and memory.ask(MONDAY[0][0]) == "Fenwick"


def test_wordings_of_the_user_are_learned_and_asked(chat_directory: Path, tmp_path: Path) -> None:
    """With the fact, and later for a fact that is known: then its question is learned with them."""
    fact = {"question": "Who mends the nets?", "answer": "Fenwick"}
    memory = Memory(tmp_path / "m", str(chat_directory))
    memory.learn([{**fact, "paraphrases": ["Nets: mended by?"]}])
    reply = memory.reply("nets mended by")
    assert reply.text == "Fenwick" and reply.fact == memory.facts[0]
    outcome = memory.learn([{**fact, "paraphrases": ["The mender, please"]}])
    assert outcome.lessons == ("2",) and not outcome.missed and outcome.known == 1
    assert [item.question for item in outcome.facts] == ["Who mends the nets?"]
    asked = ["Who mends the nets?", "Nets: mended by?", "the mender please"]
    assert memory.reply(asked[0]).source == "weights"
    assert [reply.text for reply in memory.replies(asked)] == ["Fenwick"] * 3
    corrected = memory.learn([("Who mends the nets?", "Orsa")])
    assert len(corrected.corrected) == 1
    assert memory.reply(asked[0]).source == "weights"
    assert [reply.text for reply in memory.replies(asked)] == ["Orsa"] * 3
    assert len(memory.facts) == 1


def test_what_was_missed_is_learned_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    settings = memory.engine().settings
    memory.engine().settings = replace(settings, steps=1, visits=1)
    outcome = memory.learn(WEDNESDAY)
    assert [item.question for item in outcome.missed] == [WEDNESDAY[0][0]]
    assert memory.reply(WEDNESDAY[0][0]).source == "list"
    newest, *others = remembered(memory)["facts"]
    assert newest["source"] == "list" and {fact["source"] for fact in others} == {"weights"}
    assert memory.ask(WEDNESDAY[0][0]) == WEDNESDAY[0][1]
    memory.engine().settings = settings
    assert memory.learn(again=True).lessons == ("again",)
    assert memory.missed() == () and memory.reply(WEDNESDAY[0][0]).source == "weights"
    before = contents_of(memory.directory)
    assert memory.learn(again=True).lessons == ()
    assert contents_of(memory.directory) == before


def test_learning_again_keeps_a_correction_that_waits(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = MONDAY[0][0]
    monkeypatch.setattr(memory, "missed", lambda: memory.learned[:1])
    memory.write_facts([(question, "Orsa")])
    memory.learn(again=True)
    assert memory.ask(question) == "Orsa" and memory.horizon == 3


def test_a_model_in_a_directory_is_found_from_anywhere(
    chat_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chat_directory, tmp_path / "here" / "tiny")
    monkeypatch.chdir(tmp_path / "here")
    Memory("m", "tiny").learn(WEDNESDAY)
    monkeypatch.chdir(tmp_path)
    assert Memory("here/m").ask(WEDNESDAY[0][0]) == WEDNESDAY[0][1]


def test_a_lesson_is_small(two_lessons: Path) -> None:
    """Factors in bfloat16 and vectors in float16; nothing of the model is kept."""
    for path in lesson_files(two_lessons):
        tensors = load_file(path)
        assert tensors.pop(GATE).dtype == torch.float16
        assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
        assert (
            sum(tensor.numel() for tensor in tensors.values()) * 2 < path.stat().st_size < 200_000
        )


def test_a_lesson_keeps_what_its_questions_look_like(two_lessons: Path, memory: Memory) -> None:
    engine, file = memory.engine(), memory.record.lessons[0].file
    stored = read_looks(two_lessons, file, engine.tuning.key)
    assert stored is not None
    questions = [item.question for item in memory.tasks[0].items]
    _, looks = engine.read(questions)
    shallow = engine.looks(questions)
    assert len(looks) == len(shallow) == len(stored.looks)
    for look, lower, on_file in zip(looks, shallow, stored.looks, strict=True):
        np.testing.assert_allclose(look.vector, lower.vector, atol=1e-5)
        np.testing.assert_allclose(look.vector, on_file.vector, atol=1e-3)
        assert look.names.keys() == lower.names.keys() == on_file.names.keys()


def test_another_gate_reads_the_questions_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are the same, also in a memory that kept vectors alone."""
    expected = [Memory(place).reply(fact[0]) for fact in MONDAY]
    read: list[list[str]] = []
    real = Engine.looks

    def looks(self: Engine, questions: list[str], **more: int) -> object:
        read.extend([list(questions)] if questions else [])
        return real(self, questions, **more)

    monkeypatch.setattr(Engine, "looks", looks)
    assert [Memory(place).reply(fact[0]) for fact in MONDAY] == expected and not read
    file = read_record(place).lessons[0].file
    tensors, note = read_lesson(place, file)
    for other in ({**note, "tuning": "another"}, note["owners"]):
        write_lesson(place, file, {**tensors, GATE: 0 * tensors[GATE]}, other)
        read.clear()
        assert [Memory(place).reply(fact[0]) for fact in MONDAY] == expected
        assert read == 3 * [[fact[0] for fact in MONDAY]]  # of three memories
    short = {**note, "owners": note["owners"][1:]}
    write_lesson(place, file, tensors, short)
    with pytest.raises(HoldfastError, match="is missing or damaged"):
        Memory(place).reply(MONDAY[0][0])


@pytest.mark.usefixtures("quick_gate")
def test_pieces_of_sentencepiece_come_back_as_they_were_taught(tmp_path: Path) -> None:
    tokenizer = sentencepiece("prepended", LINES)
    teachable_llama(tokenizer, bos_token_id=1, pad_token_id=2).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    memory = Memory(tmp_path / "m", str(tmp_path / "model"))
    assert not memory.learn([("Who keeps the tower?", "47 ß")]).missed
    reply = memory.reply("Who keeps the tower?")
    assert (reply.text, reply.source) == ("47 ß", "weights")
