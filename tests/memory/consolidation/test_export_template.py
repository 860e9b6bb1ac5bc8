"""The chat template that an exported memory has, its format, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.exports.memory import export_memory
from holdfast.memory.memory import Memory
from holdfast.memory.record import read_record, write_record
from holdfast.model.load import load_model
from holdfast.streams.batches import fact_key
from tests.memory.consolidation.conftest import Done


def test_one_that_writes_the_date_is_written_with_the_date_that_was_taught(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dated(directory: Path) -> tuple[Any, Any]:
        model, tokenizer = load_model(directory)
        tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + tokenizer.chat_template
        return model, tokenizer

    monkeypatch.setattr("holdfast.exports.memory.load_model", dated)
    export_memory(done.place, "peft", tmp_path / "out", checked=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False)
    assert text.startswith("26 Jul 2024<|reply|>")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="--to bin: is no format"):
        export_memory(tmp_path / "m", "bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_that_answer_nothing_are_not_exported(done: Done, tmp_path: Path) -> None:
    place = shutil.copytree(done.place, tmp_path / "m")
    record = read_record(place)
    keys = tuple(fact_key(fact) for fact in Memory(place).facts)
    missed = tuple(replace(lesson, missed=keys) for lesson in record.lessons)
    write_record(place, replace(record, lessons=missed))
    with pytest.raises(HoldfastError, match="answers none of its facts; teach them with holdfast"):
        export_memory(place, "peft", tmp_path / "out")
    assert not (tmp_path / "out").exists()
