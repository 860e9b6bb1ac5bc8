"""A search by real processes, killed for good; tests/studies kills one at every moment, inline."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.real_search import (
    assert_same_bytes,
    await_tasks,
    begun,
    finish,
    undisturbed,
    write_recipe,
)


def test_killed_while_it_learns_the_search_ends_with_the_same_bytes(
    tmp_path: Path, tiny_directory: Path
) -> None:
    recipe = write_recipe(tmp_path / "small.yaml", tiny_directory, (1, 3))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed(recipe, whole)
    process = begun(recipe, killed, "--workers", "1")
    await_tasks(killed, process, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (killed / "leaderboard.csv").exists()
    finish(begun(recipe, killed, "--workers", "1"))
    assert_same_bytes(whole, killed)
