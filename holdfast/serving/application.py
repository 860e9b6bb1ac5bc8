"""The routes of a served memory: OpenAI's protocol, facts, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.core.own import HeldDirectory
from holdfast.memory.states import lesson_states, state_values
from holdfast.serving.batcher import Batcher, whole
from holdfast.serving.idle import IdleConsolidation
from holdfast.serving.page import page_file
from holdfast.serving.posted import facts_in
from holdfast.serving.protocol import ChatRequest, CompletionRequest, Form
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.serving.responses import ResponseForm, ResponseRequest
from holdfast.serving.teacher import Teacher

if TYPE_CHECKING:
    from holdfast.serving.served_memory import ServedMemory  # which loads torch


# The page holds nothing of the memory, so these need no key.
PAGE = {"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"}
OPEN_PATHS = (*PAGE, "/health")
# The page loads its own files alone, so nothing that was taught can run as a script.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def application(
    service: ServedMemory, name: str, *, teach: bool, idle: IdleConsolidation | None = None
) -> FastAPI:
    """The application that serves a memory.

    name: of the model, for clients; teach: whether facts may be taught. What is on file and not
    learned yet is then learned at the start. idle: consolidates the memory when nobody asks.
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
    app.get("/lessons")(routes.lessons)
    app.get("/lessons/{number}")(routes.lesson)
    app.delete("/lessons")(routes.cancel_all)
    app.delete("/lessons/{number}")(routes.cancel)
    app.get("/health")(routes.health)
    for path, kind in PAGE.items():
        app.get(path, include_in_schema=False)(_file(page_file(path), kind))
    _tell_errors(app)
    app.state.routes = routes
    return app


