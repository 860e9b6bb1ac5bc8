"""Ask a model a free question."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.backbone.generation.greedy import decode_greedily
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.boxed import extract_boxed
from holdfast.learning.learner import Learner
from holdfast.streams import Item

_UNKNOWN = "?"  # an item needs an answer; the prompt does not contain it


@dataclass(frozen=True)
class Reply:
    r"""What a model wrote after a question. answer: what its first ``\boxed{}`` holds, if any."""

    text: str
    answer: str | None


def reply(learner: Learner, question: str) -> Reply:
    r"""Ask by greedy decoding, as recall is scored, up to a closed ``\boxed{}`` or the end token.

    Raises HoldfastError for a question that is empty, or too long for ``template.max_length``.
    """
    backbone, limit = learner.backbone, learner.config.template.max_length
    asked = Item(question, _UNKNOWN)
    prompt = learner.template.encode_prompt(asked, backbone.tokenizer, backbone.seed_token)
    if len(prompt) >= limit:
        raise HoldfastError(
            f"the question has {len(prompt)} tokens, and with its answer at most {limit} "
            "(template.max_length) were ever learned; ask a shorter one"
        )
    (tokens,) = decode_greedily(
        backbone,
        [prompt],
        [learner.config.evaluation.max_new_tokens],
        lambda _, tokens: extract_boxed(backbone.decode(tokens)) is not None,
    )
    text = backbone.decode(tokens)
    return Reply(text.strip(), extract_boxed(text))
