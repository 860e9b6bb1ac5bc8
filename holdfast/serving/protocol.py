"""The parts of OpenAI's protocol that a memory speaks: requests, responses and chunks.

Settings of sampling are accepted and ignored: a memory answers greedily.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from holdfast.core.errors import HoldfastError
from holdfast.serving.batcher import Answered

MOST_PROMPTS = 64


class ContentPart(BaseModel):
    """A part of a message's content; only text has a meaning here."""

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(BaseModel):
    """Whether the last chunk of a stream tells the number of tokens."""

    include_usage: bool = False


class _Request(BaseModel):
    model: str
    n: Literal[1] | None = 1
    stream: bool = False
    stream_options: StreamOptions | None = None


class ChatRequest(_Request):
    """A request for the next message of a chat: its last message is the question."""

    messages: list[ChatMessage] = Field(min_length=1)

    def question(self) -> str:
        """The text of the last message. Raises HoldfastError when that is no user's text."""
        last = self.messages[-1]
        if last.role != "user":
            raise HoldfastError(f"the last message is of the {last.role}; end with the user's")
        if isinstance(last.content, str):
            return last.content
        parts = last.content or []
        if strange := [part.type for part in parts if part.type != "text" or part.text is None]:
            raise HoldfastError(f"a part of the message is {strange[0]!r:.40}; only text is read")
        return " ".join(part.text or "" for part in parts)


class CompletionRequest(_Request):
    """A request for answers: each prompt is a question."""

    prompt: str | list[str]

    def questions(self) -> list[str]:
        """The questions. Raises HoldfastError for none, or for too many."""
        questions = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if not 1 <= len(questions) <= MOST_PROMPTS:
            raise HoldfastError(f"{len(questions)} prompts; give 1 to {MOST_PROMPTS}")
        return questions


class Form:
    """How responses of one kind are written. kind: ``chat`` or ``text``."""

    def __init__(self, kind: Literal["chat", "text"], model: str) -> None:
        self.chat = kind == "chat"
        self._head = {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        """The response, all at once."""
        choices = []
        for index, answer in enumerate(answers):
            said: dict[str, Any] = {"text": answer.content}
            if self.chat:
                said = {"message": {"role": "assistant", "content": answer.content}}
            choices.append(_choice(index, said, "stop", answer))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answers)}

    def events(self, answers: Sequence[Answered], *, usage: bool) -> Iterator[str]:
        """The same as server-sent events: what an answer says, that it ended, and ``[DONE]``.

        An answer comes in one piece: whether it was taught is known only at its end.
        """
        kind = "chat.completion.chunk" if self.chat else "text_completion"

        def event(choices: list[dict[str, Any]], **further: Any) -> str:
            return _event({**self._head, "object": kind, "choices": choices, **further})

        for index, answer in enumerate(answers):
            if self.chat:
                delta = {"role": "assistant", "content": answer.content}
                yield event([_choice(index, {"delta": delta}, None, None)])
                yield event([_choice(index, {"delta": {}}, "stop", answer)])
            else:
                yield event([_choice(index, {"text": answer.content}, "stop", answer)])
        if usage:
            yield event([], usage=_usage(answers))
        yield "data: [DONE]\n\n"


def _choice(
    index: int, said: dict[str, Any], finish: str | None, answer: Answered | None
) -> dict[str, Any]:
    told = {"index": index, **said, "finish_reason": finish, "logprobs": None}
    return told if answer is None else {**told, "holdfast": answer.values}


def _usage(answers: Sequence[Answered]) -> dict[str, int]:
    questions = sum(answer.question_tokens for answer in answers)
    said = sum(answer.answer_tokens for answer in answers)
    return {
        "prompt_tokens": questions,
        "completion_tokens": said,
        "total_tokens": questions + said,
    }


def _event(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values)}\n\n"
