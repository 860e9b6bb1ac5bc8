"""How long the questions and answers of a memory may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.model.chat import ChatForm
from holdfast.model.context import context_of
from holdfast.streams.item import clean, quoted

LONGEST_QUESTION = 512  # tokens
LONGEST_ANSWER = 256  # tokens, taught or of the model's own


@dataclass(frozen=True)
class Limits:
    """The longest question and answer, in tokens, that are read and learned in a form."""

    form: ChatForm
    question: int
    answer: int

    def question_tokens(self, question: str) -> list[int]:
        """A question's tokens. Raises HoldfastError when it is empty, no text, or too long."""
        clean("question", question, "write one")
        tokens = self.form.question(question)
        if len(tokens) > self.question:
            raise HoldfastError(
                f"the question has {len(tokens)} tokens, and at most {self.question} are read; "
                "ask a shorter one"
            )
        return tokens

    def fits(self, question: str) -> bool:
        """Whether a question is short enough."""
        return len(self.form.question(question)) <= self.question

    def check_fact(self, question: str, answer: str) -> None:
        """Raise HoldfastError for a fact that a model of this form cannot be taught."""
        if not self.fits(question):
            raise HoldfastError(
                f"the question {quoted(question)} has {len(self.form.question(question))} tokens, "
                f"and at most {self.question} are read; shorten it"
            )
        tokens = self.form.answer(answer)
        if len(tokens) > self.answer:
            raise HoldfastError(
                f"the answer to {quoted(question)} has {len(tokens)} tokens, and at most "
                f"{self.answer} are learned; shorten it, or split it into several facts"
            )
        if self.form.text(tokens[:-1]) != answer.strip():
            raise HoldfastError(
                f"the answer to {quoted(question)} does not come back from this model's tokens "
                "as it was written (a symbol that its tokenizer changes); write it otherwise"
            )


def limits_of(form: ChatForm, config: Any) -> Limits:
    """The limits of a model: 512 and 256 tokens, or what its context holds together.

    config: the model's, of transformers.
    """
    context = context_of(config)
    if context is None:
        return Limits(form, LONGEST_QUESTION, LONGEST_ANSWER)
    room = context - len(form.prefix) - len(form.invocation)
    answer = min(LONGEST_ANSWER, room // 2)
    return Limits(form, min(LONGEST_QUESTION, room - answer), answer)
