"""Checks requests before the application reads them: the host, the key, the size of the body.

It also bounds connections: idle ones are closed after a while, and make room for new ones.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.serving.refusal import RefusalError

MOST_CONNECTIONS = 512  # below the 1024 open files that a process commonly may have
MOST_OF_ONE = 256  # from one address, which may be a proxy's
HEAD_SECONDS = 10.0  # for the head of a request
BODY_BYTES = 2**20
BODY_SECONDS = 30.0
# Of a body that is too large, so much is read and dropped: few clients read before they have sent.
_DROPPED_BYTES = 16 * BODY_BYTES
# No response is read as another type, embedded by another site, or kept by a cache.
_HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Guard:
    """Refuses, before the application sees them, requests that are foreign, too large or too slow.

    key: every path but ``open_paths`` needs it as a bearer token; None if no key is needed.
    hosts: the names that a request may be addressed to, None for any; this refuses pages whose own
    name was made to point to this machine. proxied: names under which a proxy is reached; their
    pages may send requests, those of other sites may not.
    """

    application: ASGIApp
    _: KW_ONLY
    key: str | None
    hosts: Collection[str] | None
    proxied: Collection[str] = ()
    open_paths: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or refuse it."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(scope["path"], headers)
            body = await _body(headers, receive)
        except RefusalError as refusal:
            # The rest of the request is not read.
            further = {**_HEADERS, **refusal.headers(), "connection": "close"}
            response = JSONResponse(refusal.body(), refusal.status, further)
            await response(scope, receive, send)
            return
        if body is not None:
            await self._pass_on(scope, body, receive, send)

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def whole() -> Message:
            return messages.pop() if messages else await receive()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self.application(scope, whole, sent)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self.hosts is not None and _name(host) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            message = f"the host {host!r:.80} is not one of {names}; --allow-host NAME adds one"
            raise RefusalError(403, message, "host")
        self._check_page(path, headers)
        if self.key is None or path in self.open_paths:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode(), self.key.encode())
        if scheme.lower() != "bearer" or not right:
            raise RefusalError(401, "the API key is missing or wrong", "invalid_api_key")

    def _check_page(self, path: str, headers: Headers) -> None:
        """Refuse requests from pages of other sites, except links from there to open paths."""
        origin = headers.get("origin")
        if origin is not None:
            host = origin.partition("://")[2].lower()
            if host != headers.get("host", "").lower() and _name(host) not in self.proxied:
                raise RefusalError(403, f"a page of {origin!r:.80} may not ask", "origin")
        linked = path in self.open_paths and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not linked:
            raise RefusalError(403, "a page of another site may not ask", "origin")


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body of a request; None if the client leaves before."""
    length = headers.get("content-length", "0")
    too_large = RefusalError(413, f"the body is larger than {BODY_BYTES} bytes", "too_large")
    if length.isdecimal() and int(length) > _DROPPED_BYTES:
        raise too_large
    body, size, more = bytearray(), 0, True
    until = asyncio.get_running_loop().time() + BODY_SECONDS
    while more:
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            why = f"the body did not arrive within {BODY_SECONDS:g} s"
            raise RefusalError(408, why, "timeout") from None
        if message["type"] == "http.disconnect":
            return None
        size += len(message.get("body", b""))
        if size <= BODY_BYTES:
            body += message.get("body", b"")
        more = message.get("more_body", False) and size <= _DROPPED_BYTES
    if size > BODY_BYTES:
        raise too_large
    return bytes(body)


def _name(host: str) -> str:
    """The host without its port and without a final dot: ``[::1]:80`` gives ``::1``."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class Connection(H11Protocol):
    """uvicorn's connection, with a time limit for a request's head and a limit on their number.

    A new connection above the limit, of its address or of all, closes the one that has waited
    longest for its client; if none waits, the new one is closed.
    """

    _idle_since = 0.0
    _timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; the head of one may be arriving."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or bool(cycle.response_complete)

    @property
    def waits_for_client(self) -> bool:
        """Whether the client's turn is next: to send a request or its body, or to read."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        address = self.client and self.client[0]
        peers = [peer for peer in self.connections if isinstance(peer, Connection)]
        neighbours = [
            peer for peer in peers if address and peer.client and peer.client[0] == address
        ]
        if len(neighbours) > MOST_OF_ONE or len(peers) > MOST_CONNECTIONS:
            crowd = neighbours if len(neighbours) > MOST_OF_ONE else peers
            waiting = [peer for peer in crowd if peer.waits_for_client and peer is not self]
            longest = min(waiting, key=lambda peer: peer._idle_since, default=self)
            self.connections.discard(longest)  # else done only after others are accepted
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_idle:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends: abort a request whose client neither sends its body nor reads."""
        if self.waits_for_client and not self.is_idle:
            self.transport.abort()
        else:
            super().shutdown()

    def _wait_for_head(self) -> None:
        self._stop_timer()
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
