"""The parts of OpenAI's protocol that a memory speaks: requests, responses and chunks.

Settings of sampling are accepted and ignored: a memory answers greedily. Bounds on tokens and stop
texts apply to answers that the model writes itself; taught answers come whole. No conversation is
kept between requests. A field whose type is a single value is refused, by name, with any other.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from holdfast.core.errors import HoldfastError
from holdfast.serving.answers import Answered, AskedQuestion, Piece
from holdfast.serving.batcher import PendingAnswer

MOST_PROMPTS = 64
# Texts before which an answer stops: one, or a list of up to four, as for OpenAI's servers.
Stops = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    Field(max_length=4),
]


class Body(BaseModel):
    """A part of a request. An explicit null means the default, as for OpenAI's own servers.

    A value of another type is refused: "5" is no number.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values


class AnswerFormat(Body):
    """The format of an answer, which is plain text."""

    type: Literal["text"] = "text"


class TextSettings(Body):
    """How the text of a response is written."""

    format: AnswerFormat = AnswerFormat()


class ContentPart(Body):
    """A part of a message's content; only text is read."""

    type: str
    text: str | None = None


class ChatMessage(Body):
    """A message of a chat, or of a response's input."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(Body):
    """Whether the last chunk of a stream tells the number of tokens."""

    include_usage: bool = False


class _Request(Body):
    model: str
    n: Literal[1] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Stops = []
    response_format: AnswerFormat = AnswerFormat()

    def _asked(self, texts: Sequence[str]) -> list[AskedQuestion]:
        most = self.max_completion_tokens or self.max_tokens
        return [AskedQuestion(text, most, tuple(self.stop)) for text in texts]


class ChatRequest(_Request):
    """A request for the next message of a chat: its last message is the question."""

    messages: list[ChatMessage] = Field(min_length=1)
    logprobs: Literal[False] = False
    top_logprobs: Literal[0] = 0
    modalities: list[Literal["text"]] = Field(["text"], min_length=1)
    tool_choice: Literal["auto", "none"] = "auto"
    function_call: Literal["auto", "none"] = "auto"  # its former name

    def questions(self) -> list[AskedQuestion]:
        return self._asked([_last_text(self.messages)])


class CompletionRequest(_Request):
    """A request for answers: each prompt is a question."""

    prompt: str | list[str]
    logprobs: None = None  # any number, even 0, asks for some
    echo: Literal[False] = False
    suffix: Literal[""] = ""
    best_of: Literal[1] = 1

    def questions(self) -> list[AskedQuestion]:
        questions = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if not 1 <= len(questions) <= MOST_PROMPTS:
            raise HoldfastError(f"{len(questions)} prompts; give 1 to {MOST_PROMPTS}")
        return self._asked(questions)


class ResponseRequest(Body):
    """A request for a response: the input, or its last message, is the question."""

    model: str
    input: str | list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextSettings = TextSettings()
    tools: list[Any] = Field([], max_length=0)
    tool_choice: Literal["auto", "none"] = "auto"
    background: Literal[False] = False
    previous_response_id: None = None
    conversation: None = None
    top_logprobs: Literal[0] = 0

    def questions(self) -> list[AskedQuestion]:
        text = self.input if isinstance(self.input, str) else _last_text(self.input)
        return [AskedQuestion(text, self.max_output_tokens)]


def _last_text(messages: Sequence[ChatMessage]) -> str:
    """The text of the last message; HoldfastError when that is no user's text."""
    last = messages[-1]
    if last.role != "user":
        raise HoldfastError(f"the last message is of the {last.role}; end with the user's")
    if isinstance(last.content, str):
        return last.content
    texts = []
    for part in last.content or ():
        if part.type not in ("text", "input_text") or part.text is None:
            raise HoldfastError(f"a part of the message is {part.type!r:.40}; only text is read")
        texts.append(part.text)
    return " ".join(texts)


async def _pieces(
    asked: PendingAnswer, event: Piece | Answered
) -> AsyncIterator[tuple[str, Piece | Answered]]:
    """Each event of an answer, with the text that is new in it. event: the first one."""
    sent = ""
    while isinstance(event, Piece):
        sent += event.content
        yield event.content, event
        event = await asked.next()
    yield event.content[len(sent) :], event


