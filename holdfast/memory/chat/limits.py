"""What a memory on a chat model reads and learns: how long questions and answers may be."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError
from holdfast.model.chat import ChatForm
from holdfast.streams.item import quoted

LONGEST_QUESTION = 512  # tokens
LONGEST_ANSWER = 256  # tokens, taught or of the model's own


def question_tokens(form: ChatForm, question: str) -> list[int]:
    """A question's tokens. Raises HoldfastError when it is empty or too long."""
    tokens = form.question(question)
    if not question.strip():
        raise HoldfastError("the question is empty")
    if len(tokens) > LONGEST_QUESTION:
        raise HoldfastError(
            f"the question has {len(tokens)} tokens, and at most {LONGEST_QUESTION} are read; "
            "ask a shorter one"
        )
    return tokens


def check_fact(form: ChatForm, question: str, answer: str) -> None:
    """Raise HoldfastError for a fact that a model of this form cannot be taught."""
    question_tokens(form, question)
    tokens = form.answer(answer)
    if len(tokens) > LONGEST_ANSWER:
        raise HoldfastError(
            f"the answer to {quoted(question)} has {len(tokens)} tokens, and at most "
            f"{LONGEST_ANSWER} are learned; shorten it, or split it into several facts"
        )
    if form.text(tokens[:-1]) != answer.strip():
        raise HoldfastError(
            f"the answer to {quoted(question)} does not come back from this model's tokens "
            "as it was written (a symbol that its tokenizer changes); write it otherwise"
        )
