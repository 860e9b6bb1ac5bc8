"""A request that is refused: its status and what is said."""

from __future__ import annotations

from typing import Any


class RefusalError(Exception):
    """A refused request: HTTP status, one sentence, and the name programs know it by."""

    def __init__(self, status: int, message: str, code: str) -> None:
        message = message.encode(errors="replace").decode()  # half of a surrogate pair is no text
        super().__init__(message)
        self.status, self.message, self.code = status, message, code

    def body(self) -> dict[str, Any]:
        """The body of the response, in the form of OpenAI's errors."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        told = {"message": self.message, "type": kind, "param": None, "code": self.code}
        return {"error": told}

    def headers(self) -> dict[str, str]:
        """Further headers of the response."""
        if self.status == 503:
            return {"Retry-After": "1"}
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {}
