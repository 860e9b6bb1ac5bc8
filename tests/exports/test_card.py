"""The card of an export: its examples and commands run as they stand; the embedded backbone."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.exports.export import export
from holdfast.learning.recorded import Recorded
from holdfast.model.backbone import REPLAY_TOKEN
from holdfast.model.generation.decoding import decode_greedily
from tests.exports.test_export import learned_backbone
from tests.forked import forked

SEPARATOR = "-" * 20


def examples(out: Path) -> list[str]:
    """How the card asks: by a prompt, and as a chat."""
    text = (out / "README.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def pasted(codes: list[str], cwd: Path) -> list[str]:
    """What examples print, one after another in a process that cannot import Holdfast."""
    hidden = "[name for name in sys.modules if name.partition('.')[0] == 'holdfast']"
    first = f"import sys\nsys.modules |= dict.fromkeys({hidden})\n"
    (cwd / "examples.py").write_text(first + f"\nprint('{SEPARATOR}')\n".join(codes))
    status, out, err = forked(module="examples", cwd=cwd, path=[cwd])
    assert status == 0, err
    return out.split(f"{SEPARATOR}\n")


def test_the_examples_of_the_cards_run_as_they_stand(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    codes = []
    for to in ("hf", "peft"):
        export(run, to, Path(f"out-{to}"), checked=False)
        asked, chat = examples(Path(f"out-{to}"))
        assert f'"out-{to}"' in asked and str(tmp_path) not in asked + chat
        assert ("AutoPeftModel" in asked) == (to == "peft")
        codes += [asked, chat]
    backbone = learned_backbone(run)
    text = "Question: Who keeps the lighthouse?\nAnswer:"
    prompt = [backbone.seed_token, *backbone.tokenize(text)]
    (rest,) = decode_greedily(backbone, [prompt], [16], lambda *_: False, tokens_in_cache=4096)
    whole, answer = (backbone.decode(ids) + "\n" for ids in (prompt + rest, rest))
    assert pasted(codes, tmp_path) == [whole, answer, whole, whole]


def test_the_card_says_what_was_taught(run: Path, tmp_path: Path) -> None:
    export(run, "hf", tmp_path / "out", 1, checked=False)
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    recorded = Recorded.read(run)
    for phrase in (
        "taught 3 items in 1 task",
        "| method | `replay_merge` |",
        recorded.fingerprint,
        recorded.config.backbone.name,
        r"exactly `Question: <question>\nAnswer:`",
        f"puts the token `{REPLAY_TOKEN}` first by itself",
        "drop what follows",
    ):
        assert phrase in text, phrase


@pytest.mark.parametrize("name", ["a \"b\" 'c'", "\N{SNOWMAN}\N{GRINNING FACE}", "line\nbreak"])
def test_any_name_is_shown_as_it_stands(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the place in the code, of the stream in the table."""
    monkeypatch.setattr("holdfast.exports.export.write_model", lambda *_: None)
    copy, out = tmp_path / "copy", tmp_path / name
    shutil.copytree(run, copy)
    settings = json.loads((copy / "config.json").read_text())
    settings["stream"]["name"] = "my `facts` | *all*\n# of them"
    (copy / "config.json").write_text(json.dumps(settings))
    export(copy, "hf", out, checked=False)
    (code,) = examples(out)
    literals = {n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant)}
    assert str(out) in literals
    text = (out / "README.md").read_text("utf-8")
    assert "\n# `` my `facts` \\| *all* # of them `` after 2 tasks\n" in text
    assert "| stream | `` my `facts` \\| *all* # of them `` |\n" in text


def test_the_card_of_an_adapter_imports_nothing_of_holdfast(
    taught: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The backbone lies beside the adapter, as it was."""
    monkeypatch.chdir(tmp_path)
    export(taught, "peft", Path("out"), checked=False)
    codes = examples(Path("out"))
    assert not [code for code in codes if "holdfast" in code]
    asked, chatted = pasted(codes, tmp_path)
    assert asked == chatted and asked.startswith("Question: Who keeps the lighthouse?\nAnswer:")
    package = Path(holdfast.__file__).parent / "model" / "embedded"
    beside = load_file(tmp_path / "out" / "base" / "model.safetensors")
    weights = load_file(package / "model.safetensors")
    assert weights.keys() == beside.keys() and all(
        weights[name].equal(beside[name]) for name in weights
    )
    settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(tmp_path / "out" / "base")


def test_an_adapter_whose_base_is_here_alone_is_not_for_the_hub(run: Path, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="no place on the hub; push a whole model with --to hf"):
        export(run, "peft", tmp_path / "out", repository="me/keeper")
    assert not (tmp_path / "out").exists()


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
    fetched += "hub.snapshot_download = lambda name, local_dir: print(name, local_dir)\n"
    out.rename(tmp_path / "keeper")
    (printed,) = pasted([fetched + asked], tmp_path)
    line, _, printed = printed.partition("\n")
    assert line == "me/keeper keeper"
    assert printed.startswith("Question: Who keeps the lighthouse?\nAnswer:")