class Form:
    """Writes responses to a request, as a chat or as completions."""

    def __init__(self, asking: ChatRequest | CompletionRequest) -> None:
        self._chat = isinstance(asking, ChatRequest)
        self._usage = asking.stream_options.include_usage
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": asking.model,
        }

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        """The response, all at once."""
        choices = []
        for index, answer in enumerate(answers):
            message = {"message": {"role": "assistant", "content": answer.content}}
            content = message if self._chat else {"text": answer.content}
            choices.append(_choice(index, content, answer.values, answer.finish))
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answers)}

    async def events(
        self, asked: Sequence[PendingAnswer], firsts: Sequence[Piece | Answered]
    ) -> AsyncIterator[str]:
        """The response as server-sent events while answers are written; firsts: of each answer.

        The first chunk of an answer says where it comes from, its last one all that is known of it.
        """
        answers: list[Answered] = []
        try:
            for index, (pending, first) in enumerate(zip(asked, firsts, strict=True)):
                async for new, event in _pieces(pending, first):
                    if event is first:
                        delta = {"role": "assistant", "content": new}
                        yield self._chunk(index, delta, event.values)
                    elif new:
                        yield self._chunk(index, {"content": new})
                    if isinstance(event, Answered):
                        yield self._chunk(index, {}, event.values, event.finish)
                        answers.append(event)
        except Exception as error:  # noqa: BLE001 - the status is sent, so the stream says it
            yield _data({"error": {"message": f"{error}"[:300], "code": "internal"}})
            return
        if self._usage:
            yield self._event([], usage=_usage(answers))
        yield "data: [DONE]\n\n"

    def _chunk(self, index: int, delta: dict[str, str], *more: Any) -> str:
        content = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        return self._event([_choice(index, content, *more)])

    def _event(self, choices: list[dict[str, Any]], **further: Any) -> str:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return _data({**self._head, "object": kind, "choices": choices, **further})


def _choice(
    index: int, content: Any, values: dict[str, Any] | None = None, finish: str | None = None
) -> dict[str, Any]:
    choice = {"index": index, **content, "finish_reason": finish, "logprobs": None}
    return choice if values is None else {**choice, "holdfast": values}


def _usage(answers: Sequence[Answered]) -> dict[str, int]:
    questions = sum(answer.question_tokens for answer in answers)
    written = sum(answer.answer_tokens for answer in answers)
    return {
        "prompt_tokens": questions,
        "completion_tokens": written,
        "total_tokens": questions + written,
    }


def _data(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values)}\n\n"


class ResponseForm:
    """Writes responses of the responses API: one message, without tools."""

    def __init__(self, asking: ResponseRequest) -> None:
        self._item = f"msg_{uuid.uuid4().hex}"
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": asking.model,
            "error": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        }

    def whole(self, answers: Sequence[Answered]) -> dict[str, Any]:
        [answer] = answers
        status = "completed" if answer.finish == "stop" else "incomplete"
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._head,
            "status": status,
            "incomplete_details": reason,
            "output": [self._message(status, [_part(answer.content)])],
            "usage": {
                "input_tokens": answer.question_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": answer.answer_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.question_tokens + answer.answer_tokens,
            },
            "holdfast": answer.values,
        }

    async def events(
        self, asked: Sequence[PendingAnswer], firsts: Sequence[Piece | Answered]
    ) -> AsyncIterator[str]:
        number = 0
        begun = {**self._head, "status": "in_progress", "output": [], "holdfast": firsts[0].values}
        item = self._message("in_progress", [])
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            self._text_event("response.content_part.added", part=_part("")),
        ]
        try:
            async for new, event in _pieces(asked[0], firsts[0]):
                if new:
                    kind = "response.output_text.delta"
                    events.append(self._text_event(kind, delta=new, logprobs=[]))
                if isinstance(event, Answered):
                    events.extend(self._end(event))
                for values in events:
                    yield _response_data(values, number)
                    number += 1
                events.clear()
        except Exception as error:  # noqa: BLE001 - the status is sent, so the stream says it
            message = f"{error}"[:300]
            values = {"type": "error", "code": "internal", "message": message, "param": None}
            yield _response_data(values, number)

    def _end(self, answer: Answered) -> Iterator[dict[str, Any]]:
        """The events after the last text."""
        whole, text = self.whole([answer]), answer.content
        yield self._text_event("response.output_text.done", text=text, logprobs=[])
        yield self._text_event("response.content_part.done", part=_part(text))
        yield {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]}
        yield {"type": f"response.{whole['status']}", "response": whole}

    def _text_event(self, kind: str, **values: Any) -> dict[str, Any]:
        place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        return {"type": kind, **place, **values}

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        message = {"role": "assistant", "status": status, "content": content}
        return {"id": self._item, "type": "message", **message}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response_data(values: dict[str, Any], number: int) -> str:
    return f"event: {values['type']}\n{_data({**values, 'sequence_number': number})}"
