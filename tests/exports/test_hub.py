"""Uploads to the hub, and revisions of a backbone in its cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi, RepoUrl, constants
from huggingface_hub.errors import HfHubHTTPError

from holdfast import HoldfastError
from holdfast.backbone.load import load_backbone, load_shape, load_tokenizer
from holdfast.backbone.model import Backbone
from holdfast.exports.push import push
from tests.exports.exported import facts
from tests.tiny import byte_tokenizer, tiny_llama

NAME, NEW, OLD = "nobody/something", "1" * 40, "2" * 40


class Hub:
    """Stands in for the library's requests: what was created, and the files that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        monkeypatch.setattr(HfApi, "create_repo", self.create)
        monkeypatch.setattr(HfApi, "upload_folder", self.upload)

    def create(self, name: str, **options: Any) -> Any:
        self.created.append({"name": name, **options})
        return RepoUrl(f"https://huggingface.co/{name}")

    def upload(self, *, repo_id: str, folder_path: Path, **_: Any) -> None:
        self.files |= contents(folder_path)


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("to", ["hf", "peft"])
def test_every_file_arrives_and_the_card_names_the_repository(
    to: str, holdfast: Any, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub, out = Hub(monkeypatch), tmp_path / "out"
    done = holdfast("export", run, out, "--to", to, "--push", "me/keeper", "--private")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[1:] == [str(out), "https://huggingface.co/me/keeper"]
    assert hub.files == contents(out) and len(hub.files) > 5
    assert hub.created == [{"name": "me/keeper", "private": True, "exist_ok": True}]
    text = (out / "README.md").read_text()
    assert 'from_pretrained("me/keeper"' in text and str(out) not in text


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, r"the hub refused it \(401: so it is\); check the name, and that your token may"),
        (None, "the hub was not reached"),
    ],
)
def test_a_refusal_is_one_line_that_says_how_to_go_on(
    status: int | None, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        assert status is not None
        reply = httpx.Response(status, request=httpx.Request("POST", "https://huggingface.co"))
        raise HfHubHTTPError("so it is", response=reply, server_message="so it is")

    if status is not None:
        monkeypatch.setattr(HfApi, "create_repo", refuse)  # else this process is offline
    with pytest.raises(HoldfastError, match=told) as caught:
        push(tmp_path / "my export", "me/keeper", private=True)
    line = str(caught.value)
    again = f"hf upload me/keeper '{tmp_path / 'my export'}' --private"
    assert "\n" not in line and line.endswith(f"is written, and uploads with: {again}")


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
    kept = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    for commit, ref, width in ((NEW, "main", 32), (OLD, "older", 16)):
        (kept / "refs" / ref).write_text(commit)
        model, tokenizer = tiny_llama(width=width, layers=1), byte_tokenizer()
        if commit == NEW:
            tokenizer.add_tokens(["more"])
            model.resize_token_embeddings(258, mean_resizing=False)
        model.save_pretrained(kept / "snapshots" / commit)
        tokenizer.save_pretrained(kept / "snapshots" / commit)
    return kept / "snapshots"


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
