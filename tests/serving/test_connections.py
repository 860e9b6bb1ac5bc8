"""Connections that send nothing, or too slowly, keep nobody out."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from holdfast.serving import guard as connections
from holdfast.serving.guard import Connection

OK = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
STUCK = [
    b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
    OK.replace(b"/health", b"/large"),
    OK.replace(b"/health", b"/large") + OK,
]


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    while scope["path"] == "/read" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": bytes(2**17), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def listening(log_level: str = "critical") -> Iterator[int]:
    """The port of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        application,
        http=Connection,
        lifespan="off",
        log_level=log_level,
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def connected(port: int, first: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=20)
    one.sendall(first)
    return one


def answered(port: int, request: bytes = OK) -> bytes:
    with connected(port, request) as one:
        return one.recv(12)


def was_closed(one: socket.socket) -> bool:
    """Whether it was, for another: sooner than an idle one is."""
    one.settimeout(connections.HEAD_SECONDS / 2)
    return one.recv(1) == b""


def test_idle_connections_of_one_address_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE", 20)
    with listening() as port:
        idle = [connected(port, b"" if number % 2 else b"GET / HT") for number in range(100)]
        assert answered(port) == b"HTTP/1.1 200"
        assert was_closed(idle[0])
        for one in idle:
            one.close()


def test_nor_do_those_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    with listening() as port:
        idle = [connected(port) for _ in range(100)]
        assert answered(port) == b"HTTP/1.1 200"
        assert was_closed(idle[0])
        for one in idle:
            one.close()


@pytest.mark.parametrize("request_", STUCK)
def test_nor_do_clients_that_neither_send_the_body_nor_read(
    monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE", 5)
    with listening() as port:
        stuck = [connected(port, request_) for _ in range(5)]
        time.sleep(0.5)
        assert answered(port) == b"HTTP/1.1 200"
        for one in stuck:
            one.close()


@pytest.mark.parametrize("request_", STUCK)
def test_the_server_ends_without_them(capsys: pytest.CaptureFixture[str], request_: bytes) -> None:
    with listening("error") as port:
        one = connected(port, request_)
        time.sleep(0.5)
    one.close()
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_being_answered_is_not_closed_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE", 2)
    with listening() as port:
        busy = [connected(port, OK.replace(b"/health", b"/slow")) for _ in range(2)]
        time.sleep(0.3)
        with connected(port) as further:
            assert further.recv(1) == b""
        assert [one.recv(12) for one in busy] == [b"HTTP/1.1 200"] * 2
        for one in busy:
            one.close()


@pytest.mark.parametrize("before", [b"", OK])
def test_a_head_that_does_not_arrive(monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    """Also the second one of a connection, and one that comes a letter at a time."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with listening() as port, connected(port, before) as one:
        begin = time.monotonic()
        while time.monotonic() - begin < 5:
            try:
                one.sendall(b"G")
            except OSError:
                break
            time.sleep(0.1)
        assert time.monotonic() - begin < 3


def test_what_is_no_request_is_refused_in_json() -> None:
    with listening() as port, connected(port, b"GET ./-\xc3 HTTP/1.1\r\n\r\n") as one:
        head, _, body = one.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and b"application/json" in head
    assert b"this is no request of HTTP" in body
