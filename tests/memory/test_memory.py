"""A memory is the trajectory of its facts, whatever the calls in which they came."""

from __future__ import annotations

import shutil

import pytest

from holdfast import HoldfastError, Memory, RunConfig, Trajectory
from holdfast.learning import trajectory as trajectories
from holdfast.results import RunRecord
from holdfast.streams import Item, Stream, Task, Template, load_stream
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, config
from tests.trajectory.outcome import assert_same_learner, contents_of, result_of

pytestmark = pytest.mark.usefixtures("quick")


def stream_of(*batches):
    tasks = [
        Task(str(number), tuple(Item(*fact) for fact in batch))
        for number, batch in enumerate(batches, start=1)
    ]
    return Stream(tuple(tasks), "whole", repeats=True)


@pytest.mark.parametrize(
    "method", ["vanilla", "si_sd_replay_merge", "si_replay_olora", "online_ewc_sd", "osrm"]
)
def test_batch_after_batch_is_the_stream_in_one(method, backbone_directory, tmp_path):
    settings = config(backbone_directory, method)
    whole = Trajectory(settings, tmp_path / "whole", stream=stream_of(MONDAY, TUESDAY, WEDNESDAY))
    whole.advance()

    held = Memory(tmp_path / "held", settings)
    held.learn(MONDAY)
    held.ask("Who?")  # what is held between two lessons is not disturbed by a question
    held.learn(TUESDAY)
    held.learn(WEDNESDAY)
    for batch in (MONDAY, TUESDAY, WEDNESDAY):
        Memory(tmp_path / "reopened", settings).learn(batch)

    expected = result_of(tmp_path / "whole")
    assert result_of(tmp_path / "held") == expected
    assert result_of(tmp_path / "reopened") == expected
    assert_same_learner(held.trajectory.learner(), whole.learner())
    assert expected["commit"]["completed"] == 3


def test_what_learn_says_of_a_batch(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    first = memory.learn(MONDAY)
    assert first.batches == ("1",)
    assert [(item.question, item.answer) for item in first.facts] == MONDAY
    assert set(first.missed) <= set(first.facts)
    assert first.recalled == len(MONDAY) - len(first.missed)
    second = memory.learn([*TUESDAY, MONDAY[0]])
    assert (second.batches, second.known) == (("2",), 5)
    assert second.repeated == (Item(*MONDAY[0]),)
    assert [item.question for item in second.facts] == [question for question, _ in TUESDAY]
    assert memory.facts == tuple(Item(*fact) for fact in [*MONDAY, *TUESDAY])
    row = memory.trajectory.matrix[2, 1] * 3 + memory.trajectory.matrix[2, 2] * 2
    assert row == pytest.approx(second.recalled)


def test_what_is_known_costs_nothing(backbone_directory, tmp_path, monkeypatch):
    Memory(tmp_path / "m", config(backbone_directory)).learn(MONDAY)
    before = contents_of(tmp_path / "m")
    monkeypatch.setattr(trajectories, "load_backbone", None)
    for facts in (MONDAY, MONDAY[1:], None):
        learned = Memory(tmp_path / "m").learn(facts)
        assert (learned.batches, learned.facts, learned.recalled) == ((), (), None)
        assert len(learned.repeated) == len(facts or ())
    assert contents_of(tmp_path / "m") == before


def test_another_answer_is_learned_and_counts_from_then_on(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    question, old = MONDAY[0]
    memory.learn(MONDAY)
    learned = memory.learn([(question, "Orsa")])
    assert [(c.before.answer, c.after.answer) for c in learned.corrected] == [(old, "Orsa")]
    assert learned.known == 3
    assert memory.learn([(question, "Orsa")]).repeated == (Item(question, "Orsa"),)
    reopened = Memory(tmp_path / "m")
    assert [item.answer for item in reopened.facts] == ["Orsa", "in the mill", "Marigold"]
    back = reopened.learn([(question, old)])
    assert [(c.before.answer, c.after.answer) for c in back.corrected] == [("Orsa", old)]
    assert reopened.horizon == 3
    frame = reopened.to_frame()
    assert list(frame["batch"]) == ["3", "1", "1"]
    assert list(frame["answer"]) == [old, "in the mill", "Marigold"]


def test_names_of_batches(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    assert list(memory.to_frame().columns) == ["batch", "question", "answer", "aliases"]
    named = [{"task": "farm", "question": q, "answer": a} for q, a in MONDAY[:1]]
    named += [{"task": "town", "question": q, "answer": a} for q, a in MONDAY[1:]]
    assert memory.learn(named).batches == ("farm", "town")
    assert memory.learn(TUESDAY).batches == ("3",)
    more = [{"task": "farm", "question": q, "answer": a} for q, a in WEDNESDAY]
    assert memory.learn(more).batches == ("farm (2)",)
    names = [task.name for task in load_stream(tmp_path / "m" / "facts.jsonl").tasks]
    assert names == ["farm", "town", "3", "farm (2)"]


LONG = "a long answer " * 40


def test_a_memory_learns_every_fact_whole(backbone_directory, tmp_path):
    settings = config(backbone_directory)
    dropping = settings.model_copy(update={"template": Template.Config(overlong="drop")})
    with pytest.raises(HoldfastError, match="a memory learns every fact whole"):
        Memory(tmp_path / "m", dropping)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([("Who?", "Lum"), ("What?", "")], 'fact number 2: "answer" is empty'),
        ([("Who?", "Lum"), ("Who?", "Orsa")], "two answers for one question"),
        ([("Who?", LONG)], "its answer would be cut at template.max_length"),
        (["no"], "fact number 1: 'no' is no fact"),
        ([], "holds no facts"),
        ("missing.jsonl", "missing.jsonl: no such file"),
    ],
)
def test_wrong_facts_change_nothing(facts, words, backbone_directory, tmp_path):
    settings = config(backbone_directory)
    with pytest.raises(HoldfastError, match=words) as error:
        Memory(tmp_path / "new", settings).learn(facts)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "new").exists()
    memory = Memory(tmp_path / "old", settings)
    memory.learn(MONDAY)
    before = contents_of(tmp_path / "old")
    with pytest.raises(HoldfastError, match=words):
        memory.learn(facts)
    assert contents_of(tmp_path / "old") == before
    assert memory.learn(TUESDAY).batches == ("2",)


