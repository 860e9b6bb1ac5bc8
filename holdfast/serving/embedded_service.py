"""A memory on the embedded model as it is served: an answer is known only once it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Reply
from holdfast.memory.batch_states import batch_states
from holdfast.memory.chat.states import state_values
from holdfast.memory.memory import Memory
from holdfast.memory.telling import reply_values
from holdfast.serving.remembered import remembered
from holdfast.serving.service import NOT_TAUGHT, Answered, AskedQuestion, OnThread, Steps
from holdfast.serving.teaching import Teacher

HALF_FORGOTTEN = "I was taught that, but have half forgotten it."


class EmbeddedService:
    """Answers with a memory on the embedded model."""

    batch = 64

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def refresh(self) -> bool:
        return self.memory.refresh()

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        """All answers in one step. A bound on their length has no meaning for taught answers."""
        yield list(enumerate(_answers(self.memory, [one.text for one in questions])))

    def remembered(self) -> dict[str, Any]:
        return remembered(self.memory)

    async def lessons(self, on_thread: OnThread) -> list[dict[str, Any]]:
        states = await on_thread(batch_states)
        return [state_values(state) for state in states]

    def teaching(self, on_thread: OnThread) -> Teacher:
        return Teacher(self.memory.directory, self.memory.horizon)


def _answers(memory: Memory, questions: Sequence[str]) -> list[Answered | HoldfastError]:
    """For each question its answer, or what is wrong with it."""
    different = list(dict.fromkeys(questions))
    try:
        found = dict(zip(different, memory.replies(different), strict=True))
    except HoldfastError:
        return [_answer_alone(memory, question) for question in questions]
    return [_answered(memory, question, found[question]) for question in questions]


def _answer_alone(memory: Memory, question: str) -> Answered | HoldfastError:
    try:
        return _answered(memory, question, memory.reply(question))
    except HoldfastError as error:
        return error


def _answered(memory: Memory, question: str, reply: Reply) -> Answered:
    values = reply_values(memory, question, reply)
    if reply.taught is False:
        content = HALF_FORGOTTEN if values["on_file"] else NOT_TAUGHT
    else:
        content = reply.answer or reply.text
    encode = memory.load().backbone.tokenizer.encode
    return Answered(content, values, len(encode(reply.question)), len(encode(content)))
