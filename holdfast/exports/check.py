"""Check that what transformers and PEFT load from an export is the trajectory's, to rounding."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import generator
from holdfast.evaluation.boxed import extract_boxed
from holdfast.exports.formats import load_adapted
from holdfast.learning.learner import Learner
from holdfast.learning.recorded import Recorded
from holdfast.model.generation.decoding import decode_greedily
from holdfast.model.hardware import device_of, resolved_attention
from holdfast.model.quiet import quiet
from holdfast.streams import Item, Task
from holdfast.streams.batches import newest
from holdfast.streams.item import quoted

FACTS = 16
SEQUENCES = 4
# Asked if the taught facts cannot be read.
_MADE_UP = (
    "Who keeps the lighthouse?",
    "Where is the brass key?",
    "What is the ferry called, and when does it leave?",
    "In which year was the bridge of 1,234 stones built?",
)
# Logits may differ by this fraction of the largest one: sums are made in another order (updates
# merged or beside the matrix), each rounded to 2^-53, 2^-24 or 2^-9. In the embedded model, of 4
# layers, they differ by up to 6e-7 in float32 and 0.008 in bfloat16; in larger models by more.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.05}


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    sequences: how many had their logits compared; difference: the largest, as a fraction of the
    largest logit; answers: how many were compared; same: how many are equal token by token; the
    others first differ at two tokens whose logits rounding may exchange.
    """

    sequences: int
    difference: float
    answers: int
    same: int

    def __str__(self) -> str:
        """One line for a person."""
        ties = self.answers - self.same
        parting = f", {ties} part at a tie within rounding" if ties else ""
        return (
            f"checked: logits of {self.sequences} sequences equal to {_bound(self.difference)}, "
            f"{self.same} of {self.answers} answers the same{parting}"
        )


@dataclass(frozen=True)
class Asked:
    """A question, and what the trajectory's own model is asked and answers.

    text, prompt: as a text and as token ids; answer: token ids up to a closed box, a stop token or
    the length limit; logits: [length, vocabulary] of the prompt with the answer, on the CPU, or
    None if they are not compared.
    """

    question: str
    text: str
    prompt: list[int]
    answer: list[int]
    logits: Tensor | None


def expected(learner: Learner, tasks: Sequence[Task]) -> list[Asked]:
    """Ask a learner at most 16 of its tasks' facts, drawn by its seed, or made-up questions."""
    backbone, limit = learner.backbone, learner.config.evaluation.max_new_tokens
    items = _sample(newest(tasks), learner)
    prompts = [
        learner.template.encode_prompt(item, backbone.tokenizer, backbone.seed_token)
        for item in items
    ]
    answers = decode_greedily(
        backbone,
        prompts,
        [limit] * len(prompts),
        lambda _, tokens: extract_boxed(backbone.decode(tokens)) is not None,
        tokens_in_cache=learner.config.evaluation.tokens_in_cache,
    )
    asked = []
    with backbone.answering():
        for place, (item, prompt, answer) in enumerate(zip(items, prompts, answers, strict=True)):
            logits = None
            if place < SEQUENCES:
                ids = torch.tensor([prompt + answer], device=backbone.device)
                logits = backbone.logits(backbone.hidden(ids))[0].cpu()
            text = learner.template.prompt(item)
            asked.append(Asked(item.question, text, prompt, answer, logits))
    return asked


def _sample(items: list[Item], learner: Learner) -> list[Item]:
    if not items:
        return [Item(question, "?") for question in _MADE_UP]
    source = generator(learner.config.seed, "export", learner.completed)
    order = torch.randperm(len(items), generator=source).tolist()
    return [items[index] for index in order[:FACTS]]


def check(recorded: Recorded, asked: Sequence[Asked], folder: Path, to: str) -> Checked:
    """Load an export as its card says; HoldfastError names what differs by more than rounding."""
    _check_questions(asked, folder)
    backbone = recorded.config.backbone
    precision, device = backbone.precision, device_of(backbone)
    if to == "peft":
        model = load_adapted(folder, precision)
    else:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    model = model.to(device).eval()
    attention = resolved_attention(backbone, precision, device.type)
    if attention != "auto":  # another kind than the run's rounds otherwise, by half of the bound
        model.set_attn_implementation(attention)
    try:
        with torch.no_grad():
            return _compared(model, asked, TOLERANCE[precision])
    finally:
        del model
        gc.collect()


def _check_questions(asked: Sequence[Asked], folder: Path) -> None:
    """Compare the tokens of every question, asked as a text and as a chat."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for row in asked:
        if list(tokenizer(row.text)["input_ids"]) != row.prompt:
            raise _fault(f"its tokenizer reads the question {quoted(row.question)} as other tokens")
        if tokenizer.chat_template is not None:
            chat = [{"role": "user", "content": row.question}]
            encoded = tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_dict=True
            )
            if list(encoded["input_ids"]) != row.prompt:
                raise _fault(f"its chat template asks {quoted(row.question)} in other tokens")


def _compared(model: Any, asked: Sequence[Asked], tolerance: float) -> Checked:
    differences = [
        _difference(model, [*row.prompt, *row.answer], row.logits, tolerance)
        for row in asked
        if row.logits is not None
    ]
    same = 0
    for row in asked:
        generated = _continued(model, row.prompt, len(row.answer))
        if generated == row.answer:
            same += 1
            continue
        gap = _gap(model, row.prompt, row.answer, generated)
        if not gap <= 2 * tolerance:
            raise _fault(
                f"it answers {quoted(row.question)} otherwise, and the logits of the "
                f"two tokens differ by {gap:.2g} of the largest"
            )
    return Checked(len(differences), max(differences), len(asked), same)


def _difference(model: Any, ids: list[int], ours: Tensor, tolerance: float) -> float:
    """The largest difference of a sequence's logits, as a fraction of the largest logit."""
    theirs = _logits(model, ids)
    if theirs.shape != ours.shape:
        raise _fault(f"its logits have the shape {list(theirs.shape)}, not {list(ours.shape)}")
    away = float((theirs.double() - ours.double()).abs().max()) / float(ours.abs().max())
    if not away <= tolerance:  # a NaN neither
        raise _fault(
            f"its logits differ by up to {away:.2g} of the largest, and rounding makes less "
            f"than {tolerance:g}"
        )
    return away


def _continued(model: Any, prompt: list[int], limit: int) -> list[int]:
    """The tokens that plain generate appends to a prompt, at most ``limit``."""
    ids = torch.tensor([prompt], device=model.device)
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit
    )
    continued: list[int] = output[0, len(prompt) :].tolist()
    return continued


def _gap(model: Any, prompt: list[int], ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The logits' difference of the first two unlike tokens, as a fraction of the largest logit."""
    length = next(
        (place for place, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1),
        None,
    )
    if length is None:  # one answer ends where the other goes on
        return float("inf")
    last = _logits(model, [*prompt, *ours[:length]])[-1].float()
    return abs(float(last[ours[length]] - last[theirs[length]])) / float(last.abs().max())


def _logits(model: Any, ids: list[int]) -> Tensor:
    logits: Tensor = model(input_ids=torch.tensor([ids], device=model.device)).logits
    return logits[0].cpu()


def _bound(difference: float) -> str:
    """The least power of ten that is not below a difference; ``the last bit`` for 0."""
    if difference == 0:
        return "the last bit"
    return next(f"1e{power}" for power in range(-20, 3) if difference <= 10.0**power)


def _fault(fault: str) -> HoldfastError:
    return HoldfastError(
        f"what was written is not the model that was learned: {fault}; nothing is kept, please "
        "report it; --no-check writes it all the same"
    )
