"""A model of the hub arrives in the hub's own cache without pickles, and is found offline."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from holdfast.core.errors import HoldfastError
from holdfast.model.load import load_model
from holdfast.model.sources.fetch import fetch, find
from holdfast.model.sources.hub_files import bar, wanted
from tests.model.standins import Server, serve_hub, tiny_model, tiny_tokenizer

OTHERS = ["pytorch_model.bin", "consolidated.safetensors", "onnx/config.json", "custom.py"]


@pytest.fixture
def hub(server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    tiny_model().save_pretrained(tmp_path / "published")
    tiny_tokenizer().save_pretrained(tmp_path / "published")
    files = {path.name: path.read_bytes() for path in (tmp_path / "published").iterdir()}
    serve_hub(server, "me/tiny", {**files, **dict.fromkeys(OTHERS, b"?")})
    return server


def test_what_a_model_is_loaded_from_is_fetched_and_nothing_else(hub, monkeypatch, capfd) -> None:
    assert find("me/tiny") is None
    seen: list[tuple[int, int, str]] = []
    folder = fetch("me/tiny", lambda *args: seen.append(args))
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert seen[0] == (0, 0, "me/tiny: licence mit, 0 MB to download from the hub")
    assert seen[-1] == (size, size, "downloading")
    assert capfd.readouterr().err == ""
    assert find("me/tiny") == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch("me/tiny") == find("me/tiny") == folder
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert find("me/tiny") is None  # a download that was stopped
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert fetch("me/tiny") == folder
    assert load_model("me/tiny")[0].num_parameters() == tiny_model().num_parameters()


def test_a_hub_that_does_not_answer_is_one_line(hub, monkeypatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HoldfastError, match=r"and the hub does not answer; .* `embedded` works"):
        fetch("me/other")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HoldfastError, match=r"the hub is turned off \(HF_HUB_OFFLINE\)"):
        fetch("me/other")


@pytest.mark.parametrize(
    ("code", "words"),
    [("RepoNotFound", "has no such model"), ("GatedRepo", "ask for a login"), ("", "404")],
)
def test_what_the_hub_refuses_is_one_line(hub, code: str, words: str) -> None:
    hub.refused = {"X-Error-Code": code} if code else {}
    with pytest.raises(HoldfastError, match=words) as raised:
        fetch("me/other")
    assert "\n" not in str(raised.value)


def test_a_bar_does_not_go_on_from_one_that_is_gone() -> None:
    """Python may give it the same id."""
    seen: list[int] = []
    counting = bar(10, lambda done, *_: seen.append(done))
    for _ in range(3):
        counting(unit="B").update(4)
    assert seen == [4, 4, 4]


def test_which_files_are_wanted() -> None:
    shards = ["model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    tokenizers = ["special_tokens_map.json", "tokenizer.model", "merges.txt"]
    assert all(map(wanted, shards + tokenizers))
    assert not any(map(wanted, ["tokenizer_config.py", "vocab.pkl", "README.md"]))