def test_directories_that_are_no_memory(backbone_directory, tmp_path):
    settings = config(backbone_directory)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "facts.jsonl").write_text("{}")
    (tmp_path / "file").write_text("")
    Trajectory(settings, tmp_path / "run", stream=stream_of(MONDAY)).advance()
    cases = {"notes": "but no trajectory", "file": "is a file", "run": "no memory (it has no fact"}
    for name, words in cases.items():
        with pytest.raises(HoldfastError) as error:
            Memory(tmp_path / name, settings)
        assert words in str(error.value) and "\n" not in str(error.value)
    memory = Memory(tmp_path / "m", settings)
    memory.learn(MONDAY)
    (tmp_path / "m" / "facts.jsonl").unlink()
    with pytest.raises(HoldfastError, match=r"facts.jsonl: is missing; restore"):
        Memory(tmp_path / "m")


def test_facts_that_were_lost_are_missed(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    memory.learn(MONDAY)
    memory.learn(TUESDAY)
    path = tmp_path / "m" / "facts.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(HoldfastError, match="has 1 of the 2 batches"):
        Memory(tmp_path / "m").learn(WEDNESDAY)


def test_settings_are_fixed_when_a_memory_is_made(backbone_directory, tmp_path):
    Memory(tmp_path / "m", config(backbone_directory)).learn(MONDAY)
    optim = {"epochs": 1, "batch_size": 2, "lr": 0.01, "min_steps": 3}
    slower = config(backbone_directory, optim=optim)
    with pytest.raises(HoldfastError, match=r"optim.lr: 0.03 -> 0.01\)"):
        Memory(tmp_path / "m", slower)
    with pytest.raises(HoldfastError, match="method"):
        Memory(tmp_path / "m", config(backbone_directory, "merge"))
    assert Memory(tmp_path / "m").config.lora.rank == 2


def test_a_memory_moves_and_reopens_as_a_trajectory(backbone_directory, tmp_path):
    Memory(tmp_path / "here", config(backbone_directory)).learn(MONDAY)
    shutil.move(tmp_path / "here", tmp_path / "there")
    Memory(tmp_path / "there").learn(TUESDAY)
    recorded = RunConfig.of(RunRecord.open(tmp_path / "there").description.config)
    reopened = Trajectory(recorded, tmp_path / "there")
    assert [len(task.items) for task in reopened.stream.tasks] == [3, 2]
    assert (reopened.horizon, reopened.advance().horizon) == (2, 2)


def test_a_question_changes_nothing_and_loads_the_model_once(
    backbone_directory, tmp_path, monkeypatch
):
    settings = config(backbone_directory, "si_replay_merge")
    Memory(tmp_path / "m", settings).learn(MONDAY)
    before, loaded = contents_of(tmp_path / "m"), []
    real = trajectories.load_backbone
    monkeypatch.setattr(
        trajectories, "load_backbone", lambda chosen: loaded.append(chosen) or real(chosen)
    )
    memory = Memory(tmp_path / "m")
    for question, _ in MONDAY:
        memory.ask(question)
    assert len(loaded) == 1
    assert contents_of(tmp_path / "m") == before
    memory.learn(TUESDAY)
    assert len(loaded) == 1


def test_questions_that_cannot_be_asked(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    with pytest.raises(HoldfastError, match="no such memory; holdfast learn"):
        memory.ask("Who?")
    with pytest.raises(HoldfastError, match="no such memory"):
        memory.learn()
    assert not (tmp_path / "m").exists()
    memory.learn(MONDAY)
    with pytest.raises(HoldfastError, match='"question" is empty'):
        memory.ask("  ")
    with pytest.raises(HoldfastError, match="ask a shorter one"):
        memory.ask("why " * 400)


def test_asking_survives_a_commit_in_between(backbone_directory, tmp_path):
    """The files of the commit that it had read are gone when it comes to load them."""
    settings = config(backbone_directory, "si_merge")
    Memory(tmp_path / "m", settings).learn(MONDAY)
    asking = Memory(tmp_path / "m")
    other = Memory(tmp_path / "m")
    other.learn(TUESDAY)
    assert asking.horizon == 1
    question = TUESDAY[0][0]
    assert asking.reply(question) == other.reply(question)
    assert asking.horizon == 2


def test_two_memories_in_turn(backbone_directory, tmp_path):
    """One that was opened before another process taught it more goes on from there."""
    settings = config(backbone_directory)
    ours, theirs = Memory(tmp_path / "m", settings), Memory(tmp_path / "m", settings)
    ours.learn(MONDAY)
    late = Memory(tmp_path / "m")
    ours.learn(TUESDAY)
    assert late.learn([*TUESDAY, *WEDNESDAY]).batches == ("3",)
    assert ours.learn(WEDNESDAY).batches == ()
    assert [item.question for item in late.facts] == [q for q, _ in MONDAY + TUESDAY + WEDNESDAY]
    assert theirs.learn(WEDNESDAY).batches == ()


@pytest.mark.parametrize("given", [None, [*MONDAY, *TUESDAY]])
def test_what_was_forgotten_is_learned_again_when_asked(
    given, backbone_directory, tmp_path, monkeypatch
):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    memory.learn(MONDAY)
    memory.learn(TUESDAY)
    forgotten = (Item(*MONDAY[1]), Item(*TUESDAY[0]))
    monkeypatch.setattr(memory, "forgotten", lambda: forgotten)
    assert memory.learn(given).batches == ()
    once_more = memory.learn(given, again=True)
    assert (once_more.batches, once_more.facts) == (("3",), forgotten)
    assert once_more.corrected == ()
    assert memory.trajectory.stream.tasks[2].items == forgotten
    assert len(memory.facts) == len(MONDAY) + len(TUESDAY)


def test_forgotten_is_what_the_model_does_not_repeat(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    learned = memory.learn(MONDAY)
    assert memory.forgotten() == learned.missed
    right = [question for question, answer in MONDAY if memory.ask(question) == answer]
    assert {item.question for item in memory.forgotten()} == {q for q, _ in MONDAY} - set(right)
