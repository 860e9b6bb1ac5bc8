"""A server that is told how to misbehave, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.builders.endpoint import Endpoint
from tests.refused import line_of

KEY = "secret-key-of-the-tests"
HANG, DROP = "hang", "drop"


@dataclass
class Reply:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Behaviour = Callable[[dict[str, Any]], Reply | str]


class StandIn(ThreadingHTTPServer):
    """Keeps what it was asked; replies as it is told. Lists the models ``models``."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.models: Reply | str = Reply({"data": [{"id": "first"}, {"id": "second"}]})
        self.asked: list[dict[str, Any]] = []  # bodies, each with its path
        self.most_at_once = self.at_once = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *_: Any) -> None:
        """A client that gave up is no news."""


class Handler(BaseHTTPRequestHandler):
    server: StandIn  # a connection a request: none outlives the server

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.send(self.server.models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            server.asked.append(
                {"path": self.path, "key": self.headers["authorization"], "body": body}
            )
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            reply = server.behaviour(body)
        finally:
            with server.lock:
                server.at_once -= 1
        self.send(reply)

    def send(self, reply: Reply | str) -> None:
        if isinstance(reply, str):
            if reply == HANG:
                self.server.closing.wait(10)
            return
        text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        self.send_response(reply.status)
        self.send_header("content-length", str(len(text.encode())))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


def spoken(body: dict[str, Any]) -> str:
    """What was asked, whichever way."""
    return str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"])


def choices(body: dict[str, Any], *texts: str | None) -> Reply:
    chat = "messages" in body
    return Reply({"choices": [{"message": {"content": t}} if chat else {"text": t} for t in texts]})


def answering(body: dict[str, Any]) -> Reply:
    """The prompt again and the number of the choice, as many as asked for."""
    return choices(body, *(f"{spoken(body)}:{i}" for i in range(body.get("n", 1))))


def in_turn(*replies: Reply | str) -> Behaviour:
    """These replies, one a request, and proper answers after them."""
    queue = list(replies)
    return lambda body: queue.pop(0) if queue else answering(body)


@contextmanager
def standing_in(behaviour: Behaviour = answering) -> Iterator[StandIn]:
    with StandIn(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


def endpoint(server: StandIn, **settings: Any) -> Endpoint:
    defaults: dict[str, Any] = {"key": KEY, "retries": 0, "timeout": 5.0}
    return Endpoint(server.url, **(defaults | settings))


def one_line(text: str) -> bool:
    return len(text.splitlines()) == 1 and KEY not in text


def refusal(act: Callable[[], Any]) -> str:
    line = line_of(act)
    assert one_line(line)
    return line
