"""Connections of a server: none is idle for long, and none that does nothing keeps others out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.serving.refusal import RefusalError

MOST = 512  # below the 1024 open files that a process commonly may have
MOST_OF_ONE = 256  # of one address, which may be a proxy's
HEAD_SECONDS = 10.0  # for the head of a request


class Connection(H11Protocol):
    """uvicorn's connection, with a time for the head of every request and a bound on their number.

    One more connection than the bound, of its address or of all, closes the one that has waited for
    its client longest; where none waits, it is closed itself.
    """

    _idle_since = 0.0
    _timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; its head may be on the way."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or bool(cycle.response_complete)

    @property
    def waits_for_client(self) -> bool:
        """Whether the client's turn is next: to send a request or its body, or to read."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        others = [one for one in self.connections if isinstance(one, Connection)]
        own = [
            one for one in others if one.client and self.client and one.client[0] == self.client[0]
        ]
        if len(own) > MOST_OF_ONE:
            self._make_room(own)
        elif len(others) > MOST:
            self._make_room(others)

    def _make_room(self, connections: Iterable[Connection]) -> None:
        waiting = [one for one in connections if one.waits_for_client and one is not self]
        one = min(waiting, key=lambda other: other._idle_since, default=self)
        self.connections.discard(one)  # which is else done only after others were accepted
        one.transport.abort()

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
        """The server ends: a client that does not send its body, or does not read, is left."""
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

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request of HTTP, in the form of every other refusal."""
        told = "this is no request of HTTP that can be read; check its first line and its headers"
        refusal = RefusalError(400, told, "http")
        body = json.dumps(refusal.body()).encode()
        headers: list[tuple[str, str]] = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        events: tuple[Any, ...] = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
