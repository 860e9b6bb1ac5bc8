"""Revisions of the hub: a local stand-in of its cache, read by a process that is offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.backbone.load import load_backbone, load_tokenizer
from holdfast.backbone.model import Backbone
from holdfast.core.errors import HoldfastError
from tests.exports.exported import facts
from tests.tiny import byte_tokenizer, tiny_llama

NAME, NEW, OLD = "nobody/something", "1" * 40, "2" * 40

# What a user does, one command after another.
SCRIPT = """
import json, sys
from pathlib import Path
from typer.testing import CliRunner
from holdfast import RunConfig
from holdfast.backbone.load import load_backbone, load_shape, load_tokenizer
from holdfast.backbone.model import Backbone
from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError

name, commit, facts = sys.argv[1:]
found = {}
for revision in (None, "older", commit, "nowhere"):
    config = Backbone.Config(name=name, revision=revision, device="cpu")
    try:
        found[str(revision)] = [
            load_backbone(config).fingerprint,
            len(load_tokenizer(name, revision)),
            load_shape(name, revision).config.intermediate_size,
        ]
    except HoldfastError as error:
        found[str(revision)] = str(error)

def said(*words):
    result = CliRunner().invoke(app, [*words])
    return [result.exit_code, result.output]

settings = [
    "method=merge", f"stream.name={facts}", "template.overlong=drop", f"backbone.name={name}",
    "lora.rank=2", "optim.epochs=1", "optim.min_steps=0", "evaluation.max_new_tokens=24",
    "keep.factors=true", "evaluation.rows=horizon",
]
old = [*settings, "backbone.revision=older"]
found["plan"] = said("run", "demo", *old, "--dry-run")
found["run"] = said("run", "demo", *old, "--out", "run", "--tasks", "1")
found["other"] = said("run", "demo", *settings, "--out", "run", "--tasks", "2")
found["export"] = said("export", "run", "adapter", "--to", "peft")
Path("found.json").write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the commands said; the newer revision is wider and knows one more token."""
    folder = tmp_path_factory.mktemp("hub")
    kept = folder / "home" / "hub" / f"models--{NAME.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    for commit, ref, width in ((NEW, "main", 32), (OLD, "older", 16)):
        (kept / "refs" / ref).write_text(commit)
        model, tokenizer = tiny_llama(width=width, layers=1), byte_tokenizer()
        if commit == NEW:
            tokenizer.add_tokens(["more"])
            model.resize_token_embeddings(258, mean_resizing=False)
        model.save_pretrained(kept / "snapshots" / commit)
        tokenizer.save_pretrained(kept / "snapshots" / commit)
    environment = {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, NAME, OLD, str(facts(folder))],
        cwd=folder,
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    heard: dict[str, object] = json.loads((folder / "found.json").read_text())
    heard["folder"] = str(folder)
    for commit in (NEW, OLD):
        local = Backbone.Config(name=str(kept / "snapshots" / commit), device="cpu")
        heard[f"local {commit}"] = load_backbone(local).fingerprint
    return heard


def test_model_tokenizer_and_shape_are_those_of_the_revision(found: dict[str, object]) -> None:
    assert found["None"] == [found[f"local {NEW}"], 258, 64]
    assert found["older"] == found[OLD] == [found[f"local {OLD}"], 257, 32]
    assert str(found["nowhere"]).startswith(
        f"backbone.name = {NAME} at backbone.revision = nowhere: no causal language model could be"
    )


def test_a_run_records_it_and_is_not_continued_on_another(found: dict[str, object]) -> None:
    folder = Path(str(found["folder"]))
    for command in ("plan", "run", "export"):
        code, words = found[command]  # type: ignore[misc]
        assert code == 0, words
    recorded = json.loads((folder / "run" / "config.json").read_text())
    assert recorded["config"]["backbone"]["revision"] == "older"
    assert recorded["backbone"]["fingerprint"] == found[f"local {OLD}"]
    code, words = found["other"]  # type: ignore[misc]
    assert code == 2 and "backbone" in words


def test_an_adapter_names_the_revision_of_its_base(found: dict[str, object]) -> None:
    """The export has loaded it so, to compare."""
    assert "checked: logits of" in found["export"][1]  # type: ignore[index]
    folder = Path(str(found["folder"])) / "adapter"
    assert json.loads((folder / "adapter_config.json").read_text())["revision"] == "older"
    card = (folder / "README.md").read_text()
    assert f'from_pretrained("{NAME}", revision="older", dtype=' in card


def test_what_has_no_revisions_is_refused(backbone_directory: Path) -> None:
    for name in ("embedded", str(backbone_directory)):
        with pytest.raises(HoldfastError, match=r"backbone\.revision = v1: .* has no revisions"):
            load_tokenizer(name, "v1")
