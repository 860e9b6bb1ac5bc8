"""Export what a memory has learned, for programs without Holdfast.

``peft``: the one adapter of all lessons; a lesson's own comes with the tokens from which it acts
(activated LoRA, Greenewald et al. 2025, 2504.12397). ``hf``: a complete model, with an adapter of
all facts merged, or with the facts in neurons of its MLPs. ``gguf``: the complete model in one
file. None of them has the gate or the list of facts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory, check_place
from holdfast.exports.card import render_card
from holdfast.exports.formats import check_format
from holdfast.exports.gguf import only_the_file
from holdfast.memory.batch import GATE, read_lesson
from holdfast.memory.lesson import LessonSettings
from holdfast.memory.memory import Memory
from holdfast.model.adapter import State, load_state, shape_like
from holdfast.model.chat import ChatForm, chat_form, with_one_date
from holdfast.model.load import load_model
from holdfast.model.neurons import widen
from holdfast.model.quiet import quiet
from holdfast.model.sources.fetch import fetch
from holdfast.streams import Item
from holdfast.streams.batches import fact_key

_CHECKED = 20  # facts
_LONGEST = 64  # tokens of an answer in the check


def export_memory(directory: Path, to: str, out: Path, *, checked: bool = True) -> str | None:
    """Write the adapter or the complete model of a memory into ``out``, a new or empty directory.

    checked: load what was written with transformers and PEFT alone, and ask it up to 20 of the
    facts that it should answer; returns a sentence on how many were right. Raises HoldfastError if
    the memory has no weights of that form, if these answer no fact, or if what was written answers
    otherwise.
    """
    check_format(to)
    check_place(out)
    memory = Memory(directory)
    learned = _learned(memory, to)
    if not learned.facts:
        raise HoldfastError(
            f"{memory.directory}: what would be written answers none of its facts; teach them with "
            "holdfast learn --again, then consolidate, or export another memory"
        )
    tensors, _ = read_lesson(memory.directory, learned.file)
    state = {name: tensor.float() for name, tensor in tensors.items() if name != GATE}
    base = fetch(memory.model)
    with atomic_directory(out) as folder, quiet():
        model, tokenizer = load_model(base)
        form = chat_form(tokenizer)
        if learned.neurons:
            widen(model, state)
        elif to == "peft":
            model = _adapted(model, state, () if learned.whole_turn else form.invocation)
            model.peft_config["default"].base_model_name_or_path = os.path.abspath(base)
        else:
            model = _adapted(model, state, ()).merge_and_unload()
        model.generation_config.eos_token_id = sorted(form.stops)
        model.save_pretrained(str(folder))
        if tokenizer.chat_template:
            tokenizer.chat_template = with_one_date(tokenizer.get_chat_template())
        tokenizer.save_pretrained(folder)
        text = render_card(
            "memory.md",
            to=to,
            out=str(out),
            base=os.path.abspath(base),
            facts=len(memory.learned),
            model=memory.model,
            fingerprint=memory.record.fingerprint,
            learned=learned,
            boxed=form.boxed,
            stops=sorted(form.stops),
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        answered = _check(out, folder, to, base, form, learned.facts) if checked else None
        if to == "gguf":
            only_the_file(folder, checked=checked)
        return answered


@dataclass(frozen=True)
class _Learned:
    """The weights to write. facts: those that they answer."""

    file: str
    facts: list[Item]
    whole_turn: bool = False
    neurons: bool = False


def _learned(memory: Memory, to: str) -> _Learned:
    """The adapter or neurons to write; HoldfastError if there are none of that form."""
    lessons, neurons = memory.record.lessons, memory.record.all_neurons
    files = {lesson.file for lesson in lessons}
    if not files:
        raise HoldfastError(f"{memory.directory}: has learned nothing yet")
    if to != "peft" and neurons is not None:
        facts = [fact for fact in memory.learned if fact_key(fact) not in neurons.missed]
        return _Learned(neurons.file, facts, neurons=True)
    if len(files) == 1 and (to == "peft" or lessons[0].whole_turn):
        missed = memory.missed()
        facts = [fact for fact in memory.learned if fact not in missed]
        return _Learned(files.pop(), facts, lessons[0].whole_turn)
    raise _several(memory, to, len(files))


def _several(memory: Memory, to: str, adapters: int) -> HoldfastError:
    """The error for lessons that no single set of weights answers, with what makes one."""
    count, again = memory.horizon, f"holdfast consolidate {memory.directory}"
    have = "an adapter each" if adapters == count else f"{adapters} adapters"
    lessons = f"{count} lessons have {have}" if count > 1 else "lesson has an adapter of its own"
    neurons = f"{again} --neurons (about an hour for 200 facts)"
    if memory.record.consolidated >= count:  # some keep their own adapter, also if it is run again
        ways = f"{neurons}, then export --to hf" if to == "peft" else neurons
    else:
        ways = f"{again} first (hours)" if to == "peft" else f"{again} first (hours), or {neurons}"
    written = "adapter" if to == "peft" else "model"
    return HoldfastError(
        f"{memory.directory}: its {lessons}, and --to {to} writes one {written}; run {ways}"
    )


def _adapted(model: Any, state: State, invocation: Sequence[int]) -> Any:
    """PEFT's model with the adapter."""
    shape = shape_like(model, state, LessonSettings().scale)
    wrapped = get_peft_model(model, shape.config(invocation))
    load_state(model, state)
    return wrapped


@torch.no_grad()
def _check(
    out: Path, folder: Path, to: str, base: Path, form: ChatForm, facts: Sequence[Item]
) -> str:
    """Ask the export in ``folder`` (later ``out``) by plain ``generate``; raise if it is wrong."""
    model: Any = AutoModelForCausalLM.from_pretrained(base if to == "peft" else folder)
    if to == "peft":
        model = PeftModel.from_pretrained(model, folder)
    model.eval()
    asked = facts[:: max(1, len(facts) // _CHECKED)][:_CHECKED]
    wrong = []
    for fact in asked:
        ids = [*form.prefix, *form.question(fact.question), *form.invocation]
        written = model.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=max(_LONGEST, len(form.answer(fact.answer))),
            do_sample=False,
            eos_token_id=sorted(form.stops),
            pad_token_id=form.end,
        )
        tokens = [token for token in written[0, len(ids) :].tolist() if token not in form.stops]
        if form.text(tokens) != fact.answer:
            wrong.append(fact.question)
    if wrong:
        example = json.dumps(wrong[0], ensure_ascii=False)
        raise HoldfastError(
            f"{out}: {len(wrong)} of {len(asked)} facts are answered otherwise by what was "
            f"written, {example} for one; nothing was exported (--no-check does)"
        )
    return f"{len(asked)} of {len(asked)} facts are answered by what was written"
