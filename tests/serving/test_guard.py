"""Who may ask: hosts, pages of other sites, proxies, keys, slow bodies, and idle connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from holdfast.core.errors import HoldfastError
from holdfast.serving import guard
from holdfast.serving.application import OPEN_PATHS, application
from holdfast.serving.guard import Connection, Guard
from holdfast.serving.listening import Address, bind, host_name, key_for
from tests.serving.test_batcher import Writing

CROSS = {"Sec-Fetch-Site": "cross-site"}


def client(address: Address, *proxied: str, key: str | None = None) -> TestClient:
    """A client of an application behind the guard, addressed as the server printed it."""
    service = Writing()
    inside = application(service, "m", teach=False)  # type: ignore[arg-type]
    hosts = {*address.names, *proxied} if address.is_local else None
    guarded = Guard(inside, key=key, hosts=hosts, proxied=proxied, open_paths=OPEN_PATHS)
    return TestClient(guarded, base_url=address.url, raise_server_exceptions=False)


@pytest.fixture
def here() -> Address:
    address = bind("127.0.0.1", 0)
    address.listener.close()
    return address


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "127.1", "0.0.0.0"]
)
def test_the_printed_address_always_works(host: str) -> None:
    address = bind(host, 0)
    address.listener.close()
    assert client(address).get("/health").status_code == 200
    page = client(address).get("/health", headers={"Origin": address.url})
    assert page.status_code == 200
    assert "0.0.0.0" not in address.url


def test_behind_a_proxy(here: Address) -> None:
    """It may pass the host on, or write its own."""
    name = "memory.example.org"
    forwarded = {"Host": f"{name}:8443", "Origin": f"https://{name}:8443"}
    rewritten = {"Origin": f"https://{name}"}
    for headers in (forwarded, rewritten):
        assert client(here).get("/v1/models", headers=headers).status_code == 403
        assert client(here, name).get("/v1/models", headers=headers).status_code == 200
    message = client(here).get("/health", headers={"Host": name}).json()["error"]["message"]
    assert "--allow-host" in message
    other = {"Origin": "https://other.example.org"}
    assert client(here, name).get("/v1/models", headers=other).status_code == 403
    assert key_for(here, None) is None
    assert key_for(here, None, proxied=True) is not None  # others reach it


@pytest.mark.parametrize(
    "wrong", ["", "https://a.b", "a.b:80", "a b", "*.b", "\N{LATIN SMALL LETTER E WITH ACUTE}.b"]
)
def test_what_is_no_name_of_a_host(wrong: str) -> None:
    with pytest.raises(HoldfastError, match="is no name of a host; give it without scheme"):
        host_name(wrong)
    assert host_name(" Memory.Example.ORG. ") == "memory.example.org"


def test_a_page_of_another_site_gets_nothing_but_may_link_here(here: Address) -> None:
    asked = client(here, key="mine")
    for path in ("/facts", "/v1/models", "/page.js", "/health"):
        refused = asked.get(path, headers=CROSS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")
    linked = {**CROSS, "Sec-Fetch-Mode": "navigate"}
    assert asked.get("/", headers=linked).status_code == 200
    assert asked.get("/v1/models", headers=linked).status_code == 403
    for site in ("same-origin", "none"):
        headers = {"Sec-Fetch-Site": site, "Authorization": "Bearer mine"}
        assert asked.get("/v1/models", headers=headers).status_code == 200
    for origin in ("http://evil.example", "http://[::1", "http://[", "null", "]["):
        refused = asked.get("/v1/models", headers={"Origin": origin})  # before the key is looked at
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin")


def test_every_response_has_the_headers(here: Address) -> None:
    asked = client(here, key="mine")
    for path in ("/", "/page.js", "/health", "/v1/models", "/nothing"):
        headers = asked.get(path).headers
        assert headers.get_list("x-content-type-options") == ["nosniff"]
        assert headers.get_list("cross-origin-resource-policy") == ["same-origin"]
        assert headers.get_list("cache-control") == ["no-store"]


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_memory_that_is_gone_is_not_made_anew(how: str, tmp_path: Path) -> None:
    place = tmp_path / "m"
    place.mkdir()
    service = Writing()
    service.memory.directory = place
    served = application(service, "m", teach=True)  # type: ignore[arg-type]
    with TestClient(served, raise_server_exceptions=False) as asked:
        place.rename(tmp_path / "away") if how != "removed" else place.rmdir()
        if how == "replaced":
            place.mkdir()
        taught = asked.post("/facts", json={"question": "Who rows?", "answer": "Una"})
        question = asked.post("/v1/completions", json={"model": "m", "prompt": "Who rows?"})
        for response in (taught, question, asked.get("/lessons"), asked.get("/facts")):
            assert response.status_code == 410
            assert "was moved or removed" in response.json()["error"]["message"]
    assert not place.exists() or not any(place.iterdir())


# Connections, of a server in a thread.
OK = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
STUCK = [
    b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
    OK.replace(b"/health", b"/large"),
    OK.replace(b"/health", b"/large") + OK,
]


async def answering(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    while scope["path"] == "/read" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": bytes(2**17), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def listening(served: Any = answering, log_level: str = "critical") -> Iterator[int]:
    """The port of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        served, http=Connection, lifespan="off", log_level=log_level, timeout_graceful_shutdown=0
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
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(first)
    return connection


