"""How far weights that act at every token move the model: KL per token, and bits per byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from holdfast.anchors.divergences import divergence
from holdfast.core.reporting import CountReport, silent
from holdfast.evaluation.text import everyday_passages
from holdfast.memory.evaluation.asking import Sides
from holdfast.model.layers import context_of

_WINDOW = 512  # tokens
_REPLIES_AT_ONCE = 4  # 132 tokens over a vocabulary of 49,152 are 52 MB of logits in float64


@torch.no_grad()
def kl_per_token(
    sides: Sides,
    questions: Sequence[str],
    replies: Sequence[str],
    report: CountReport = silent,
) -> float:
    """Mean KL(untouched || with the weights) per token of replies to questions, in nats.

    replies: the untouched model's own, so that the mean is over texts that it would write.
    """
    engine, total, tokens = sides.engine, 0.0, 0
    for begin in range(0, len(questions), _REPLIES_AT_ONCE):
        group = slice(begin, begin + _REPLIES_AT_ONCE)
        readings, _ = engine.read(questions[group])
        answers = [engine.form.answer(text) for text in replies[group]]
        before = engine.reader.answer_logits(readings, answers).logits
        with sides.acting(questions[group]) as read:
            after = engine.reader.answer_logits(read, answers).logits
        total += float(divergence("forward_kl", before.double(), after.double(), 1.0).sum())
        tokens += len(before)
        report(min(begin + _REPLIES_AT_ONCE, len(questions)), len(questions))
    return total / tokens


def bits_per_byte(sides: Sides, report: CountReport = silent) -> tuple[float, float]:
    """Bits per byte of ten everyday texts: with the untouched model, and with the weights on."""
    engine = sides.engine
    texts = [passage.text for passage in everyday_passages()]
    model, tokenizer = engine.reader.model, engine.form.tokenizer
    size = sum(len(text.encode()) for text in texts)
    bits = [0.0, 0.0]
    for number, text in enumerate(texts, start=1):
        bits[0] += text_bits(model, tokenizer, text)
        with sides.acting([]):
            bits[1] += text_bits(model, tokenizer, text)
        report(number, len(texts))
    return bits[0] / size, bits[1] / size


@torch.no_grad()
def text_bits(model: Any, tokenizer: Any, text: str) -> float:
    """Minus log2 of the probability of a text's tokens, in windows that begin with BOS or EOS.

    If the tokenizer has neither, a window's first token counts log2 of the vocabulary's size.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    window = min(_WINDOW, context_of(model.config) or _WINDOW) - 1
    total = 0.0
    for begin in range(0, len(ids), window):
        part = ids[begin : begin + window]
        tokens = torch.tensor([part if first is None else [first, *part]], device=model.device)
        if first is None:
            total += math.log2(len(tokenizer))
        if tokens.shape[1] > 1:
            logits = model(tokens, use_cache=False).logits[0, :-1].double()
            total += float(F.cross_entropy(logits, tokens[0, 1:], reduction="sum")) / math.log(2)
    return total
