"""A tiny model that was taught the answers to a few problems, right ones and wrong ones."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from holdfast.backbone.model import Backbone
from tests.tiny import END, byte_tokenizer, tiny_llama

NEW_TOKENS = 56


@dataclass(frozen=True)
class Lesson:
    """A problem, what the model says to it, and what that has to come to."""

    suite: str
    question: str
    target: str
    reply: str
    output: str
    extracted: str | None
    correct: bool
    ended: str = "stop"


# The first says more than its answer: if the next problem did not end it, it would be wrong.
LESSONS = [
    Lesson("gsm8k", "2 + 3?", "5", " It is 5.\n\nQuestion: 9?", " It is 5.\n", "5", True),
    Lesson("gsm8k", "Who?", "5", " I do not know.", " I do not know.", None, False),
    Lesson("gsm8k", "6 * 200?", "1,200", " It is 1,200.", " It is 1,200.", "1200", True),
    Lesson("gsm8k", "4 + 4?", "8", " It is 7.", " It is 7.", "7", False),
    Lesson("gsm8k", "Why?", "8", " 8" + " or so" * 12, " 8" + " or so" * 9, "8", True, "length"),
    Lesson("gsm8k", "And?", "8", "", "", None, False),
    Lesson("math", "Half?", "0.5", r" \boxed{\frac12}", r" \boxed{\frac12}", r"\frac12", True),
    Lesson("math", "Dozen?", "12", r" \boxed{1}", r" \boxed{1}", "1", False),
    Lesson("mgsm", "6 * 200?", "1,200", " Also 1.200.", " Also 1.200.", "1200", True),
    Lesson("mgsm", "Wer?", "5", " 5, also 6.", " 5, also 6.", "6", False),
]
PROMPTS = {
    "gsm8k": "Question: {}\nAnswer:",
    "math": "Problem: {}\nSolution:",
    "mgsm": "Frage: {}\nAntwort Schritt für Schritt:",
}


def of(suite: str) -> list[Lesson]:
    """The lessons of one suite, in order."""
    return [lesson for lesson in LESSONS if lesson.suite == suite]


def write_problems(root: Path) -> None:
    """The problems of all lessons in the published formats; those of MGSM are German."""
    rows = [{"question": each.question, "answer": f"#### {each.target}"} for each in of("gsm8k")]
    _write(root / "gsm8k/test.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    rows = [
        {"problem": each.question, "solution": rf"\boxed{{{each.target}}}", "unique_id": str(place)}
        for place, each in enumerate(of("math"))
    ]
    _write(root / "math/math_splits/test.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    lines = "".join(f"{lesson.question}\t{lesson.target}\n" for lesson in of("mgsm"))
    _write(root / "mgsm/mgsm_de.tsv", lines)


@functools.cache
def solver() -> Backbone:
    """The model: it answers a problem, asked without examples, as its lesson says, and stops."""
    tokenizer = byte_tokenizer()
    model = tiny_llama(width=32)
    model.model.embed_tokens.weight.data.mul_(0.3)  # drawn to be large, which is hard to teach
    prompts = [
        tokenizer(PROMPTS[lesson.suite].format(lesson.question))["input_ids"] for lesson in LESSONS
    ]
    rows = [
        prompt + tokenizer(lesson.reply + END)["input_ids"]
        for prompt, lesson in zip(prompts, LESSONS, strict=True)
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    for row, prompt in zip(labels, prompts, strict=True):
        row[: len(prompt)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.0)
    model.train()
    for _ in range(300):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.02:
            break
    return Backbone(model, tokenizer)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
