"""What a consolidated memory exports is loaded by PEFT and transformers alone, and answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.exports import memory as module
from holdfast.exports.memory import export_memory
from holdfast.memory.consolidation.consolidate import ConsolidationOutcome, consolidate
from holdfast.memory.memory import Memory
from holdfast.memory.record import write_record
from holdfast.model.chat import chat_form
from holdfast.model.quiet import quiet
from holdfast.streams.batches import fact_key
from tests.cli.conftest import Outcome
from tests.memory.consolidation.conftest import FACTS, SETTINGS, Done
from tests.memory.consolidation.test_consolidate import adapters, answers
from tests.memory.memories import MONDAY, WEDNESDAY

WHOLE = replace(SETTINGS, whole=True)


@pytest.fixture(scope="module")
def both(done: Done, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory whose lessons one adapter answers, in both forms; never to be written."""
    place = shutil.copytree(done.place, tmp_path_factory.mktemp("both") / "m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        assert consolidate(Memory(place), WHOLE) == ConsolidationOutcome(5, 5, 2, 0)
    return place


@pytest.fixture
def one(both: Path, tmp_path: Path) -> Path:
    return shutil.copytree(both, tmp_path / "one" / "m")


def generated(model: Any, tokenizer: Any, question: str) -> str:
    """By transformers alone, asked through the chat template."""
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    form = chat_form(tokenizer)
    written = model.generate(
        input_ids=asked["input_ids"],
        attention_mask=asked["attention_mask"],
        max_new_tokens=24,
        do_sample=False,
        eos_token_id=sorted(form.stops),
        pad_token_id=form.end,
    )
    new = written[0, asked["input_ids"].shape[1] :]
    text: str = tokenizer.decode(new, skip_special_tokens=True)
    return text.strip()


def test_peft_and_transformers_alone_answer(
    one: Path, chat_directory: Path, tmp_path: Path
) -> None:
    """Both forms give every fact; keys and values of a question are the untouched model's under
    PEFT's activated adapter; the memory answers as before."""
    assert answers(Memory(one)) == [(answer, "weights") for _, answer in FACTS]
    assert len(adapters(one)) == 2
    tokenizer = AutoTokenizer.from_pretrained(chat_directory)
    said = "5 of 5 facts are answered by what was written"
    for to in ("peft", "hf"):
        out = tmp_path / to
        assert export_memory(one, to, out) == said
        model: Any
        if to == "peft":
            base = AutoModelForCausalLM.from_pretrained(chat_directory)
            with quiet():  # PEFT asks transformers for what is to be removed
                model = PeftModel.from_pretrained(base, out).eval()
            config = model.peft_config["default"]
            assert config.alora_invocation_tokens == list(chat_form(tokenizer).invocation)
            assert config.base_model_name_or_path == str(chat_directory)
        else:
            model = AutoModelForCausalLM.from_pretrained(out).eval()
            tokenizer = AutoTokenizer.from_pretrained(out)
        for question, answer in FACTS:
            assert generated(model, tokenizer, question) == answer, (to, question)
        card = (out / "README.md").read_text()
        assert str(out) in card and "5 facts taught to" in card
        code = card.split("```python\n")[1].split("```")[0]
        names: dict[str, Any] = {}
        with quiet():
            exec(code, names)  # noqa: S102  # prints some answer
        assert names["written"].shape[0] == 1


def test_the_merged_weights_are_the_base_with_the_scaled_update(
    one: Path, chat_directory: Path, tmp_path: Path
) -> None:
    """W + 2 B A in the adapted maps, W elsewhere."""
    export_memory(one, "hf", tmp_path / "out")
    before = load_file(chat_directory / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    whole = Memory(one).record.mergeable
    assert whole is not None
    factors = load_file(one / "lessons" / whole.file)
    adapted = {name.removesuffix(".lora_A") for name in factors if name.endswith(".lora_A")}
    assert len(adapted) == 2 * 7 and before.keys() == after.keys()
    for name, weight in before.items():
        module = name.removesuffix(".weight")
        if module in adapted:
            a, b = (factors[f"{module}.lora_{side}"].double() for side in "AB")
            weight = weight.double() + 2 * b @ a
            torch.testing.assert_close(after[name].double(), weight, rtol=0, atol=1e-5)
        else:
            assert torch.equal(after[name], weight)


def test_a_merged_model_is_asked_what_its_adapter_answers(one: Path, tmp_path: Path) -> None:
    """A fact that it missed is not asked, and the others are."""
    record = Memory(one).record
    assert record.mergeable is not None and record.mergeable.missed == ()
    key = fact_key(Memory(one).learned[0])
    write_record(one, replace(record, mergeable=replace(record.mergeable, missed=(key,))))
    said = export_memory(one, "hf", tmp_path / "out")
    assert said == "4 of 4 facts are answered by what was written"


def test_what_is_not_consolidated_is_said(
    holdfast: Callable[..., Outcome], copied: Callable[[], Path], one: Path, tmp_path: Path
) -> None:
    place, out = copied(), tmp_path / "out"
    several = f"{place}: 2 adapters answer for its lessons, and one is written; "
    whole = "has no adapter of all lessons that can be merged; "
    for memory, to, text in (
        (place, "peft", f"{several}holdfast consolidate {place} makes one of them"),
        (place, "hf", f"{place}: {whole}holdfast consolidate {place} --mergeable learns one"),
        (place, "gguf", "is written by llama.cpp; give --to hf, then run its python convert_hf"),
    ):
        said = holdfast("export", memory, out, "--to", to)
        assert (said.status, said.err.count("\n")) == (2, 1) and text in said.err
        assert not out.exists()
    said = holdfast("export", one, out, "--to", "peft", "--after-task", "1")
    assert said.status == 2 and "--after-task: is for trajectories" in said.err
    Memory(one).learn(WEDNESDAY)
    for to in ("peft", "hf"):
        said = holdfast("export", one, out, "--to", to)
        assert (said.status, said.err.count("\n")) == (2, 1) and "holdfast consolidate" in said.err
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    said = holdfast("export", one, out, "--to", "hf")
    assert said.status == 2 and "holds mine.txt; choose an empty or a new directory" in said.err


def test_one_lesson_needs_no_consolidation(
    holdfast: Callable[..., Outcome], chat_directory: Path, tmp_path: Path
) -> None:
    place, out = tmp_path / "m", tmp_path / "out"
    Memory(place, str(chat_directory)).learn(MONDAY)
    said = holdfast("export", place, out, "--to", "peft")
    assert said.status == 0
    assert said.out.splitlines() == [
        "3 of 3 facts are answered by what was written", str(out),
    ]  # fmt: skip
    bare = holdfast("export", place, tmp_path / "bare", "--to", "peft", "--no-check")
    assert bare.out.splitlines() == [str(tmp_path / "bare")]


def test_what_answers_otherwise_is_not_exported(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter of zeros is written; the check notices, and nothing is left."""
    write = module._write_adapter

    def empty(folder: Path, base: Path, state: Any) -> Any:
        form = write(folder, base, state)
        file = folder / "adapter_model.safetensors"
        tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
        return form

    monkeypatch.setattr(module, "_write_adapter", empty)
    with pytest.raises(HoldfastError, match="out: 5 of 5 facts are answered otherwise") as caught:
        export_memory(one, "peft", tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()
    export_memory(one, "peft", tmp_path / "out", checked=False)
    assert (tmp_path / "out" / "adapter_config.json").exists()
