"""What the measurement of a memory's verdicts computes."""

from __future__ import annotations

import pytest

from benchmarks.knowing import auroc, calibration_error, untaught


def test_auroc_counts_pairs():
    assert auroc([3.0, 2.0], [1.0, 0.0]) == 1
    assert auroc([0.0], [1.0, 2.0]) == 0
    assert auroc([1.0, 3.0], [2.0, 3.0]) == pytest.approx((0 + 0 + 1 + 0.5) / 4)


def test_calibration_error_is_the_gap_of_each_bin_by_its_size():
    assert calibration_error([1.0, 1.0], [True, True]) == 0
    assert calibration_error([0.95, 0.95, 0.95, 0.05], [True, True, False, False]) == pytest.approx(
        (abs(2 - 2.85) + 0.05) / 4
    )


def test_three_hundred_questions_that_nobody_taught():
    taught = "Where is the spare key of the workshop?"
    kinds = untaught([taught])
    asked = [question for questions in kinds.values() for question in questions]
    assert len(asked) == len(set(asked)) == 300
    assert taught not in asked
