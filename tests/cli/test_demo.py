"""`holdfast demo`: what it accepts, and its first task on a tiny model; CI runs all of it."""

from __future__ import annotations

import pytest

from holdfast.cli.demo import _accepted
from holdfast.core.config import apply_overrides
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix
from tests.results.matrices import dense

FADING = [[0.0] * task + [1.0] for task in range(6)]  # a sixth is kept
LASTING = [[1.0] * task for task in range(1, 7)]
LOSING = [*LASTING[:5], [0.95] + [1.0] * 5]


@pytest.mark.parametrize(
    ("naive", "composed", "lasting", "met"),
    [
        (FADING, LOSING, LASTING, True),
        (FADING, LASTING, LOSING, False),  # the composed one before the lasting one
        (FADING[:3], LOSING[:3], LASTING[:3], False),  # three times as much is not five times
        ([*FADING[:5], [0.0] * 6], LOSING, LASTING, False),  # a task not learned
    ],
)
def test_what_is_accepted(naive, composed, lasting, met, capsys):
    assert _accepted(*map(dense, (naive, composed, lasting))) is met
    assert capsys.readouterr().out.startswith(f"acceptance: {'met' if met else 'not met'}: ")


def test_a_short_demo_is_not_judged_and_asking_again_is_free(
    holdfast, settings, monkeypatch, tmp_path
):
    composed = apply_overrides(recipe("demo"), settings)
    few = [*settings, "sampling.general=3", "optim.cooldown=1", "optim.max_steps=6"]
    lasting = {**apply_overrides(recipe("lasting"), few), "method": "kfac_merge"}
    recipes = {"demo": composed, "lasting": lasting}
    monkeypatch.setattr("holdfast.cli.demo.recipe", recipes.__getitem__)
    monkeypatch.setattr("holdfast.cli.demo.STREAM", ())
    monkeypatch.setattr("holdfast.cli.demo.REPLAY", ())
    # The chat model's part runs in CI's demo, and by tests/memory/test_real_lesson.py.
    monkeypatch.setattr("holdfast.cli.demo._show_memory", lambda out: None)
    place = tmp_path / "demo"
    first = holdfast("demo", "--out", place, "--tasks", 2)
    assert first.status == 0, first.err
    assert first.out.splitlines()[-1] == "acceptance: judged after all 3 tasks only"
    for tag in ("vanilla", composed["method"], "kfac_merge"):
        assert RecallMatrix.load(place / tag / "matrix.csv").observed_rows == (0, 1, 2)
        assert f"{tag}: recall in per cent" in first.out
        assert f"{tag}: task 2 of 2 in " in first.err
        assert tag in (place / "report.html").read_text()
    for kind in ("png", "pdf"):
        assert (place / f"demo.{kind}").stat().st_size > 1000
    # What is on disk is shown up to what is asked for.
    again = holdfast("demo", "--out", place, "--tasks", 1)
    assert again.status == 0 and again.err == ""
    assert "           1 " in again.out and "           2 " not in again.out
