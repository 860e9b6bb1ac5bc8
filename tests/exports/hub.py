"""A stand-in for the Hugging Face hub: the few endpoints of an upload and a download."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class Hub:
    """files: what was committed, by repository and path; created: the requests for a repository.

    names: of the repositories; status: what creating one is answered with; refused: what a commit
    is.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.names: set[str] = set()
        self.tokens: set[str | None] = set()
        self.status = 200
        self.refused: int | None = None

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.created.append(asked)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            if self.status == 200:
                self.names.add(name)
            return self.status, {"url": f"{self.endpoint}/{name}", "error": "so it is"}
        if path == "/api/validate-yaml":  # the head of the card
            return 200, {"errors": [], "warnings": []}
        _, _, kind, user, name, action, *_ = path.split("/")
        assert kind == "models"
        if action == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            return 200, {"files": files}
        assert action == "commit", path
        if self.refused:
            return self.refused, {"error": "so it is"}
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines:
            if line["key"] == "file":
                value = line["value"]
                content = base64.b64decode(value["content"])
                self.files.setdefault(f"{user}/{name}", {})[value["path"]] = content
            elif line["key"] == "deletedFile":
                del self.files[f"{user}/{name}"][line["value"]["path"]]
        address = f"{self.endpoint}/{user}/{name}/commit/abc"
        return 200, {"success": True, "commitOid": "abc", "commitUrl": address}

    def listed(self, path: str) -> Any:
        """What a GET below /api/models answers; None where there is no such repository."""
        _, _, kind, user, name, *rest = f"{path}//".split("/")
        if kind != "models":
            return None
        repository = f"{user}/{name}"
        if repository not in self.names | self.files.keys():
            return None
        files = self.files.get(repository, {})
        if "tree" in rest:
            return [
                {"type": "file", "path": path, "size": len(content), "oid": _sum(content)}
                for path, content in files.items()
            ]
        siblings = [{"rfilename": path, "size": len(content)} for path, content in files.items()]
        return {"id": f"{user}/{name}", "sha": SHA, "private": True, "siblings": siblings}

    def file(self, path: str) -> bytes | None:
        """What a GET of ``/USER/NAME/resolve/REVISION/PATH`` answers."""
        if path == "/":
            return b"the hub"
        _, user, name, resolve, _, *rest = path.split("/")
        assert resolve == "resolve", path
        return self.files.get(f"{user}/{name}", {}).get("/".join(rest))


def _sum(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


SHA = "3" * 40


class _Handler(BaseHTTPRequestHandler):
    """hub: given by the class that is made for a server."""

    hub: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        self.hub.tokens.add(self.headers.get("Authorization"))
        self._reply(*self.hub.answer(self.path.partition("?")[0], body))

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.startswith("/api/"):
            values = self.hub.listed(path)
            if values is None:
                self._reply(404, {"error": "Repository not found"}, "RepoNotFound")
            else:
                self._reply(200, values)
            return
        content = self.hub.file(path)
        if content is None:
            self._reply(404, {"error": "Entry not found"}, "EntryNotFound")
            return
        self.send_response(200)
        self.send_header("ETag", f'"{_sum(content)}"')
        self.send_header("X-Repo-Commit", SHA)
        self._send(content)

    do_HEAD = do_GET

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _reply(self, status: int, values: Any, error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if error:
            self.send_header("X-Error-Code", error)
        self._send(json.dumps(values).encode())

    def _send(self, content: bytes) -> None:
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def standing_in() -> Iterator[Hub]:
    """A hub at an address of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
