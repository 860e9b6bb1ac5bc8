"""A stand-in for the Hugging Face hub: the few endpoints of an upload, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub:
    """files: what was committed, by repository and path; created: the requests for a repository.

    status: what creating one is answered with; refused: what a commit is.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.status = 200
        self.refused: int | None = None

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.created.append(asked)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            return self.status, {"url": f"{self.endpoint}/{name}", "error": "so it is"}
        if path == "/api/validate-yaml":  # the head of the card
            return 200, {"errors": [], "warnings": []}
        _, _, kind, user, name, what, *_ = path.split("/")
        assert kind == "models"
        if what == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            return 200, {"files": files}
        assert what == "commit", path
        if self.refused:
            return self.refused, {"error": "so it is"}
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines:
            if line["key"] == "file":
                value = line["value"]
                content = base64.b64decode(value["content"])
                self.files.setdefault(f"{user}/{name}", {})[value["path"]] = content
        address = f"{self.endpoint}/{user}/{name}/commit/abc"
        return 200, {"success": True, "commitOid": "abc", "commitUrl": address}


@contextmanager
def standing_in() -> Iterator[Hub]:
    """A hub at an address of this machine."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = self._chunks()
            hub.tokens.add(self.headers.get("Authorization"))
            self._reply(*hub.answer(self.path.partition("?")[0], body))

        def do_GET(self) -> None:
            self._reply(404, {"error": "Repository not found"})

        def _chunks(self) -> bytes:
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(parts)

        def _reply(self, status: int, values: dict[str, Any]) -> None:
            content = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
