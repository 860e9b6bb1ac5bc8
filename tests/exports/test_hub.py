"""Uploads to the hub, and revisions of a backbone in its cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from holdfast import HoldfastError
from holdfast.exports.sharing import push
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone, load_shape, load_tokenizer
from tests.exports.exported import facts
from tests.exports.hub import Hub, standing_in
from tests.tiny import byte_tokenizer, tiny_llama

NAME, NEW, OLD = "nobody/something", "1" * 40, "2" * 40


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with standing_in() as stand_in:
        # The library reads the environment once, when it is imported.
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        yield stand_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "my export"
    (place / "base").mkdir(parents=True)
    (place / "README.md").write_text("card")
    (place / "base" / "config.json").write_text("{}")
    return place


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("to", ["hf", "peft"])
def test_every_file_arrives_and_the_card_names_the_repository(
    to: str, holdfast: Any, hub: Hub, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    learned = request.getfixturevalue("run" if to == "hf" else "taught")
    done = holdfast("export", learned, out, "--to", to, "--push", "me/keeper", "--private")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[1:] == [str(out), f"{hub.endpoint}/me/keeper"]
    assert hub.files == {"me/keeper": contents(out)} and len(contents(out)) > 5
    assert hub.created[0]["visibility"] == "private" and hub.tokens == {"Bearer hf_mine"}
    text = (out / "README.md").read_text()
    fetch = "from_pretrained" if to == "hf" else "snapshot_download"
    assert f'{fetch}("me/keeper"' in text and str(out) not in text


def test_a_repository_that_exists_is_written_to(hub: Hub, folder: Path) -> None:
    hub.status = 409
    assert push(folder, "me/keeper") == f"{hub.endpoint}/me/keeper"
    assert hub.files == {"me/keeper": contents(folder)}
    assert hub.created[0].get("visibility") is None


@pytest.mark.parametrize(
    ("status", "refused", "message"),
    [
        (401, None, r"the hub refused it \(401: .*check the name, and that your token may write"),
        (200, 413, r"the hub refused it \(413: "),
    ],
)
def test_a_refusal_is_one_line_that_says_how_to_go_on(
    status: int, refused: int | None, message: str, hub: Hub, folder: Path
) -> None:
    hub.status, hub.refused = status, refused
    with pytest.raises(HoldfastError, match=message) as caught:
        push(folder, "me/keeper", private=True)
    line = str(caught.value)
    assert "\n" not in line
    assert line.endswith(f"is written, and uploads with: hf upload me/keeper '{folder}' --private")
    assert contents(folder) and not hub.files


def test_no_network(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HoldfastError, match="the hub was not reached") as caught:
        push(folder, "me/keeper")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HoldfastError, match=r"the hub was not reached .*offline"):
        push(folder, "me/keeper")


def test_what_is_no_repository_is_refused_before_anything_is_written(
    holdfast: Any, run: Path, tmp_path: Path
) -> None:
    for name in ("a b", "me/a/b", ""):
        done = holdfast("export", run, tmp_path / "out", "--to", "hf", f"--push={name}")
        assert done.status == 2 and len(done.err.splitlines()) == 1, done.err
        assert "is no name of a repository" in done.err
    alone = holdfast("export", run, tmp_path / "out", "--to", "hf", "--private")
    assert alone.status == 2 and "give --push REPO too" in alone.err
    assert not list(tmp_path.iterdir())


def fingerprint(name: str, revision: str | None = None) -> str:
    return load_backbone(Backbone.Config(name=name, revision=revision, device="cpu")).fingerprint


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of the hub's cache; the newer revision is wider and knows one more token."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    cache = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    (cache / "refs").mkdir(parents=True)
    for commit, ref, width in ((NEW, "main", 32), (OLD, "older", 16)):
        (cache / "refs" / ref).write_text(commit)
        model, tokenizer = tiny_llama(width=width, layers=1), byte_tokenizer()
        if commit == NEW:
            tokenizer.add_tokens(["more"])
            model.resize_token_embeddings(258, mean_resizing=False)
        model.save_pretrained(cache / "snapshots" / commit)
        tokenizer.save_pretrained(cache / "snapshots" / commit)
    return cache / "snapshots"


def test_a_revision_is_loaded_recorded_and_named(
    snapshots: Path, holdfast: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for revision, commit, tokens, width in (
        (None, NEW, 258, 64), ("older", OLD, 257, 32), (OLD, OLD, 257, 32),
    ):  # fmt: skip
        assert fingerprint(NAME, revision) == fingerprint(str(snapshots / commit))
        assert len(load_tokenizer(NAME, revision)) == tokens
        assert load_shape(NAME, revision).config.intermediate_size == width
    with pytest.raises(HoldfastError, match=r"revision = nowhere: no causal language model"):
        fingerprint(NAME, "nowhere")
    monkeypatch.chdir(tmp_path)
    settings = (
        "method=merge", f"stream.name={facts(tmp_path)}", "template.overlong=drop",
        f"backbone.name={NAME}", "lora.rank=2", "optim.epochs=1", "optim.min_steps=0",
        "evaluation.max_new_tokens=24", "keep.factors=true", "evaluation.rows=horizon",
    )  # fmt: skip
    old = (*settings, "backbone.revision=older")
    for words in (
        ("run", "demo", *old, "--dry-run"),
        ("run", "demo", *old, "--out", "run", "--tasks", 1),
        ("export", "run", "adapter", "--to", "peft"),  # which loads it so, to compare
    ):
        done = holdfast(*words)
        assert done.status == 0, done.err
    assert "checked: logits of" in done.out
    recorded = json.loads(Path("run/config.json").read_text())
    assert recorded["config"]["backbone"]["revision"] == "older"
    assert recorded["backbone"]["fingerprint"] == fingerprint(NAME, "older")
    assert json.loads(Path("adapter/adapter_config.json").read_text())["revision"] == "older"
    other = holdfast("run", "demo", *settings, "--out", "run", "--tasks", 2)
    assert other.status == 2 and "backbone" in other.err


def test_what_has_no_revisions_is_refused(backbone_directory: Path) -> None:
    for name in ("embedded", str(backbone_directory)):
        with pytest.raises(HoldfastError, match=r"backbone\.revision = v1: .* has no revisions"):
            load_tokenizer(name, "v1")
