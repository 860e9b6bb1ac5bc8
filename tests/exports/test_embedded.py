"""Exports of the embedded backbone, which no hub has, and the names of its tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import holdfast
from holdfast.exports import gguf as converting
from holdfast.exports.export import export
from tests.exports.exported import configured, learned
from tests.exports.test_export import examples, pasted


@pytest.fixture(scope="module")
def taught(stream: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("embedded") / "run"
    return learned(place, configured("embedded", stream, "replay_merge"), 1)  # type: ignore[arg-type]


def test_the_card_of_an_adapter_imports_nothing_of_holdfast(
    taught: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The backbone lies beside the adapter, as it was."""
    monkeypatch.chdir(tmp_path)
    export(taught, "peft", Path("out"))
    codes = examples(Path("out"))
    assert not [code for code in codes if "holdfast" in code]
    asked, chatted = pasted(codes, tmp_path)
    assert asked == chatted and asked.startswith("Question: Who keeps the lighthouse?\nAnswer:")
    package = Path(holdfast.__file__).parent / "backbone" / "embedded"
    beside = load_file(tmp_path / "out" / "base" / "model.safetensors")
    own = load_file(package / "model.safetensors")
    assert own.keys() == beside.keys() and all(own[name].equal(beside[name]) for name in own)
    settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(tmp_path / "out" / "base")


def test_a_card_on_the_hub_fetches_the_backbone_with_the_adapter(
    taught: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No path of this machine is published."""
    out = tmp_path / "out"
    export(taught, "peft", out, repository="me/keeper")
    (asked, _) = examples(out)
    for path in (out / "README.md", out / "adapter_config.json"):
        assert str(tmp_path) not in path.read_text()
    fetched = "import huggingface_hub as hub\n"
    fetched += f"hub.snapshot_download = {{'me/keeper': {str(out)!r}}}.get\n"
    (printed,) = pasted([fetched + asked], tmp_path)
    assert printed.startswith("Question: Who keeps the lighthouse?\nAnswer:")


def test_llama_cpp_knows_every_tensor(taught: Path, tmp_path: Path) -> None:
    """By the table of its converter; the card says that it does not know the tokenizer."""
    gguf: Any = pytest.importorskip("gguf", reason="pip install gguf")
    export(taught, "hf", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    architecture = getattr(gguf.MODEL_ARCH, config["model_type"].upper())
    known = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    names = {name: known.get_name(name, (".weight", ".bias")) for name in tensors}
    assert len(names) == len(set(names.values())) == 46 and None not in names.values()
    assert "not its tokenizer" in (tmp_path / "out" / "README.md").read_text()


def test_the_commands_leave_a_tokenizer_that_puts_nothing_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the shell runs them, but for the converter."""
    from transformers import AutoTokenizer

    monkeypatch.chdir(tmp_path)
    export(run, "hf", Path("out"))
    text = Path("out/README.md").read_text()
    assert converting.section("out", "base", replayed=True) in text
    *commands, last = text.partition("```console\n")[2].partition("\n```")[0].splitlines()
    assert last == "python convert_hf_to_gguf.py for_gguf --outfile model.gguf"
    script = "\n".join(commands).replace("python ", f"{sys.executable} ")
    subprocess.run(["bash", "-ec", script], check=True)
    bare, whole = (AutoTokenizer.from_pretrained(name) for name in ("for_gguf", "out"))
    ids = whole("red")["input_ids"]
    assert (
        bare("red")["input_ids"] == ids[1:] == whole("red", add_special_tokens=False)["input_ids"]
    )
    plain = converting.section("a b", "base", replayed=False)
    assert "\npython convert_hf_to_gguf.py 'a b' --outfile model.gguf\n" in plain