class Routes:
    """What is done for each request. is_stuck: whether a step outlasted the end of the server."""

    is_stuck = False

    def __init__(
        self, service: ServedMemory, name: str, *, teach: bool, idle: IdleConsolidation | None
    ) -> None:
        self._service = service
        self._name = name
        self._idle = idle
        self._batcher = Batcher(service)
        directory = service.memory.directory
        self._teaching = Teacher(directory, self._batcher.call) if teach else None
        self._held: HeldDirectory | None = None
        self._check_here()

    @asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        """Before the first request and after the last."""
        if self._teaching is not None:
            await self._teaching.begin()
        if self._idle is not None:
            await self._idle.begin(lambda: self._batcher.busy)
        yield
        self.end()
        if self._idle is not None:
            await self._idle.end()
        if self._teaching is not None:
            await self._teaching.end()
        self.is_stuck = not await self._batcher.close()

    def end(self) -> None:
        """The server ends: whoever waits is told so."""
        self._batcher.end()
        if self._teaching is not None:
            self._teaching.ending()

    async def chat(self, request: ChatRequest) -> Response:
        """The last message of a chat is a question; its answer."""
        return await self._answer(Form("chat", self._name), request)

    async def completions(self, request: CompletionRequest) -> Response:
        """Every prompt is a question; their answers."""
        return await self._answer(Form("text", self._name), request)

    async def responses(self, request: ResponseRequest) -> Response:
        """The input, or its last message, is a question; its answer."""
        return await self._answer(ResponseForm(self._name), request)

    async def _answer(
        self, form: Form | ResponseForm, request: ChatRequest | CompletionRequest | ResponseRequest
    ) -> Response:
        self._check(request.model)
        self._check_here()
        self._note()
        asked = self._batcher.put(request.questions())
        if not request.stream:
            return JSONResponse(form.whole(await whole(asked)))
        # A question that is wrong is refused before a stream begins.
        firsts = [await one.next() for one in asked]
        options = None if isinstance(request, ResponseRequest) else request.stream_options
        usage = options is not None and options.include_usage
        events = form.events(asked, firsts, usage=usage)
        return StreamingResponse(events, media_type="text/event-stream")

    async def models(self) -> dict[str, Any]:
        """The one model."""
        return {"object": "list", "data": [await self.model(self._name)]}

    async def model(self, wanted: str) -> dict[str, Any]:
        """The model, if it is called so."""
        self._check(wanted)
        return {"id": self._name, "object": "model", "created": 0, "owned_by": "holdfast"}

    async def facts(self) -> dict[str, Any]:
        """What is remembered, and whether facts are taught."""
        self._check_here()
        told = await self._batcher.remembered()
        teaching = self._teaching
        return {**told, "teach": teaching is not None, "teaching": bool(teaching and teaching.busy)}

    async def teach(self, request: Request, wait: bool = False) -> Response:
        """Teach facts; what was learned, or the number of the lesson that will learn them."""
        teaching = self._taught()
        self._note()
        given, count = facts_in(await _json(request))
        self._check_here()
        status, values = await teaching.teach(given, count, wait=wait)
        self._check_here()  # a new memory is held from here on
        return JSONResponse(values, status_code=status)

    def _taught(self) -> Teacher:
        if self._teaching is None:
            told = "this memory is not taught here; start it with --teach"
            raise RefusalError(403, told, "no_teach")
        return self._teaching

    async def _lessons(self) -> list[dict[str, Any]]:
        self._check_here()
        # From the files alone, whatever the memory's thread is doing.
        states = await asyncio.to_thread(lesson_states, self._service.memory.directory)
        return [*map(state_values, states)]

    async def lessons(self) -> dict[str, Any]:
        """The state of every lesson."""
        return {"lessons": await self._lessons()}

    async def cancel_all(self) -> dict[str, Any]:
        """Cancel every lesson that is not learned."""
        waiting = [one for one in await self._lessons() if one["state"] != "learned"]
        await self._taught().cancel([one["lesson"] for one in waiting])
        return {"cancelled": waiting}

    async def cancel(self, number: int) -> dict[str, Any]:
        """Cancel one lesson that is not learned; the later ones move up."""
        teaching, state = self._taught(), await self.lesson(number)
        if state["state"] == "learned":
            told = f"lesson {number} is learned; teach another answer to correct it"
            raise RefusalError(409, told, "learned")
        await teaching.cancel([number])
        return {"cancelled": [state]}

    async def lesson(self, number: int) -> dict[str, Any]:
        """The state of one lesson."""
        found = await self._lessons()
        if not 1 <= number <= len(found):
            told = f"there is no lesson {number}; {len(found)} are on file"
            raise RefusalError(404, told, "lesson")
        return found[number - 1]

    async def health(self) -> dict[str, str]:
        """That the server answers."""
        return {"status": "ok"}

    def _check_here(self) -> None:
        """Raise RefusalError where the memory was moved or removed since it is served."""
        place = self._service.memory.directory
        if self._held is None:
            with suppress(OSError):  # a new memory is made by its first lesson
                self._held = HeldDirectory(place)
        elif self._held.is_gone:
            told = f"{place}: was moved or removed since it is served; serve it where it is now"
            raise RefusalError(410, told, "memory_gone")

    def _note(self) -> None:
        """Somebody asks or teaches; an open page, which looks every few seconds, is nobody."""
        if self._idle is not None:
            self._idle.asked()

    def _check(self, wanted: str) -> None:
        if wanted != self._name:
            told = f"there is no model {wanted!r:.80}; this is {self._name!r}"
            raise RefusalError(404, told, "model_not_found")


async def _json(request: Request) -> object:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusalError(415, "send facts as application/json", "content_type")
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise HoldfastError(f"the body is no JSON: {error}") from None


def _file(content: str, kind: str) -> Any:
    headers = {
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
    }

    async def serve() -> Response:
        return Response(content, media_type=kind, headers=headers)

    return serve


def _tell_errors(app: FastAPI) -> None:
    """Every error has the form of OpenAI's, and one sentence."""

    @app.exception_handler(RefusalError)
    async def refused(_: Request, error: RefusalError) -> Response:
        return _refusal(error)

    @app.exception_handler(HoldfastError)
    async def mistaken(_: Request, error: HoldfastError) -> Response:
        return _refusal(refusal_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        return _refusal(RefusalError(400, f"{place}: {first['msg']}"[:300], "invalid_value"))

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        return _refusal(RefusalError(error.status_code, str(error.detail), "http"))

    @app.exception_handler(Exception)
    async def ours(_: Request, error: Exception) -> Response:
        return _refusal(
            RefusalError(500, f"our fault: {type(error).__name__}: {error}"[:300], "internal")
        )


def _refusal(refusal: RefusalError) -> Response:
    headers = refusal.headers()
    return JSONResponse(refusal.body(), status_code=refusal.status, headers=headers)
