"""Find a file on the package indexes that pip is set up for, and download it without installing it.

The settings come from ``pip config list``, which reads pip's files and the environment. A partial
download is resumed, checked against a known digest, then renamed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import http.client
import importlib.util
import netrc
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import (
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
    url2pathname,
)

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import own_file
from holdfast.core.files import flush_directory
from holdfast.core.reporting import NoteReport
from holdfast.model.sources.cache import unwritable
from holdfast.model.sources.fingerprint import sha256_of_file

_BLOCK = 1 << 18  # bytes
_PAGE_BYTES = 50_000_000
_PAUSES = (1.0, 2.0, 4.0)  # seconds before another try, after 1, 2, 3 without data; then give up
_FINAL = frozenset({400, 401, 403, 404, 407, 410})  # statuses that another try does not change
# How a request fails without a reply. Other OSErrors are of the disk.
_BROKEN = (URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_HTML = "application/vnd.pypi.simple.v1+html, text/html;q=0.9"
# The sections of pip's configuration that `pip download` and `pip install` read; later ones win.
_SECTIONS = ("global", "install", "download", ":env:")
_PIP_SECONDS = 60.0


class UnreachableError(HoldfastError):
    """A server gave no answer, or refused."""


@dataclass
class Network:
    """Requests as pip would make them.

    indexes: base URLs of the simple API, or folders laid out like it; links: pages and folders of
    pip's ``find-links``; proxy, cert (a file of certificates), client_cert: as
    pip's; trusted: hosts whose certificate is not checked; timeout: seconds.
    """

    indexes: tuple[str, ...]
    links: tuple[str, ...] = ()
    proxy: str | None = None
    cert: str | None = None
    client_cert: str | None = None
    trusted: frozenset[str] = frozenset()
    timeout: float = 15.0

    def __post_init__(self) -> None:
        self._credentials: dict[str, str] = {}
        for place in (*self.indexes, *self.links):
            self._remember(place)

    def find(self, project: str, filename: str) -> str:
        """The URL of a project's file at the first place in pip's settings that has it.

        If none has it, raises UnreachableError if one did not answer, else HoldfastError.
        """
        errors = []
        pages = [f"{index.rstrip('/')}/{project}/" for index in self.indexes]
        for place in (*self.links, *pages):
            try:
                if url := self._look(filename, place):
                    return url
            except UnreachableError as error:
                errors.append(str(error))
        if errors:
            raise UnreachableError("; ".join(errors))
        raise HoldfastError(f"{filename} is on none of the indexes that pip is set up for")

    def _look(self, filename: str, page: str) -> str | None:
        if (path := _local_path(page)) is not None:
            if (path / filename).is_file():
                return (path / filename).resolve().as_uri()
            html = path / "index.html" if path.is_dir() else path
            if not html.is_file():
                return None
            page = html.resolve().as_uri()
        try:
            with self.open(page, {"Accept": _HTML}) as reply:
                text = reply.read(_PAGE_BYTES).decode("utf-8", errors="replace")
                return link_to(filename, text, reply.geturl())
        except HTTPError as error:
            if error.code in (404, 410):
                return None
            raise UnreachableError(f"{_plain(page)}: {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
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
            reply = opener.open(request, timeout=self.timeout)
        except HTTPError as error:
            error.close()
            raise
        with reply:
            yield reply

    def _opener(self, host: str) -> OpenerDirector:
        handlers: list[Any] = [HTTPSHandler(context=self._context(host))]
        if proxy := self.proxy:
            handlers.append(ProxyHandler({"http": proxy, "https": proxy}))
        return build_opener(*handlers)

    def _context(self, host: str) -> ssl.SSLContext:
        cert = self.cert or os.environ.get("REQUESTS_CA_BUNDLE")
        folder = cert is not None and os.path.isdir(cert)
        context = ssl.create_default_context(
            cafile=None if folder else cert, capath=cert if folder else None
        )
        if cert is None:  # some builds of Python bring no certificates, so pip brings its own
            with contextlib.suppress(ImportError):
                import certifi

                context.load_verify_locations(certifi.where())
        if self.client_cert:
            context.load_cert_chain(self.client_cert)
        if host in {trusted.partition(":")[0] for trusted in self.trusted}:
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


def _local_path(place: str) -> Path | None:
    """The path that a place in pip's settings is, as such or as a ``file:`` URL; None of others."""
    parts = urlsplit(place)
    if parts.scheme.lower() in ("http", "https"):
        return None
    is_url = parts.scheme.lower() == "file"
    return Path(url2pathname(parts.path)) if is_url else Path(place).expanduser()


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def download(
    network: Network, url: str, to: Path, size: int, sha256: str, report: NoteReport
) -> None:
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


