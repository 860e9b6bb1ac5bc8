"""Download a file with a known digest: resume a partial one, check it, then rename it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import own_file
from holdfast.core.files import flush_directory
from holdfast.model.cache import Report, unwritable
from holdfast.model.fingerprint import sha256_of_file
from holdfast.model.index import IndexSettings, link_to

_BLOCK = 1 << 18  # bytes
_PAGE_BYTES = 50_000_000
_PAUSES = (1.0, 2.0, 4.0)  # seconds before another try, after 1, 2, 3 without data; then give up
_FINAL = frozenset({400, 401, 403, 404, 407, 410})  # statuses that another try does not change
# How a request fails without a reply. Other OSErrors are of the disk.
_BROKEN = (URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_HTML = "application/vnd.pypi.simple.v1+html, text/html;q=0.9"


class UnreachableError(HoldfastError):
    """A server gave no answer, or refused."""


class Network:
    """Requests as pip would make them: its proxy, certificates, credentials and time limit."""

    def __init__(self, settings: IndexSettings) -> None:
        self.settings = settings
        self._credentials: dict[str, str] = {}
        for index in settings.indexes:
            self._remember(index)

    def find(self, project: str, filename: str) -> str:
        """The URL of a project's file at the first of pip's indexes that has it.

        If none has it, raises UnreachableError if one did not answer, else HoldfastError.
        """
        errors = []
        for index in self.settings.indexes:
            try:
                if url := self._look(filename, f"{index.rstrip('/')}/{project}/"):
                    return url
            except UnreachableError as error:
                errors.append(str(error))
        if errors:
            raise UnreachableError("; ".join(errors))
        raise HoldfastError(f"{filename} is on none of the indexes that pip is set up for")

    def _look(self, filename: str, page: str) -> str | None:
        try:
            with self.open(page, {"Accept": _HTML}) as reply:
                text = reply.read(_PAGE_BYTES).decode("utf-8", errors="replace")
                return link_to(filename, text, reply.geturl())
        except HTTPError as error:
            if error.code in (404, 410):
                return None
            raise UnreachableError(f"{_plain(page)}: {error.code} {error.reason}") from error
        # ValueError: an index that is a path and no URL
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(f"{_plain(page)}: {_reason(error)}") from error

    @contextlib.contextmanager
    def open(self, url: str, headers: dict[str, str]) -> Iterator[Any]:
        """Yield the reply to a GET. Raises URLError, HTTPError, OSError."""
        request = Request(_plain(url), headers={"User-Agent": "holdfast", **headers})
        if authorization := self._authorization(url):
            # Credentials must not be sent on when the server redirects.
            request.add_unredirected_header("Authorization", authorization)
        opener = self._opener(urlsplit(url).hostname or "")
        try:
            reply = opener.open(request, timeout=self.settings.timeout)
        except HTTPError as error:
            error.close()
            raise
        with reply:
            yield reply

    def _opener(self, host: str) -> OpenerDirector:
        handlers: list[Any] = [HTTPSHandler(context=self._context(host))]
        if proxy := self.settings.proxy:
            handlers.append(ProxyHandler({"http": proxy, "https": proxy}))
        return build_opener(*handlers)

    def _context(self, host: str) -> ssl.SSLContext:
        cert = self.settings.cert or os.environ.get("REQUESTS_CA_BUNDLE")
        folder = cert is not None and os.path.isdir(cert)
        context = ssl.create_default_context(
            cafile=None if folder else cert, capath=cert if folder else None
        )
        if cert is None:  # some builds of Python bring no certificates, so pip brings its own
            with contextlib.suppress(ImportError):
                import certifi

                context.load_verify_locations(certifi.where())
        if self.settings.client_cert:
            context.load_cert_chain(self.settings.client_cert)
        if host in {trusted.partition(":")[0] for trusted in self.settings.trusted}:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _remember(self, place: str) -> None:
        """Keep the credentials of a place for other URLs of its host, as pip does."""
        parts = urlsplit(place)
        if parts.hostname and parts.username:
            password = unquote(parts.password or "")
            self._credentials[parts.hostname] = _basic(unquote(parts.username), password)

    def _authorization(self, url: str) -> str | None:
        self._remember(url)
        host = urlsplit(url).hostname or ""
        if host in self._credentials:
            return self._credentials[host]
        try:
            entry = netrc.netrc().authenticators(host)
        except (OSError, netrc.NetrcParseError):
            return None
        return None if entry is None else _basic(entry[0], entry[2] or "")


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def download(network: Network, url: str, to: Path, size: int, sha256: str, report: Report) -> None:
    """Fetch ``url`` into the file ``to``; continue with the part that an earlier call has left.

    size: of the whole file, in bytes. Raises UnreachableError if the server stops answering, and
    keeps what has arrived; HoldfastError if the digest is wrong, or the disk is full.
    """
    part = to.with_name(f"{to.name}.part")
    tries = 0
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        while (before := _size(part)) < size:
            reason = _append(network, url, part, size, report)
            arrived = _size(part)
            tries = 0 if arrived > before else tries + 1
            if arrived >= size:
                break
            if tries > len(_PAUSES):
                raise UnreachableError(f"{_plain(url)}: {reason}")
            time.sleep(_PAUSES[max(tries - 1, 0)])
        actual = sha256_of_file(part)
        if actual != sha256:
            part.unlink()
            raise HoldfastError(
                f"{_plain(url)}: is not the file that is expected (sha256 {actual}, not {sha256}); "
                "it was removed; try again, and look at the index in `pip config list`"
            )
        os.replace(part, to)
        flush_directory(to.parent)
    except OSError as error:
        raise unwritable(part, error) from error


def _append(network: Network, url: str, part: Path, size: int, report: Report) -> str:
    """Append what is missing of a file; return why no more came."""
    start = _size(part)
    headers = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"} if start else {}
    try:
        with network.open(url, headers) as reply:
            content_range = str(reply.headers.get("Content-Range", ""))
            resumed = reply.status == 206 and content_range.startswith(f"bytes {start}-")
            with own_file(part).open("ab" if resumed else "wb") as file:
                done = start if resumed else 0
                report(done, size, "downloading")
                while block := _read(reply):
                    file.write(block)
                    done += len(block)
                    report(done, size, "downloading")
        return "the connection was closed"
    except HTTPError as error:
        if error.code == 416:  # the server's file is shorter than our part
            part.unlink(missing_ok=True)
        if error.code in _FINAL:
            raise UnreachableError(f"{_plain(url)}: {error.code} {error.reason}") from error
        return f"{error.code} {error.reason}"
    except (*_BROKEN, _ReadError) as error:
        return _reason(error)


class _ReadError(Exception):
    """The connection broke. No OSError, so that a full disk is not taken for it."""


def _read(reply: Any) -> bytes:
    try:
        return bytes(reply.read(_BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _ReadError(_reason(error)) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _plain(url: str) -> str:
    """A URL without credentials, to be shown or sent."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", None) or error
    text = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return " ".join(str(text).split())[:200]
