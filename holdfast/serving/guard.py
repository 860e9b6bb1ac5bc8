"""What a request must have before it is read: a known host, the key, a body of bounded size."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.serving.refusal import RefusalError

BODY_BYTES = 2**20
BODY_SECONDS = 30.0
# No answer is read as another type, embedded by another site, or kept by a cache.
_HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# So much is read and dropped, since few clients read an answer before their request is sent.
_DROPPED_BYTES = 16 * BODY_BYTES


class Guard:
    """Refuses, before the application sees them, requests that are foreign, too large or too slow.

    A request whose client leaves is cancelled.

    key: every path but ``open_paths`` needs it as a bearer token; None where no key is needed.
    hosts: the names that a request may be addressed to, against pages that let their own name
    point to this machine; None for any. A request from a page of another address is refused, but
    not from the page of one of ``proxied``, names under which a proxy is reached.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        key: str | None,
        hosts: Iterable[str] | None,
        proxied: Iterable[str] = (),
        open_paths: Iterable[str],
        seconds: float = BODY_SECONDS,
    ) -> None:
        self._application = application
        self._key = key
        self._hosts = None if hosts is None else frozenset(hosts)
        self._proxied = frozenset(proxied)
        self._open = frozenset(open_paths)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its whole body, or answer why not."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        try:
            self._check(scope["path"], Headers(scope=scope))
            body = await self._body(Headers(scope=scope), receive)
        except RefusalError as refusal:
            await _answer(refusal, send)
            return
        except _GoneError:
            return
        await self._pass_on(scope, body, receive, send)

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Let the application answer, until it has or the client leaves."""
        gone = asyncio.ensure_future(_disconnected(receive))
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        answered = False

        async def whole() -> Message:
            return messages.pop() if messages else await asyncio.shield(gone)

        async def sent(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_coded(_HEADERS)]}
            await send(message)
            answered = message["type"] == "http.response.body" and not message.get("more_body")

        async def answering() -> None:
            await self._application(scope, whole, sent)

        answer = asyncio.ensure_future(answering())
        try:
            await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not (answered or answer.done()):
                answer.cancel()
            # Where the client left, nobody is to be told.
            with contextlib.suppress(asyncio.CancelledError):
                await answer
        finally:
            gone.cancel()
            answer.cancel()

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            told = f"the host {host!r:.80} is not one of {known}; --allow-host NAME adds one"
            raise RefusalError(403, told, "host")
        self._check_page(path, headers)
        if self._key is None or path in self._open:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self._key.encode())
        if scheme.lower() != "bearer" or not right:
            raise RefusalError(401, "the API key is missing or wrong", "invalid_api_key")

    def _check_page(self, path: str, headers: Headers) -> None:
        """Refuse what a page of another site sends, with CORS or without; a link may lead here."""
        origin = headers.get("origin")
        if origin is not None:
            netloc = _split(origin).netloc
            if (
                netloc.lower() != headers.get("host", "").lower()
                and _name(netloc) not in self._proxied
            ):
                raise RefusalError(403, f"a page of {origin!r:.80} may not ask", "origin")
        linked = path in self._open and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not linked:
            raise RefusalError(403, "a page of another site may not ask", "origin")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > _DROPPED_BYTES:
            raise _too_large()
        until = time.monotonic() + self._seconds
        body = bytearray()
        size, more = 0, True
        while more:
            try:
                left = max(until - time.monotonic(), 0.0)
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                told = f"the body did not arrive within {self._seconds:g} s"
                raise RefusalError(408, told, "timeout") from None
            if message["type"] == "http.disconnect":
                raise _GoneError
            size += len(message.get("body", b""))
            if size <= BODY_BYTES:
                body += message.get("body", b"")
            more = message.get("more_body", False) and size <= _DROPPED_BYTES
        if size > BODY_BYTES:
            raise _too_large()
        return bytes(body)


async def _disconnected(receive: Receive) -> Message:
    """Wait until the client has left, or has its answer."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


class _GoneError(Exception):
    """The client left before its request was whole."""


def _too_large() -> RefusalError:
    return RefusalError(413, f"the body is larger than {BODY_BYTES} bytes", "too_large")


def _split(url: str) -> SplitResult:
    """The parts of a URL; all are empty where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _name(host: str) -> str:
    """The host without its port, and without the dot of a whole name: ``[::1]:80`` is ``::1``."""
    return (_split(f"//{host}").hostname or "").rstrip(".")


async def _answer(refusal: RefusalError, send: Send) -> None:
    body = json.dumps(refusal.body()).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",  # what is left of the request is not read
        **_HEADERS,
        **{name.lower(): value for name, value in refusal.headers().items()},
    }
    coded = _coded(headers)
    await send({"type": "http.response.start", "status": refusal.status, "headers": coded})
    await send({"type": "http.response.body", "body": body})


def _coded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