def _append(network: Network, url: str, part: Path, size: int, report: NoteReport) -> str:
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


def network_of_pip() -> Network:
    """The settings of this interpreter's pip, else of another pip, else of the environment.

    Raises HoldfastError if no index is set and there is no pip whose default could be used.
    """
    pip = _pip()
    options = _configured(pip) if pip else _from_environment()
    indexes = []
    if options.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        main = options.get("index-url") or _default_index(pip)
        indexes = [main, *options.get("extra-index-url", "").split()]
    try:
        timeout = float(options.get("timeout") or options.get("default-timeout") or 15.0)
    except ValueError:
        timeout = 15.0
    return Network(
        indexes=tuple(indexes),
        links=tuple(options.get("find-links", "").split()),
        proxy=options.get("proxy") or None,
        cert=options.get("cert") or None,
        client_cert=options.get("client-cert") or None,
        trusted=frozenset(options.get("trusted-host", "").split()),
        timeout=timeout,
    )


def _pip() -> list[str] | None:
    """The command of a pip: this interpreter's, else one on the path, else ensurepip's."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if command := shutil.which("pip"):
        return [command]
    ensurepip = importlib.util.find_spec("ensurepip")
    folders = (ensurepip.submodule_search_locations or []) if ensurepip else []
    wheels = [wheel for folder in folders for wheel in Path(folder).glob("_bundled/pip-*.whl")]
    return [sys.executable, f"{wheels[0]}/pip"] if wheels else None


def _output(pip: list[str], *arguments: str) -> str:
    """The output of a pip command; empty if it fails."""
    environment = {**os.environ, "COLUMNS": "200", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        return subprocess.run(
            [*pip, *arguments],
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=True,
            env=environment,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _configured(pip: list[str]) -> dict[str, str]:
    """pip's settings by name, from all its files and the environment."""
    sections: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}
    for line in _output(pip, "config", "list").splitlines():
        where, _, value = line.partition("=")
        section, _, name = where.rpartition(".")
        if section in sections:
            try:
                sections[section][name] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                sections[section][name] = value
    return {name: value for section in sections.values() for name, value in section.items()}


def _from_environment() -> dict[str, str]:
    """The settings in ``PIP_*`` variables."""
    return {
        key.removeprefix("PIP_").lower().replace("_", "-"): value
        for key, value in os.environ.items()
        if key.startswith("PIP_")
    }


def _default_index(pip: list[str] | None) -> str:
    """The index that pip uses if none is set, from its help."""
    text = _output(pip, "download", "--help") if pip else ""
    match = re.search(r"--index-url <url>[^()]*\(default\s+([^\s)]+)\)", text)
    if match is None:
        raise HoldfastError(
            "no package index is known: there is no pip here that names one; set PIP_INDEX_URL"
        )
    return match[1]


class _Anchors(HTMLParser):
    """The links on a page of the simple API; base: the URL to which relative links are added."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if target and tag == "base":
            self.base = urljoin(self.base, target)
        elif target and tag == "a":
            self.links.append(urljoin(self.base, target).partition("#")[0])


def link_to(filename: str, page: str, base: str) -> str | None:
    """The URL of the file with this name on an HTML page, if any; base: the page's URL."""
    anchors = _Anchors(base)
    anchors.feed(page)
    for link in anchors.links:
        if unquote(urlsplit(link).path).rpartition("/")[2] == filename:
            return link
    return None
