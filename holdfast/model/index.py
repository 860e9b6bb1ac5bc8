"""Find a file on the package indexes that pip is set up for, without downloading or installing it.

The settings come from ``pip config list``, which reads pip's files and the environment.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from holdfast.core.errors import HoldfastError

# The sections of pip's configuration that `pip download` and `pip install` read; later ones win.
_SECTIONS = ("global", "install", "download", ":env:")
_PIP_SECONDS = 60.0


@dataclass(frozen=True)
class IndexSettings:
    """pip's settings of indexes and the network.

    indexes: base URLs of the simple API; proxy, cert (a file of certificates), client_cert: as
    pip's; trusted: hosts whose certificate is not checked; timeout: seconds.
    """

    indexes: tuple[str, ...]
    proxy: str | None = None
    cert: str | None = None
    client_cert: str | None = None
    trusted: frozenset[str] = frozenset()
    timeout: float = 15.0


def index_settings() -> IndexSettings:
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
    return IndexSettings(
        indexes=tuple(indexes),
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
