"""Where exports are refused, and that they appear whole or not at all."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError
from holdfast.capability.run import trajectory_model
from holdfast.core.files import lock_directory
from holdfast.exports import adapter
from holdfast.exports.asking import Asking
from holdfast.exports.export import export
from tests.exports.exported import configured, export_but_for_the_last_step, learned
from tests.forked import CONTEXT


def test_refusals_are_one_line_and_write_nothing(
    run: Path,
    stream: Path,
    backbone_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
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
        ((run, "bin", out), 'give "peft" or "hf"'),
        ((run, "gguf", out), "give --to hf, then run its python convert_hf_to_gguf.py "),
        ((study, "hf", out), "is a study of many; give one of its trajectories, such as "),
        ((tmp_path, "hf", out), "is no trajectory"),
        ((backbone_directory, "hf", out), "is no trajectory"),
        ((fresh, "hf", out), "has learned nothing yet"),
        ((run, "hf", out, 3), "has learned 2 tasks; --after-task 3"),
        ((run, "hf", out, -1), "--after-task -1"),
        ((run, "peft", out, 0), "is the unmodified backbone"),
        ((run, "hf", out, 0), "is the unmodified backbone"),
        ((run, "hf", taken), "holds mine.txt; choose an empty or a new directory"),
        ((run, "hf", file), "no directory"),
        ((run, "hf", file / "below"), "no directory"),
        ((run, "hf", run), "choose an empty"),
        ((run, "hf", out / "\udcff"), "is no valid Unicode"),
        ((forgetful, "hf", out, 1), "was not kept"),
        ((forgetful, "peft", out), "use --to hf, or learn with keep.factors=true"),
    ]
    for arguments, told in wrong:
        with pytest.raises(HoldfastError) as caught:
            export(*arguments)
        assert told in str(caught.value) and "\n" not in str(caught.value), caught.value
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(HoldfastError, match="pip install peft"):
        export(run, "peft", out)
    assert not out.parent.exists()
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert file.read_text() == "mine"


def test_a_rule_that_nobody_knows_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(adapter, "ALLOCATIONS", {})
    with pytest.raises(HoldfastError, match=r"the rule merge .* use --to hf"):
        export(run, "peft", tmp_path / "out")


@pytest.mark.parametrize("to", ["hf", "peft"])
def test_an_empty_place_will_do_and_a_failure_leaves_it(
    to: Any, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(HoldfastError, match=r"out: cannot be written \(No space left"):
            export(run, to, out)
    assert list(tmp_path.iterdir()) == [out] and not list(out.iterdir())
    export(run, to, out)
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
    export(run, "hf", out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_an_empty_directory_stays_one(run: Path, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out").symlink_to("far")
    export(run, "hf", tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "far" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "name", ["a \"b\" 'c'", "\N{SNOWMAN}\N{GRINNING FACE}", "line\nbreak", "`"]
)
def test_the_card_names_any_place(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: Any, __: Any, folder: Path) -> Asking:
        (folder / "config.json").write_text("{}")
        return Asking(None)

    monkeypatch.setattr("holdfast.exports.export.write_model", nothing)
    out = tmp_path / name
    export(run, "hf", out, checked=False)
    text = (out / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    literals = {n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant)}
    assert str(out) in literals


def test_the_card_shows_a_name_as_it_stands(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.exports.export.write_model", lambda *_: Asking(None))
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    settings = json.loads((copy / "config.json").read_text())
    settings["stream"]["name"] = "my `facts` | *all*\n# of them"
    (copy / "config.json").write_text(json.dumps(settings))
    export(copy, "hf", tmp_path / "out", checked=False)
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "\n# `` my `facts` \\| *all* # of them `` after 2 tasks\n" in text
    assert "| stream | `` my `facts` \\| *all* # of them `` |\n" in text


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
