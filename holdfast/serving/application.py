"""The routes of a served memory: OpenAI's protocol, facts, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import HeldDirectory
from holdfast.memory.states import lesson_states, state_values
from holdfast.memory.telling import remembered
from holdfast.serving.batcher import Batcher, PendingAnswer, reading, whole
from holdfast.serving.idle import IdleConsolidation
from holdfast.serving.protocol import (
    ChatRequest,
    CompletionRequest,
    Form,
    ResponseForm,
    ResponseRequest,
)
from holdfast.serving.refusal import RefusalError, reading_files, refusal_of
from holdfast.serving.teacher import Teacher, facts_in

if TYPE_CHECKING:
    from holdfast.serving.served_memory import ServedMemory  # which loads torch


Value = TypeVar("Value")
_EVERY = 0.2  # seconds between checks whether a waiting client has left
# The page's paths: the file in ``page/`` at each, and its type.
_PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
OPEN_PATHS = (*_PAGE, "/health")  # nothing of the memory is there, so no key is needed
# The page loads its own files alone, so nothing that was taught can run as a script.
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


def application(
    service: ServedMemory, name: str, *, teach: bool, idle: IdleConsolidation | None = None
) -> FastAPI:
    """The application that serves a memory. name: the model's, for clients.

    teach: let clients teach facts, and learn at the start what is on file but not learned yet;
    idle: consolidates the memory when nobody asks.
    """
    routes = Routes(service, name, teach=teach, idle=idle)
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        lifespan=routes.life,
    )
    app.post("/v1/chat/completions")(routes.chat)
    app.post("/v1/completions")(routes.completions)
    app.post("/v1/responses")(routes.responses)
    app.get("/v1/models")(routes.models)
    app.get("/v1/models/{wanted:path}")(routes.model)
    app.get("/facts")(routes.facts)
    app.post("/facts")(routes.teach)
    app.delete("/facts")(routes.forget)
    app.get("/lessons")(routes.lessons)
    app.get("/lessons/{number}")(routes.lesson)
    app.delete("/lessons")(routes.cancel_all)
    app.delete("/lessons/{number}")(routes.cancel)
    app.get("/health")(routes.health)
    app.head("/health", include_in_schema=False)(routes.health)  # as monitors ask
    for path in _PAGE:
        app.add_route(path, _page_file, include_in_schema=False)
    for kind in (RefusalError, HoldfastError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _error)
    app.state.routes = routes
    return app


class Routes:
    """The handlers of the routes. is_stuck: whether the model's last step outlasts the server."""

    is_stuck = False

    def __init__(
        self, service: ServedMemory, name: str, *, teach: bool, idle: IdleConsolidation | None
    ) -> None:
        self._name = name
        self._idle = idle
        self._batcher = Batcher(service)
        self._directory = service.memory.directory
        self._teach, self._teacher = teach, Teacher(self._directory, self._batcher.call)
        self._held: HeldDirectory | None = None
        self._check_here()

    @asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        if self._teach:
            self._teacher.start()
        if self._idle is not None:
            self._idle.begin(lambda: self._batcher.busy)
        yield
        self.end()
        if self._idle is not None:
            await self._idle.end()
        await self._teacher.end()
        self.is_stuck = not await self._batcher.close()

    def end(self) -> None:
        self._batcher.end()
        self._teacher.ending()

    async def chat(self, asking: ChatRequest, request: Request) -> Response:
        """Answer the question that is the last message of a chat."""
        return await self._answer(asking, request)

    async def completions(self, asking: CompletionRequest, request: Request) -> Response:
        """Answer the questions that are the prompts."""
        return await self._answer(asking, request)

    async def responses(self, asking: ResponseRequest, request: Request) -> Response:
        """Answer the question that is the input or its last message."""
        return await self._answer(asking, request)

    async def _answer(
        self, asking: ChatRequest | CompletionRequest | ResponseRequest, request: Request
    ) -> Response:
        await self.model(asking.model)
        self._check_here()
        self._note_activity()
        form = ResponseForm(asking) if isinstance(asking, ResponseRequest) else Form(asking)
        asked = self._batcher.put(asking.questions())
        if asking.stream:
            events = _events(form, asked)
            # An error in a question is raised before the stream begins, with its own status.
            await _until_disconnected(request, anext(events))
            return StreamingResponse(events, media_type="text/event-stream")
        answers = await _until_disconnected(request, whole(asked))
        return JSONResponse(form.whole(answers) if answers else None)

    async def models(self) -> dict[str, Any]:
        """List the one model."""
        return {"object": "list", "data": [await self.model(self._name)]}

    async def model(self, wanted: str) -> dict[str, Any]:
        """Describe the model; status 404 for another name."""
        if wanted != self._name:
            message = f"there is no model {wanted!r:.80}; this is {self._name!r}"
            raise RefusalError(404, message, "model_not_found")
        return {"id": self._name, "object": "model", "created": 0, "owned_by": "holdfast"}

    async def facts(self) -> dict[str, Any]:
        """List all facts, whether clients may teach, and whether a lesson is being learned."""
        self._check_here()
        known = await self._batcher.call(remembered)
        return {**known, "teach": self._teach, "teaching": self._teacher.busy}

    async def teach(self, request: Request, wait: bool = False) -> Response:
        """Teach facts; respond with their lesson's number, or with ``wait`` when it is learned."""
        self._check_teaching()
        self._note_activity()
        facts, count = facts_in(await _json(request))
        self._check_here()
        status, values = await self._teacher.teach(facts, count, wait=wait)
        self._check_here()  # holds the directory of a memory that this request made
        return JSONResponse(values, status_code=status)

    async def forget(
        self, question: Annotated[list[str], Query(min_length=1, max_length=100)]
    ) -> dict[str, Any]:
        """Forget facts by their questions, one query parameter each."""
        self._check_teaching()
        self._check_here()
        self._note_activity()
        return await self._teacher.forget(question)

    async def lessons(self) -> dict[str, Any]:
        """List the state of every lesson; needs files alone, so it waits for no other request."""
        self._check_here()
        with reading_files():
            states = await asyncio.to_thread(lesson_states, self._directory)
        return {"lessons": [*map(state_values, states)]}

    async def cancel_all(self) -> dict[str, Any]:
        """Cancel every lesson that is not learned."""
        self._check_teaching()
        await self.lessons()  # raises where the memory is gone or damaged
        return {"cancelled": [*map(state_values, await self._teacher.cancel(None))]}

    async def cancel(self, number: int) -> dict[str, Any]:
        """Cancel one lesson that is not learned; the later ones move up."""
        self._check_teaching()
        if (await self.lesson(number))["state"] == "learned":
            message = f"lesson {number} is learned; teach another answer to correct it"
            raise RefusalError(409, message, "learned")
        return {"cancelled": [*map(state_values, await self._teacher.cancel([number]))]}

    async def lesson(self, number: int) -> dict[str, Any]:
        """Show the state of one lesson."""
        lessons: list[dict[str, Any]] = (await self.lessons())["lessons"]
        if not 1 <= number <= len(lessons):
            message = f"there is no lesson {number}; {len(lessons)} are on file"
            raise RefusalError(404, message, "lesson")
        return lessons[number - 1]

    async def health(self) -> dict[str, str]:
        """Say that the server answers."""
        return {"status": "ok"}

    def _check_here(self) -> None:
        if self._held is None:
            with suppress(OSError):  # a new memory is made by its first lesson
                self._held = HeldDirectory(self._directory)
        elif self._held.is_gone:
            message = "was moved or removed since it is served; serve it where it is now"
            raise RefusalError(410, f"{self._directory}: {message}", "memory_gone")

    def _check_teaching(self) -> None:
        if not self._teach:
            message = "this memory is not taught here; start it with --teach"
            raise RefusalError(403, message, "no_teach")

    def _note_activity(self) -> None:
        # The regular requests of an open page do not count.
        if self._idle is not None:
            self._idle.asked()


