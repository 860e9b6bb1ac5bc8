"""What is exported and where, what is refused, and that an export is whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from holdfast import HoldfastError
from holdfast.capability.run import trajectory_model
from holdfast.core.files import lock_directory
from holdfast.exports import formats
from holdfast.exports.export import boundary, export
from holdfast.learning.recorded import Recorded
from tests.exports.exported import configured, export_but_for_the_last_step, learned
from tests.forked import CONTEXT
from tests.refused import line_of


def test_refusals_are_one_line_and_write_nothing(
    run: Path, stream: Path, backbone_directory: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    (study / "cells" / "vanilla-41").mkdir(parents=True)
    (study / "cells" / "vanilla-41" / "config.json").write_text("{}")
    (study / "study.json").write_text("{}")
    taken, file = tmp_path / "taken", tmp_path / "file"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    file.write_text("mine")
    thrifty = configured(
        backbone_directory, stream, "merge", keep={"factors": False, "snapshot_every": 1}
    )
    forgetful = learned(tmp_path / "forgetful", thrifty)
    fresh = tmp_path / "fresh"
    shutil.copytree(run, fresh)
    shutil.rmtree(fresh / "state")
    (fresh / "matrix.csv").unlink()
    out = tmp_path / "nowhere" / "out"
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((run, "bin", out), 'give "peft", "hf" or "gguf"'),
        ((study, "hf", out), "is a study of many; give one of its trajectories, such as "),
        ((tmp_path, "hf", out), "is no trajectory"),
        ((backbone_directory, "hf", out), "is no trajectory"),
        ((fresh, "hf", out), "has learned nothing yet"),
        ((run, "hf", out, 3), "has learned 2 tasks; --after-task 3"),
        ((run, "hf", out, -1), "--after-task -1"),
        ((run, "hf", out, 0), "is the unmodified backbone"),
        ((run, "hf", taken), "holds mine.txt; choose an empty or a new directory"),
        ((run, "hf", file), "no directory"),
        ((run, "hf", file / "below"), "no directory"),
        ((run, "hf", run), "choose an empty"),
        ((forgetful, "hf", out, 1), "was not kept"),
        ((forgetful, "peft", out), "use --to hf, or learn with keep.factors=true"),
    ]
    for arguments, message in wrong:
        assert message in line_of(export, *arguments)
    assert not out.parent.exists()
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert file.read_text() == "mine"


def test_a_rule_that_nobody_knows_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(formats, "ALLOCATIONS", {})
    with pytest.raises(HoldfastError, match=r"the rule merge .* use --to hf"):
        export(run, "peft", tmp_path / "out")


def test_an_empty_place_will_do_and_a_failure_leaves_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(HoldfastError, match=r"out: cannot be written \(No space left"):
            export(run, "hf", out, checked=False)
    assert list(tmp_path.iterdir()) == [out] and not list(out.iterdir())
    export(run, "hf", out, checked=False)
    assert list(tmp_path.iterdir()) == [out]
    assert not list(out.glob(".*"))
    assert {path.stat().st_mode & 0o044 for path in out.iterdir()} == {out.stat().st_mode & 0o044}


def test_a_killed_export_leaves_nothing_that_looks_whole(run: Path, tmp_path: Path) -> None:
    """Killed when all but the last step is done; the next one clears up after it."""
    out = tmp_path / "out"
    killed = CONTEXT.Process(target=export_but_for_the_last_step, args=(run, out))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not out.exists()
    assert (tmp_path / ".out.part" / "new" / "model.safetensors").exists()
    export(run, "hf", out, checked=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_an_empty_directory_stays_one(run: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out").symlink_to("far")
    export(run, "hf", tmp_path / "out", checked=False)
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "far" / "model.safetensors").exists()


def test_two_exports_to_one_place_do_not_mix(run: Path, tmp_path: Path) -> None:
    with (
        lock_directory(tmp_path / ".out.part"),
        pytest.raises(HoldfastError, match="another process"),
    ):
        export(run, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(holdfast: Any, run: Path, tmp_path: Path) -> None:
    outcome = holdfast("export", run, "--to", "hf", tmp_path / "out", "--after-task", 1)
    assert (outcome.status, outcome.err) == (0, "")
    checked, place = outcome.out.splitlines()
    pattern = (
        r"checked: logits of 3 sequences equal to (1e-\d+|the last bit), 3 of 3 answers the same"
    )
    assert re.fullmatch(pattern, checked) and place == str(tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").exists()
    again = holdfast("export", run, "--to", "hf", tmp_path / "out")
    assert again.status == 2 and len(again.err.splitlines()) == 1
    assert holdfast("export", run, tmp_path / "other").status == 2


def test_a_configuration_edited_after_the_run_is_refused(run: Path, tmp_path: Path) -> None:
    """Another alpha would be other weights."""
    edited = Path(shutil.copytree(run, tmp_path / "edited"))
    values = json.loads((edited / "config.json").read_text())
    values["config"]["lora"]["alpha"] /= 10
    (edited / "config.json").write_text(json.dumps(values))
    with pytest.raises(HoldfastError, match=r"edited after the trajectory began \(lora\.alpha: "):
        export(edited, "hf", tmp_path / "out")
    with pytest.raises(HoldfastError, match=r"lora\.alpha"):
        trajectory_model(edited, None)
    assert not (tmp_path / "out").exists()


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
    message = line_of(export, run, "hf", tmp_path / "out", before="tue")
    assert "after task 1 was not kept" in message and "give --after-task 2" in message
    assert "keep.factors=true, or a keep.snapshot_every above 1" in message
    for given, message in (
        ({"before": "1"}, "--before 1 is the unmodified backbone"),
        ({"after": "3"}, '--after "3": is no task from 1 to 2'),
        ({"after": "0"}, '--after "0": is no task from 1 to 2'),
        ({"after": "teu"}, "no learned task has this name; did you mean tue?"),
        ({"after": "tue", "before": "1"}, "give one of them"),
    ):
        assert message in line_of(export, run, "hf", tmp_path / "out", **given)
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
    weights = {}
    for task in (1, 2):
        export(run, "hf", tmp_path / f"{task}", task, checked=False)
        weights[task] = load_file(tmp_path / f"{task}" / "model.safetensors")
    for option, value, task in (("before", "wed", 2), ("after", "mon", 1), ("after", 2, 2)):
        out, given = tmp_path / f"{option}-{value}", (f"--{option}", value)
        done = holdfast("export", run, out, "--to", "hf", *given, "--no-check")
        assert done.status == 0, done.err
        ours = load_file(out / "model.safetensors")
        assert all(ours[name].equal(tensor) for name, tensor in weights[task].items())
    assert not all(weights[1][name].equal(tensor) for name, tensor in weights[2].items())
    two_ways = holdfast("export", run, tmp_path / "out", "--to", "hf", "--after", "1")
    assert (
        two_ways.status == 2 and "is the name of one task and the number of another" in two_ways.err
    )


def test_what_is_kept_is_named(backbone_directory: Path, stream: Path, tmp_path: Path) -> None:
    settings = configured(backbone_directory, stream, "vanilla", keep={"factors": False})
    recorded = Recorded.read(learned(tmp_path / "vanilla", settings))
    message = "give --after-task 2; keep.factors=true keeps more"
    with pytest.raises(HoldfastError, match=message):
        recorded.boundary(1)
    whole = configured(backbone_directory, stream, "merge", keep={"factors": False})
    assert Recorded.read(learned(tmp_path / "whole", whole)).kept == [1, 2]
