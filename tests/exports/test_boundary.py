"""Any kept boundary, by number and by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from holdfast import HoldfastError
from holdfast.exports.boundary import boundary
from holdfast.exports.export import export
from holdfast.learning.recorded import Recorded
from tests.exports.exported import configured, learned


def test_a_task_is_named(backbone_directory: Path, tmp_path: Path) -> None:
    stream = tmp_path / "facts.jsonl"
    stream.write_text(
        '{"task": "1", "question": "red", "answer": "a"}\n'
        '{"task": "tue", "question": "sky", "answer": "b"}\n'
    )
    keep = {"factors": False, "snapshot_every": 1}
    settings = configured(backbone_directory, stream, "merge", keep=keep)
    run = learned(tmp_path / "run", settings)
    recorded = Recorded.read(run)
    last = recorded.last
    for given in ({"after": "tue"}, {"after": "2"}, {"after": 2}, {"after_task": 2}, {}):
        assert boundary(recorded, **given) == last  # type: ignore[arg-type]
    with pytest.raises(HoldfastError) as caught:
        export(run, "hf", tmp_path / "out", before="tue")
    told = str(caught.value)
    assert "after task 1 was not kept" in told and "give --after-task 0 or 2" in told
    assert "keep.factors=true, or a keep.snapshot_every above 1" in told
    for given, told in (
        ({"before": "1"}, "--before 1 is the unmodified backbone"),
        ({"after": "3"}, '--after "3": is no task from 1 to 2'),
        ({"after": "0"}, '--after "0": is no task from 1 to 2'),
        ({"after": "teu"}, "no learned task has this name; did you mean tue?"),
        ({"after": "tue", "before": "1"}, "give one of them"),
    ):
        with pytest.raises(HoldfastError) as caught:
            export(run, "hf", tmp_path / "out", **given)  # type: ignore[arg-type]
        assert told in str(caught.value) and "\n" not in str(caught.value), caught.value
    assert not (tmp_path / "out").exists()


def test_before_and_after_are_the_models_of_that_time(
    holdfast: Any, backbone_directory: Path, tmp_path: Path
) -> None:
    """Three tasks, the second named 1, which is also the number of the first."""
    stream = tmp_path / "facts.jsonl"
    names = ("mon", "1", "wed")
    stream.write_text(
        "".join(f'{{"task": "{name}", "question": "{name}?", "answer": "a"}}\n' for name in names)
    )
    run = learned(tmp_path / "run", configured(backbone_directory, stream, "merge"), 3)
    for option, value, task in (("before", "wed", 2), ("after", "mon", 1), ("after", 2, 2)):
        done = holdfast("export", run, tmp_path / "out", "--to", "hf", f"--{option}", value)
        assert done.status == 0, done.err
        export(run, "hf", tmp_path / "same", task)
        ours, theirs = (
            AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict()
            for name in ("out", "same")
        )
        assert all(ours[name].equal(theirs[name]) for name in ours)
        for name in ("out", "same"):
            for path in (tmp_path / name).iterdir():
                path.unlink()
    two_ways = holdfast("export", run, tmp_path / "out", "--to", "hf", "--after", "1")
    assert two_ways.status == 2 and "is the name of task 2 and the number of task" in two_ways.err


def test_what_is_kept_is_named(backbone_directory: Path, stream: Path, tmp_path: Path) -> None:
    for method, keep, told in (
        ("merge", {"snapshot_every": 1}, "give --after-task 0 or 2; keep.factors=true, or"),
        ("vanilla", {}, "give --after-task 0 or 2; keep.factors=true keeps more"),
    ):
        settings = configured(backbone_directory, stream, method, keep={"factors": False, **keep})
        recorded = Recorded.read(learned(tmp_path / method, settings))
        with pytest.raises(HoldfastError, match=told):
            recorded.boundary(1)
    whole = configured(backbone_directory, stream, "merge", keep={"factors": False})
    assert Recorded.read(learned(tmp_path / "whole", whole)).kept == [0, 1, 2]