async def _until_disconnected(request: Request, work: Awaitable[Value]) -> Value | None:
    """The value of ``work``; None if the client leaves before, and the work is cancelled."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait({task}, timeout=_EVERY))[0]:
        if await request.is_disconnected():
            task.cancel()
            return None
    return task.result()


async def _events(form: Form | ResponseForm, asked: Sequence[PendingAnswer]) -> AsyncIterator[str]:
    """Yield an empty text once all answers have begun, then the response's events."""
    with reading(asked):
        firsts = [await pending.next() for pending in asked]
        yield ""
        async for event in form.events(asked, firsts):
            yield event


async def _json(request: Request) -> object:
    if not _is_json(request):
        raise RefusalError(415, "send facts as application/json", "content_type")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HoldfastError(f"the body is no JSON: {error}") from None


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


async def _page_file(request: Request) -> Response:
    name, kind = _PAGE[request.url.path]
    file = resources.files("holdfast.serving") / "page" / name
    return Response(file.read_bytes(), media_type=kind, headers=_PAGE_HEADERS)


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusalError):
        refusal = error
    elif isinstance(error, HoldfastError):
        refusal = refusal_of(error)
    elif isinstance(error, RequestValidationError):
        refusal = _invalid(request, error)
    elif isinstance(error, HTTPException):
        refusal = RefusalError(error.status_code, str(error.detail), "http")
    else:
        message = f"our fault: {type(error).__name__}: {error}"
        refusal = RefusalError(500, message[:300], "internal")
    return JSONResponse(refusal.body(), refusal.status, refusal.headers())


def _invalid(request: Request, error: RequestValidationError) -> RefusalError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":  # its place is a position in the body
        return RefusalError(400, f"the body is no JSON: {first['ctx']['error']}", "invalid_value")
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    if not place and first["type"] != "missing" and not _is_json(request):
        return RefusalError(415, "send the request as application/json", "content_type")
    return RefusalError(400, f"{place or 'the body'}: {first['msg']}"[:300], "invalid_value")
