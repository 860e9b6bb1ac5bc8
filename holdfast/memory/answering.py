"""Ask a model free questions: what it answers, how sure it is, and whether it was taught that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.backbone.generation.greedy import decode_greedily
from holdfast.backbone.likelihood import token_log_likelihoods
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.boxed import extract_boxed
from holdfast.learning.learner import Learner
from holdfast.memory.knowledge import Knowledge
from holdfast.memory.spelling import capitals, joined, spellings
from holdfast.streams import Item

_UNKNOWN = "?"  # an item needs an answer; the prompt does not contain it


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

    Tried are those of :func:`~holdfast.memory.spelling.spellings`, and capitals word by word.
    Without a replay token, which begins a density, the questions stay as they are.
    """
    if learner.backbone.seed_token is None:
        return [" ".join(question.split()) for question in questions]
    found = _most_likely(learner, [spellings(question) for question in questions])
    further = _with_likelihoods(learner, [capitals(best) for best, _ in found])
    better = [
        [text for text, value in others if value > likelihood]
        for (_, likelihood), others in zip(found, further, strict=True)
    ]
    choices = [
        list(dict.fromkeys([joined(best, ones), *ones])) if ones else [best]
        for (best, _), ones in zip(found, better, strict=True)
    ]
    return [best for best, _ in _most_likely(learner, choices)]


def _most_likely(learner: Learner, texts: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """Of each group of questions the most probable, and its log-likelihood."""
    groups = _with_likelihoods(learner, texts)
    return [max(group, key=lambda pair: pair[1]) for group in groups]


def _with_likelihoods(
    learner: Learner, texts: Sequence[Sequence[str]]
) -> list[list[tuple[str, float]]]:
    values = iter(_likelihoods(learner, [text for group in texts for text in group]))
    return [[(text, next(values)) for text in group] for group in texts]


def _likelihoods(learner: Learner, questions: Sequence[str]) -> list[float]:
    """``log p(prompt | replay token)`` of each question, in nats."""
    prompts = [_prompt(learner, question) for question in questions]
    return [float(one.sum()) for one in token_log_likelihoods(learner.backbone, prompts)]


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
