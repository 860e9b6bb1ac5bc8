"""An export is compared with the model that was learned before it appears; faults are caught."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from holdfast import HoldfastError
from holdfast.exports import check as checking
from holdfast.exports import export as exporting
from holdfast.exports.check import Asked, Checked
from holdfast.exports.export import export
from tests.exports.exported import configured, learned

Fault = Callable[[Path], None]


def one_matrix(folder: Path) -> None:
    """One of the adapted maps, changed by a hundredth."""
    path = next(folder.glob("*model.safetensors"))
    tensors = load_file(path)
    name = next(name for name in tensors if "q_proj" in name and "lora_A" not in name)
    tensors[name] = tensors[name] * 1.01
    save_file(tensors, path, {"format": "pt"})


def not_a_number(folder: Path) -> None:
    path = next(folder.glob("*model.safetensors"))
    tensors = load_file(path)
    next(tensor for name, tensor in tensors.items() if "q_proj" in name)[0, 0] = float("nan")
    save_file(tensors, path, {"format": "pt"})


def other_first_token(folder: Path) -> None:
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    values["post_processor"] = None
    path.write_text(json.dumps(values))


def other_chat(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("Question: ", "Question:"))


def other_decoding(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "repetition_penalty": 30.0}))


@pytest.mark.parametrize(
    ("to", "fault", "message"),
    [
        ("hf", one_matrix, r"its logits differ by up to [\d.e-]+ of the largest"),
        ("peft", one_matrix, r"its logits differ by up to [\d.e-]+ of the largest"),
        ("hf", not_a_number, "its logits differ by up to nan of the largest"),
        ("peft", other_first_token, "its tokenizer reads the question"),
        ("hf", other_chat, "its chat template asks"),
        ("peft", other_decoding, "it answers .* otherwise"),
    ],
)
def test_a_fault_is_caught_and_nothing_appears(
    to: Any, fault: Fault, message: str, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer = "write_model" if to == "hf" else "write_adapter"
    write = getattr(exporting, writer)

    def faulty(recorded: Any, commit: Any, folder: Path, *rest: Any) -> None:
        write(recorded, commit, folder, *rest)
        fault(folder)

    monkeypatch.setattr(exporting, writer, faulty)
    with pytest.raises(HoldfastError, match=message) as caught:
        export(run, to, tmp_path / "out")
    assert "\n" not in str(caught.value) and "--no-check" in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert export(run, to, tmp_path / "out", checked=False) is None
    assert (tmp_path / "out" / "README.md").exists()


def test_a_nan_in_one_of_the_sequences_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([torch.tensor([[float("nan"), 1.0]]), torch.ones(1, 2)])
    monkeypatch.setattr(checking, "_logits", lambda *_: next(given))
    asked = [Asked("?", "?", [1], [], torch.ones(1, 2))] * 2
    with pytest.raises(HoldfastError, match="differ by up to nan"):
        checking._compared(None, asked, 1e-4)


def test_what_was_checked(run: Path, tmp_path: Path) -> None:
    """Of the facts of the boundary that is exported."""
    one = export(run, "hf", tmp_path / "one", 1)
    two = export(run, "peft", tmp_path / "two")
    assert one is not None and (one.sequences, one.answers, one.same) == (3, 3, 3)
    assert two is not None and (two.sequences, two.answers, two.same) == (4, 6, 6)
    assert one.difference < 1e-5 and two.difference < 1e-5
    assert str(Checked(4, 3e-7, 16, 16)) == (
        "checked: logits of 4 sequences equal to 1e-6, 16 of 16 answers the same"
    )
    assert str(Checked(4, 0.0, 16, 15)).endswith(
        "equal to the last bit, 15 of 16 answers the same, 1 part at a tie within rounding"
    )


def test_no_stream_is_needed(backbone_directory: Path, stream: Path, tmp_path: Path) -> None:
    """Made-up questions are asked where the facts are gone or are others."""
    moved = tmp_path / "facts.jsonl"
    moved.write_text(stream.read_text())
    directory = learned(tmp_path / "run", configured(backbone_directory, moved, "merge"))
    moved.write_text(stream.read_text().replace("sky", "sun"))
    changed = export(directory, "hf", tmp_path / "changed")
    moved.unlink()
    gone = export(directory, "hf", tmp_path / "gone")
    assert changed == gone and gone is not None and gone.answers == gone.same == 4


def test_bfloat16_is_checked_to_its_own_rounding(
    backbone_directory: Path, stream: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the attention of the run, as the export's own would round otherwise."""
    attention: list[str] = []

    def compared(model: Any, *given: Any) -> Checked:
        attention.append(model.config._attn_implementation)
        return compared_by(model, *given)

    compared_by = checking._compared
    monkeypatch.setattr(checking, "_compared", compared)
    settings = {"backbone": {"precision": "bfloat16"}}
    for method in ("vanilla", "replay_merge"):
        directory = learned(
            tmp_path / method, configured(backbone_directory, stream, method, **settings)
        )
        result = export(directory, "peft", tmp_path / f"{method}-peft")
        assert result is not None and result.difference < 0.05
    assert attention == ["eager", "eager"]
    assert torch.get_default_dtype() == torch.float32
