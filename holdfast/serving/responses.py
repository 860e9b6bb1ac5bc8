"""OpenAI's protocol of responses, without tools: a question, and its answer as one message.

Nothing is kept between two requests, so there is no conversation to go on with.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from pydantic import Field

from holdfast.core.errors import HoldfastError
from holdfast.serving.batcher import PendingAnswer
from holdfast.serving.events import Answered, AskedQuestion, Piece
from holdfast.serving.protocol import AnswerFormat, Body, ChatMessage, last_text, refuse


class InputMessage(ChatMessage):
    """A message of the input."""

    type: Literal["message"] = "message"


class TextSettings(Body):
    """How the text is written."""

    format: AnswerFormat = AnswerFormat()


class ResponseRequest(Body):
    """A request for a response: the input, or its last message, is the question."""

    model: str
    input: str | list[InputMessage] = Field(min_length=1)
    stream: bool = False
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextSettings = TextSettings()
    tools: list[Any] = []
    background: bool = False
    previous_response_id: str | None = None
    conversation: Any = None
    top_logprobs: int = 0

    def questions(self) -> list[AskedQuestion]:
        """The question. Raises HoldfastError for what a memory does not do."""
        self.text.format.check("text.format")
        refuse("tools", self.tools, "a memory calls no tools; leave them out")
        refuse("background", self.background, "a response is not kept; ask with stream instead")
        for name in ("previous_response_id", "conversation"):
            refuse(name, getattr(self, name), "a memory keeps no conversation; leave it out")
        refuse("top_logprobs", self.top_logprobs, "probabilities of tokens are not told")
        text = self.input if isinstance(self.input, str) else last_text(self.input)
        return [AskedQuestion(text, self.max_output_tokens)]


class ResponseForm:
    """How a response is written."""

    def __init__(self, model: str) -> None:
        self._id, self._item = f"resp_{uuid.uuid4().hex}", f"msg_{uuid.uuid4().hex}"
        self._head = {
            "id": self._id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        }

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        """The response, all at once."""
        [answer] = answers
        status = _status(answer)
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._head,
            "status": status,
            "incomplete_details": reason,
            "output": [self._message(answer.content, status)],
            "usage": _usage(answer),
            "holdfast": answer.values,
        }

    async def events(
        self, asked: Sequence[PendingAnswer], firsts: Sequence[Piece | Answered], *, usage: bool
    ) -> AsyncIterator[str]:
        """The same as server-sent events, while the answer is written."""
        number = 0
        try:
            async for event in self._events(asked[0], firsts[0]):
                yield _sent({**event, "sequence_number": number})
                number += 1
        except (HoldfastError, Exception) as error:  # noqa: BLE001 - the stream says it
            told = {"type": "error", "code": "internal", "message": f"{error}"[:300], "param": None}
            yield _sent({**told, "sequence_number": number})
        finally:
            asked[0].left = True

    async def _events(
        self, asked: PendingAnswer, event: Piece | Answered
    ) -> AsyncIterator[dict[str, Any]]:
        begun = {**self._head, "status": "in_progress", "output": [], "holdfast": event.values}
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        item: dict[str, Any] = {**self._message("", "in_progress"), "content": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        yield {"type": "response.content_part.added", **place, "part": _part("")}
        sent = ""
        while True:
            is_piece = isinstance(event, Piece)
            new = event.content if is_piece else event.content[len(sent) :]
            if new:
                delta = {"type": "response.output_text.delta", **place, "delta": new}
                yield {**delta, "logprobs": []}
                sent += new
            if isinstance(event, Answered):
                break
            event = await asked.next()
        whole, text = self.whole([event]), event.content
        yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": _part(text)}
        yield {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]}
        yield {"type": f"response.{_status(event)}", "response": whole}

    def _message(self, text: str, status: str) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(answer: Answered) -> str:
    return "completed" if answer.finish == "stop" else "incomplete"


def _usage(answer: Answered) -> dict[str, Any]:
    return {
        "input_tokens": answer.question_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.answer_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.question_tokens + answer.answer_tokens,
    }


def _sent(values: dict[str, Any]) -> str:
    return f"event: {values['type']}\ndata: {json.dumps(values)}\n\n"
