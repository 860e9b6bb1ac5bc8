"""The parts of OpenAI's protocol that a memory speaks: requests, responses and chunks.

Settings of sampling are accepted and ignored: a memory answers greedily. A bound on the tokens
holds for what the model writes itself; what was taught is always answered whole.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from holdfast.core.errors import HoldfastError
from holdfast.serving.batcher import PendingAnswer
from holdfast.serving.events import Answered, AskedQuestion, Piece

MOST_PROMPTS = 64


class Body(BaseModel):
    """A part of a request. An explicit null means the default, as for OpenAI's own servers."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {key: value for key, value in values.items() if value is not None}
        return values


class AnswerFormat(Body):
    """The form of an answer."""

    type: str = "text"

    def check(self, name: str) -> None:
        """Raise HoldfastError for any form but text."""
        if self.type != "text":
            raise HoldfastError(
                f"{name}: {self.type!r:.40} is not written; a memory answers in the words that it "
                "was taught, so leave it out and read the text"
            )


class ContentPart(Body):
    """A part of a message's content; only text has a meaning here."""

    type: str
    text: str | None = None


class ChatMessage(Body):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(Body):
    """Whether the last chunk of a stream tells the number of tokens."""

    include_usage: bool = False


class _Request(Body):
    model: str
    n: Literal[1] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    response_format: AnswerFormat = AnswerFormat()
    logprobs: bool | int = False
    top_logprobs: int = 0
    echo: bool = False
    suffix: str = ""
    best_of: int = 1
    tool_choice: Any = "auto"

    def check(self) -> None:
        """Raise HoldfastError for what a memory does not do."""
        self.response_format.check("response_format")
        told = "probabilities of tokens are not told; a choice's holdfast object has what is known"
        refuse("logprobs", self.logprobs is not False, told)
        refuse("top_logprobs", self.top_logprobs, told)
        refuse("echo", self.echo, "a question is not repeated; leave it out")
        refuse("suffix", self.suffix, "text is not filled in; leave it out")
        refuse("best_of", self.best_of != 1, "there is one answer; leave it out")
        calls = self.tool_choice not in ("auto", "none")
        refuse("tool_choice", calls, "a memory calls no tools; leave it out")

    def asked(self, texts: Sequence[str]) -> list[AskedQuestion]:
        """The questions with the request's bound."""
        return [
            AskedQuestion(text, self.max_completion_tokens or self.max_tokens) for text in texts
        ]


class ChatRequest(_Request):
    """A request for the next message of a chat: its last message is the question."""

    messages: list[ChatMessage] = Field(min_length=1)

    def questions(self) -> list[AskedQuestion]:
        """The text of the last message. Raises HoldfastError when that is no user's text."""
        self.check()
        return self.asked([last_text(self.messages)])


class CompletionRequest(_Request):
    """A request for answers: each prompt is a question."""

    prompt: str | list[str]

    def questions(self) -> list[AskedQuestion]:
        """The questions. Raises HoldfastError for none, or for too many."""
        self.check()
        questions = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if not 1 <= len(questions) <= MOST_PROMPTS:
            raise HoldfastError(f"{len(questions)} prompts; give 1 to {MOST_PROMPTS}")
        return self.asked(questions)


def last_text(messages: Sequence[ChatMessage]) -> str:
    """The text of the last message. Raises HoldfastError when that is no user's text."""
    last = messages[-1]
    if last.role != "user":
        raise HoldfastError(f"the last message is of the {last.role}; end with the user's")
    if isinstance(last.content, str):
        return last.content
    for part in last.content or ():
        if part.type not in ("text", "input_text") or part.text is None:
            raise HoldfastError(f"a part of the message is {part.type!r:.40}; only text is read")
    return " ".join(part.text or "" for part in last.content or ())


def refuse(name: str, wanted: object, told: str) -> None:
    """Raise HoldfastError where ``wanted``, which a memory does not do, is so."""
    if wanted:
        raise HoldfastError(f"{name}: {told}")


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
            choices.append(_choice(index, said, answer.finish, answer.values))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answers)}

    async def events(
        self, asked: Sequence[PendingAnswer], firsts: Sequence[Piece | Answered], *, usage: bool
    ) -> AsyncIterator[str]:
        """The same as server-sent events, while answers are written, and ``[DONE]``.

        firsts: the first event of each answer. The first chunk of an answer says where it comes
        from, the last one all that is known of it.
        """
        answers: list[Answered] = []
        try:
            for index, (one, first) in enumerate(zip(asked, firsts, strict=True)):
                async for chunk in self._chunks(index, one, first, answers):
                    yield chunk
        except Exception as error:  # noqa: BLE001 - the status is sent, so the stream says it
            yield _data({"error": {"message": f"{error}"[:300], "code": "internal"}})
            return
        finally:
            for one in asked:
                one.left = True
        if usage:
            yield self._event([], usage=_usage(answers))
        yield "data: [DONE]\n\n"

    async def _chunks(
        self, index: int, asked: PendingAnswer, event: Piece | Answered, answers: list[Answered]
    ) -> AsyncIterator[str]:
        """One answer; the whole of it is added to ``answers``."""
        yield self._chunk(index, event.content, event.values)
        sent = event.content
        while isinstance(event, Piece):
            event = await asked.next()
            new = event.content if isinstance(event, Piece) else event.content[len(sent) :]
            if new:
                yield self._chunk(index, new, None)
                sent += new
        said: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        yield self._event([_choice(index, said, event.finish, event.values)])
        answers.append(event)

    def _chunk(self, index: int, text: str, values: dict[str, Any] | None) -> str:
        """Some text; the first of an answer has ``values``."""
        said: dict[str, Any] = {"text": text}
        if self.chat:
            role = {} if values is None else {"role": "assistant"}
            said = {"delta": {**role, "content": text}}
        return self._event([_choice(index, said, None, values)])

    def _event(self, choices: list[dict[str, Any]], **further: Any) -> str:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return _data({**self._head, "object": kind, "choices": choices, **further})


def _choice(
    index: int, said: dict[str, Any], finish: str | None, values: dict[str, Any] | None
) -> dict[str, Any]:
    told = {"index": index, **said, "finish_reason": finish, "logprobs": None}
    return told if values is None else {**told, "holdfast": values}


def _usage(answers: Sequence[Answered]) -> dict[str, int]:
    questions = sum(answer.question_tokens for answer in answers)
    said = sum(answer.answer_tokens for answer in answers)
    return {
        "prompt_tokens": questions,
        "completion_tokens": said,
        "total_tokens": questions + said,
    }


def _data(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values)}\n\n"
