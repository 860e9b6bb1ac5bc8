"""Killed at any instant, a memory ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import random
import shutil
import signal

import pytest

from holdfast import HoldfastError, Memory
from holdfast.memory.memory import recorded_in
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, config, start, values
from tests.trajectory.children import finish
from tests.trajectory.instants import heard
from tests.trajectory.outcome import contents_of, result_of, tasks_logged

STATEFUL = "si_sd_replay_merge"


@pytest.fixture(scope="module")
def whole(backbone_directory, tmp_path_factory):
    """What two batches come to when nobody disturbs."""
    place = tmp_path_factory.mktemp("whole") / "m"
    memory = Memory(place, config(backbone_directory, STATEFUL))
    memory.learn(MONDAY)
    memory.learn(TUESDAY)
    return place


@pytest.fixture(scope="module")
def instants(backbone_directory, tmp_path_factory):
    """Copies of a memory at every instant of its two lessons, each with the lesson's number.

    Whatever a killed process leaves is such a copy: the kernel keeps what was written.
    """
    root = tmp_path_factory.mktemp("instants")
    place, found, seen = root / "m", [], set()
    memory = Memory(place, config(backbone_directory, STATEFUL))
    for lesson, facts in enumerate((MONDAY, TUESDAY)):

        def hear(name: str, lesson: int = lesson) -> None:
            key = tuple(contents_of(place).items())
            if key not in seen:
                seen.add(key)
                found.append((shutil.copytree(place, root / str(len(found))), lesson))

        with heard(hear):
            memory.learn(facts)
    return found


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("again", ["the same", "none"])
def test_killed_at_every_instant(again, instants, whole, backbone_directory, tmp_path):
    """The same command continues; so does one without facts, once they are on file."""
    assert len(instants) > 30
    expected, names = result_of(whole), contents_of(whole).keys()
    pending = 0
    # Each way takes every second instant.
    for number, (copy, lesson) in enumerate(instants[again == "none" :: 2]):
        place = shutil.copytree(copy, tmp_path / str(number))
        begun = recorded_in(place) is not None
        # The settings are kept before the first fact is; until then they have to be repeated.
        memory = Memory(place, None if begun else config(backbone_directory, STATEFUL))
        lessons = [MONDAY, TUESDAY]
        pending += len(memory.facts) == 5 and memory.horizon < 2
        if again == "none" and memory.facts:
            memory.learn()
            lessons = lessons[memory.horizon :]
        for facts in lessons[lesson:] if again == "the same" else lessons:
            memory.learn(facts)
        assert result_of(place) == expected
        assert contents_of(place).keys() == names
        assert (place / "facts.jsonl").read_bytes() == (whole / "facts.jsonl").read_bytes()
        assert tasks_logged(place) == [1, 2]
    assert pending > 3


def test_killed_again_and_again(whole, backbone_directory, tmp_path):
    """One process after another kills itself, each a random number of instants later."""
    settings, draw, deaths = values(backbone_directory, STATEFUL), random.Random(5), 0
    for facts in (MONDAY, TUESDAY):
        while True:
            instant = draw.randint(1, 40)
            code, words = finish(start(settings, tmp_path / "m", facts, instant=instant))
            if code == 0:
                break
            assert code == -signal.SIGKILL
            deaths += 1
        assert words == "done"
    assert deaths >= 2
    assert result_of(tmp_path / "m") == result_of(whole)


def test_facts_that_are_pending_are_learned_before_others(instants, backbone_directory, tmp_path):
    written = [copy for copy, _ in instants if (copy / "facts.jsonl").exists()]
    place = shutil.copytree(written[0], tmp_path / "m")
    memory = Memory(place)
    assert memory.horizon == 0
    learned = memory.learn(WEDNESDAY)
    assert learned.batches == ("1", "2")
    assert [item.question for item in learned.facts] == [q for q, _ in MONDAY + WEDNESDAY]


def test_interrupted_by_the_user_within_one_process(whole, backbone_directory, tmp_path):
    """The model in memory has learned more than is on disk; it neither answers nor learns on."""
    from holdfast.learning.progress import Progress

    class Impatient(Progress):
        def step(self, phase, task, done, total) -> None:
            if done == total:
                raise KeyboardInterrupt

    memory = Memory(tmp_path / "m", config(backbone_directory, STATEFUL))
    memory.learn(MONDAY)
    reply = memory.reply(TUESDAY[0][0])
    with pytest.raises(KeyboardInterrupt):
        memory.learn(TUESDAY, Impatient())
    assert memory.reply(TUESDAY[0][0]) == reply
    assert memory.learn(TUESDAY).batches == ("2",)
    assert result_of(tmp_path / "m") == result_of(whole)


def test_one_learns_while_another_asks_and_a_third_is_refused(backbone_directory, tmp_path):
    settings = values(backbone_directory, STATEFUL)
    memory = Memory(tmp_path / "m", config(backbone_directory, STATEFUL))
    memory.learn(MONDAY)
    before = memory.reply(MONDAY[0][0])
    child = start(settings, tmp_path / "m", TUESDAY, hold=True)
    assert child[1].recv() == "holding"
    held = contents_of(tmp_path / "m")
    assert Memory(tmp_path / "m").reply(MONDAY[0][0]) == before
    with pytest.raises(HoldfastError, match="another process is writing here") as refusal:
        Memory(tmp_path / "m").learn(WEDNESDAY)
    assert "\n" not in str(refusal.value)
    assert contents_of(tmp_path / "m") == held
    child[0].kill()
    assert finish(child)[0] == -signal.SIGKILL
    assert Memory(tmp_path / "m").learn(WEDNESDAY).batches == ("2", "3")
