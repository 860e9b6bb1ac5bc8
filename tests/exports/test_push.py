"""Uploads to a stand-in for the hub, by the library's own requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError
from holdfast.exports.push import push
from tests.exports.hub import Hub, standing_in


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    with standing_in() as one:
        # The library reads the environment once, when it is imported.
        monkeypatch.setattr(constants, "ENDPOINT", one.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        yield one


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
    to: str, holdfast: Any, hub: Hub, run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = holdfast("export", run, out, "--to", to, "--push", "me/keeper", "--private")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[1:] == [str(out), f"{hub.endpoint}/me/keeper"]
    assert hub.files == {"me/keeper": contents(out)} and len(contents(out)) > 5
    assert hub.created[0]["visibility"] == "private" and hub.tokens == {"Bearer hf_mine"}
    text = (out / "README.md").read_text()
    assert 'from_pretrained("me/keeper")' in text and str(out) not in text


def test_a_repository_that_exists_is_written_to(hub: Hub, folder: Path) -> None:
    hub.status = 409
    assert push(folder, "me/keeper") == f"{hub.endpoint}/me/keeper"
    assert hub.files == {"me/keeper": contents(folder)}
    assert hub.created[0].get("visibility") is None


@pytest.mark.parametrize(
    ("status", "refused", "told"),
    [
        (401, None, r"the hub knows no token of yours \(401\); run hf auth login"),
        (200, 403, r"your token may not write there \(403\)"),
        (200, 413, r"the hub refused it \(413: "),
    ],
)
def test_a_refusal_is_one_line_that_says_how_to_go_on(
    status: int, refused: int | None, told: str, hub: Hub, folder: Path
) -> None:
    hub.status, hub.refused = status, refused
    with pytest.raises(HoldfastError, match=told) as caught:
        push(folder, "me/keeper", private=True)
    line = str(caught.value)
    assert "\n" not in line
    assert line.endswith(f"is written, and uploads with: hf upload me/keeper '{folder}' --private")
    assert contents(folder) and not hub.files


def test_no_network(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

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
    for name in ("a b", "me/a/b", "-x", "me/a..b", ""):
        done = holdfast("export", run, tmp_path / "out", "--to", "hf", f"--push={name}")
        assert done.status == 2 and len(done.err.splitlines()) == 1, done.err
        assert "is no name of a repository" in done.err
    alone = holdfast("export", run, tmp_path / "out", "--to", "hf", "--private")
    assert alone.status == 2 and "give --push REPO too" in alone.err
    assert not list(tmp_path.iterdir())