def answered(port: int) -> bool:
    with connected(port, OK) as connection:
        return connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("bound", ["MOST_OF_ONE", "MOST_CONNECTIONS"])
def test_idle_connections_keep_nobody_out(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, bound, 20)
    with listening() as port:
        idle = [connected(port, b"" if number % 2 else b"GET / HT") for number in range(50)]
        assert answered(port)
        idle[0].settimeout(guard.HEAD_SECONDS / 2)  # for another: sooner than an idle one is
        assert idle[0].recv(1) == b""
        for connection in idle:
            connection.close()


@pytest.mark.parametrize("request_", STUCK)
def test_nor_do_clients_that_neither_send_the_body_nor_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request_: bytes
) -> None:
    """And the server ends without them."""
    monkeypatch.setattr(guard, "MOST_OF_ONE", 5)
    with listening(log_level="error") as port:
        stuck = [connected(port, request_) for _ in range(5)]
        time.sleep(0.3)
        assert answered(port)
    for connection in stuck:
        connection.close()
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_being_answered_is_not_closed_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_OF_ONE", 2)
    with listening() as port:
        busy = [connected(port, OK.replace(b"/health", b"/slow")) for _ in range(2)]
        time.sleep(0.3)
        with connected(port) as further:
            assert further.recv(1) == b""
        assert [connection.recv(12) for connection in busy] == [b"HTTP/1.1 200"] * 2
        for connection in busy:
            connection.close()


@pytest.mark.parametrize("before", [b"", OK])
def test_a_head_that_does_not_arrive(monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    """Also the second one of a connection, and one that comes a letter at a time."""
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.5)
    with listening() as port, connected(port, before) as connection:
        begin = time.monotonic()
        while time.monotonic() - begin < 5:
            try:
                connection.sendall(b"G")
            except OSError:
                break
            time.sleep(0.1)
        assert time.monotonic() - begin < 3


def test_a_body_that_does_not_arrive(monkeypatch: pytest.MonkeyPatch, here: Address) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    guarded = Guard(answering, key=None, hosts=None, open_paths=())
    with listening(guarded) as port, connected(port, STUCK[0]) as connection:
        assert connection.recv(12) == b"HTTP/1.1 408"


def test_what_a_client_that_leaves_has_asked_is_not_answered() -> None:
    service = Writing(letters=10**6, max_answers=1)
    inside = application(service, "m", teach=False)  # type: ignore[arg-type]
    body = b'{"model": "m", "prompt": "%b", "stream": %b}'
    with listening(Guard(inside, key=None, hosts=None, open_paths=())) as port:
        for number, stream in enumerate((b"false", b"true", b"false")):
            asked = body % (b"quick" if number == 2 else b"long", stream)
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            asking = connected(port, head + b"Content-Length: %d\r\n\r\n" % len(asked) + asked)
            if number == 2:  # which is only reached once the others are left
                assert asking.recv(12) == b"HTTP/1.1 200"
            else:
                time.sleep(0.3)
            asking.close()
    assert service.log.count("begin long") <= 2 and len(service.log) < 10**5
