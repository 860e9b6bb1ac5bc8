"""The results of suites are read back as they were written, without torch."""

from __future__ import annotations

import json

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.results import CapabilityRow, read_capability
from holdfast.results.capability import (
    Score,
    boundary_directory,
    measurement_settings,
    model_after,
    text_score,
    write_result,
)

SUMS = Score(8, 7, 6, 2, 3, {"": {"items": 8, "correct": 3}})


def written(root, after_task, suite, score, model="weights"):
    items = [("sums/1", "1 + 1", "2", {})]
    settings = measurement_settings(model, items, {"shots": 4})
    write_result(boundary_directory(root, after_task), suite, settings, score)


def test_rows_come_by_boundary_and_suite(tmp_path):
    written(tmp_path, 10, "text", text_score(3, 1.5))
    written(tmp_path, 10, "sums", SUMS)
    written(tmp_path, 9, "sums", SUMS, model="others")
    written(tmp_path, 0, "sums", None)  # still being answered
    (tmp_path / "capability" / "notes").mkdir()
    assert read_capability(tmp_path / "nowhere") == []
    rows = read_capability(tmp_path)
    assert [(row.after_task, row.suite) for row in rows] == [
        (9, "sums"),
        (10, "sums"),
        (10, "text"),
    ]
    settings = rows[1].settings
    assert rows[1] == CapabilityRow(10, "sums", 3 / 8, 8, 7, 6, 3, None, settings)
    assert (rows[2].score, rows[2].bits_per_byte, rows[2].items) == (None, 1.5, 3)
    assert (rows[1].value, rows[2].value) == (3 / 8, 1.5)
    # Two models that were asked the same have the same settings.
    assert rows[0].settings == settings and settings["shots"] == 4 and "model" not in settings


@pytest.mark.parametrize(
    "damaged", ["[]", "{}", '{"settings": {}, "suite": "sums", "score": {"items": 1}}']
)
def test_a_damaged_file_is_named(tmp_path, damaged):
    written(tmp_path, 2, "sums", SUMS)
    path = boundary_directory(tmp_path, 2) / "sums.json"
    path.write_text(damaged)
    with pytest.raises(HoldfastError, match=r"after_2/sums\.json: is no result") as refused:
        read_capability(tmp_path)
    assert "\n" not in str(refused.value)


def test_models_after_other_tasks_have_other_fingerprints():
    assert model_after("run", ["a", "b"]) not in (model_after("run", ["a"]), model_after("n", "ab"))


def test_the_file_says_what_was_counted(tmp_path):
    written(tmp_path, 2, "sums", SUMS)
    record = json.loads((boundary_directory(tmp_path, 2) / "sums.json").read_text())
    assert record["suite"] == "sums" and record["versions"].keys() >= {"holdfast", "torch"}
    assert record["score"] == {
        "score": 3 / 8,
        "items": 8,
        "answered": 7,
        "extracted": 6,
        "failed": 2,
        "correct": 3,
        "by_group": {"": {"items": 8, "correct": 3}},
        "bits_per_byte": None,
    }
