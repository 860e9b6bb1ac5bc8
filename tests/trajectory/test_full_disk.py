"""A disk that is full at any write: one line, the last commit whole, and no lasting harm."""

from __future__ import annotations

import errno
import shutil

import pytest

from holdfast import HoldfastError, Trajectory
from tests.trajectory.instants import WRITES, heard
from tests.trajectory.outcome import contents_of, result_of, tasks_logged

METHOD = "si_replay_merge"
SECTIONS = {
    "stream": {"items_per_task": 2},
    "sampling": {"samples": 2},
    "keep": {"snapshot_every": 2},
}

pytestmark = pytest.mark.usefixtures("quick")


def learn_until_full(trajectory: Trajectory, horizon: int, failing: int) -> str | None:
    """Let the n-th write fail; the error, None when there was no such write."""
    passed = 0

    def hear(name: str) -> None:
        nonlocal passed
        if name in WRITES:
            passed += 1
            if passed == failing:
                raise OSError(errno.ENOSPC, "No space left on device")

    try:
        with heard(hear):
            trajectory.advance(horizon)
    except HoldfastError as error:
        return str(error)
    assert passed < failing, "a write failed and nobody was told"
    return None


def test_full_at_every_write(config, undisturbed, tmp_path):
    """It fails at the next write of the second task, whichever that is."""
    before = undisturbed(METHOD, 1, **SECTIONS)
    settings = config(METHOD, **SECTIONS)
    failing, committed = 0, []
    while True:
        failing += 1
        place = shutil.copytree(before, tmp_path / str(failing))
        trajectory = Trajectory(settings, place)
        message = learn_until_full(trajectory, 2, failing)
        if message is None:
            break
        assert "No space left on device" in message
        assert message.startswith(str(place))
        assert "\n" not in message
        now = Trajectory(settings, place)
        committed.append(now.horizon)
        assert trajectory.horizon == now.horizon
        if now.horizon == 1:
            assert result_of(place) == result_of(before)
        # There is room again, for the same object and for one of another process.
        (trajectory if failing % 2 else now).advance(2)
        assert result_of(place) == result_of(undisturbed(METHOD, 2, **SECTIONS))
        assert tasks_logged(place) == [1, 2]
        assert contents_of(place).keys() == contents_of(undisturbed(METHOD, 2, **SECTIONS)).keys()
    # config, factors, copy, anchor, commit, matrix, metrics: three each; the log has no rename.
    assert len(committed) == 3 * 7 + 2
    # The last two files follow from the commit: the second task was safe by then.
    assert committed == [1] * (3 * 5 + 2) + [2] * (3 * 2)
