"""Ask a model free questions: what it answers, how sure it is, and whether it was taught that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from holdfast.backbone.generation.greedy import decode_greedily
from holdfast.backbone.likelihood import token_log_likelihoods
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.boxed import extract_boxed
from holdfast.learning.learner import Learner
from holdfast.memory.knowledge import Knowledge
from holdfast.memory.spelling import capitals, joined, spellings
from holdfast.streams import Item

_UNKNOWN = "?"  # an item needs an answer; the prompt does not contain it
# Words of a question that are tried with a capital: at most so many, of so many tokens together.
_CAPITALS, _CAPITALS_TOKENS = 8, 512


@dataclass(frozen=True)
class Reply:
    r"""A model's output for a question.

    question: as the model was asked, in the spelling it knows best; text: the whole output;
    answer: the content of its first ``\boxed{}``, if any; probability: of the answer's tokens, up
    to the closing brace, given the question; log_density: ``log p(question, answer | replay
    token)`` in nats, None for a method that does not rehearse; taught: whether that reaches the
    memory's threshold and there is an answer, None when it cannot be told.
    """

    question: str
    text: str
    answer: str | None
    probability: float
    log_density: float | None
    taught: bool | None


def replies(learner: Learner, questions: Sequence[str], knowledge: Knowledge | None) -> list[Reply]:
    r"""Decode greedily, as in recall scoring, until a ``\boxed{}`` closes or the text ends.

    knowledge: None where taught is not told from untaught.
    Raises HoldfastError for a question that is empty, or too long for ``template.max_length``.
    """
    backbone = learner.backbone
    prompts = [_prompt(learner, question) for question in questions]
    continuations = decode_greedily(
        backbone,
        prompts,
        [learner.config.evaluation.max_new_tokens] * len(prompts),
        lambda _, tokens: extract_boxed(backbone.decode(tokens)) is not None,
    )
    known = backbone.seed_token is not None
    # Without a replay token the first token has no prediction; a prompt has two tokens or more.
    sequences = [[*p, *tokens] for p, tokens in zip(prompts, continuations, strict=True)]
    found = []
    for question, prompt, tokens, likelihoods in zip(
        questions, prompts, continuations, token_log_likelihoods(backbone, sequences), strict=True
    ):
        text = backbone.decode(tokens)
        answer = extract_boxed(text)
        density = float(likelihoods.sum()) if known else None
        taught = None
        if knowledge is not None and density is not None:
            taught = answer is not None and density >= knowledge.threshold
        sure = math.exp(float(likelihoods[len(prompt) - 1 :].sum()))
        found.append(Reply(question, text.strip(), answer, sure, density, taught))
    return found


def best_spellings(learner: Learner, questions: Sequence[str]) -> list[str]:
    """For each question the spelling that the model finds most probable.

    Tried are those of :func:`~holdfast.memory.spelling.spellings`, and capitals word by word: of
    the words that the model expects least, in a question of many. So a question is read some 15
    times at most, whatever its length.
    Without a replay token, which begins a density, the questions stay as they are.
    """
    if learner.backbone.seed_token is None:
        return [" ".join(question.split()) for question in questions]
    found = _scored(learner, [spellings(question) for question in questions])
    best = [max(group, key=_total) for group in found]
    further = _scored(learner, [_capitalised(learner, *one) for one in best])
    better = [
        [other for other in others if _total(other) > _total(one)]
        for one, others in zip(best, further, strict=True)
    ]
    together = [
        [joined(text, [other for other, _ in others])] if len(others) > 1 else []
        for (text, _), others in zip(best, better, strict=True)
    ]
    last = _scored(learner, together)
    groups = zip(last, better, best, strict=True)
    return [max([*joint, *others, one], key=_total)[0] for joint, others, one in groups]


_Scored = tuple[str, Tensor]  # a question; the log-likelihood of each token of its prompt, in nats


def _total(scored: _Scored) -> float:
    """``log p(prompt | replay token)`` in nats."""
    return float(scored[1].sum())


def _scored(learner: Learner, texts: Sequence[Sequence[str]]) -> list[list[_Scored]]:
    """Groups of questions, each question with its likelihoods."""
    prompts = [_prompt(learner, text) for group in texts for text in group]
    values = iter(token_log_likelihoods(learner.backbone, prompts))
    return [[(text, next(values)) for text in group] for group in texts]


def _capitalised(learner: Learner, question: str, likelihoods: Tensor) -> list[str]:
    """The question with one further capital, for the words that the model expects least."""
    texts = capitals(question)
    most = max(1, min(_CAPITALS, _CAPITALS_TOKENS // len(likelihoods)))
    if len(texts) <= most:
        return texts
    tokenizer = learner.backbone.tokenizer
    head = learner.template.prompt(Item(question, _UNKNOWN)).partition(question)[0]
    marks = [next(n for n, letter in enumerate(text) if letter != question[n]) for text in texts]
    # The tokens up to a word are nearly those of the whole question, which is enough for an order.
    begins = [
        len(tokenizer(head + question[:mark], add_special_tokens=False)["input_ids"])
        for mark in marks
    ]
    ends = [*begins[1:], len(likelihoods)]
    expected = [
        float(likelihoods[begin:end].sum()) for begin, end in zip(begins, ends, strict=True)
    ]
    least = sorted(range(len(texts)), key=lambda number: expected[number])[:most]
    return [texts[number] for number in sorted(least)]


def _prompt(learner: Learner, question: str) -> list[int]:
    backbone, limit = learner.backbone, learner.config.template.max_length
    asked = Item(question, _UNKNOWN)
    prompt = learner.template.encode_prompt(asked, backbone.tokenizer, backbone.seed_token)
    if len(prompt) >= limit:
        raise HoldfastError(
            f"the question has {len(prompt)} tokens, and with its answer at most {limit} "
            "(template.max_length) were ever learned; ask a shorter one"
        )
    return prompt
