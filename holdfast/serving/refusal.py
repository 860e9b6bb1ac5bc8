"""The error for a refused request: its HTTP status and its message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from holdfast.core.errors import HoldfastError, InUseError, NoSpaceError, UnwritableError

_STATUS = {NoSpaceError.code: 507, InUseError.code: 503, UnwritableError.code: 500}


class RefusalError(Exception):
    """A refused request: HTTP status, one sentence, and the code by which programs know it."""

    def __init__(self, status: int, message: str, code: str, *, kept: bool | None = None) -> None:
        """kept: whether the facts that were sent are on file; None where none were sent."""
        if kept is not None:
            then = "on file and learned by the next lesson" if kept else "not kept; send them again"
            message = f"{message}; the facts are {then}"
        message = message.encode(errors="replace").decode()  # without unpaired surrogates
        super().__init__(message)
        self.status, self.message, self.code, self.kept = status, message, code, kept

    def body(self) -> dict[str, Any]:
        """The body of the response, in the form of OpenAI's errors."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {"message": self.message, "type": kind, "param": None, "code": self.code}
        return {"error": error if self.kept is None else {**error, "kept": self.kept}}

    def headers(self) -> dict[str, str]:
        further = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}
        return further.get(self.status, {})


def refusal_of(
    error: HoldfastError, *, kept: bool | None = None, status: int = 400, code: str = ""
) -> RefusalError:
    """The refusal for an error, of the status of its kind; status, code: for all other kinds."""
    if error.code in _STATUS:
        status, code = _STATUS[error.code], error.code
    kept = None if status == 400 else kept  # a mistake of the client's, which sends it no more
    return RefusalError(status, str(error), code or error.code, kept=kept)


@contextlib.contextmanager
def reading_files(*, kept: bool | None = None) -> Iterator[None]:
    """Turn errors in the memory's files into status 500, since they are not the client's."""
    try:
        yield
    except HoldfastError as error:
        raise refusal_of(error, kept=kept, status=500, code="memory") from None
