"""Read documents (Markdown, plain text, PDF, HTML) as passages of whole sentences."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.reporting import silent

LONGEST = 900  # characters of a passage; only a single sentence may be longer
_MARKDOWN = (".md", ".markdown")
_PAGES = (".html", ".htm", ".xhtml")
SUFFIXES = (*_MARKDOWN, ".txt", ".rst", ".pdf", *_PAGES)
# Elements of an HTML page that do not belong to its text.
_BESIDE = "head, script, style, noscript, template, nav, header, footer, aside, form"
# The space after a full stop, question or exclamation mark, before what may begin a sentence. A
# piece that ends with an initial or abbreviation (_ABBREVIATED) is joined to the next.
_END = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]])|(?<=[.!?…][\"'”’)\]]{2}))\s+(?=[\"'“‘(\[]?[\w])"
)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*\n", re.DOTALL)
_ABBREVIATED = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|No|vs|etc|e\.g|i\.e|cf|ca|approx|Fig|Vol|pp?))\.$"
)


@dataclass(frozen=True)
class Passage:
    """Consecutive sentences. source: the file's path below its folder, and the page of a PDF."""

    source: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentences as one text; a line ends after one without a full stop, as a heading."""
        ends = ("\n" if sentence[-1:].isalnum() else " " for sentence in self.sentences)
        return "".join(chain.from_iterable(zip(self.sentences, ends, strict=True))).strip()


def is_document(path: Path) -> bool:
    """Whether a path has a document's ending, or is a folder that contains such a file."""
    if path.is_dir():
        return next(_inside(path), None) is not None
    return path.suffix.lower() in SUFFIXES


class UnreadableError(HoldfastError):
    """A document that cannot be read, or is damaged."""


def passages(path: Path, left_out: Callable[[str], None] = silent) -> list[Passage]:
    """The passages of a document, or of all documents in a folder, in order of their names.

    left_out: called with a line for each file of a folder that has no text, such as a PDF of
    pictures, or is unreadable. Raises HoldfastError if a single document is missing or unreadable,
    if the library that reads one is not installed, or if there is no text at all.
    """
    found: list[Passage] = []
    if not path.is_dir():
        found += _read(path, path.name)
    for file in _inside(path):
        try:
            read = list(_read(file, file.relative_to(path).as_posix()))
        except UnreadableError as error:
            left_out(f"{error}; it is left out")
            continue
        found += read
        if not read:
            left_out(f"{file}: has no text, so it is left out; a scan needs OCR first")
    if not found:
        raise HoldfastError(f"{path}: has no text; a scan needs OCR first")
    return found


def _inside(folder: Path) -> Iterator[Path]:
    """The documents below a folder, without hidden files and folders and links to folders."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(place) / name


def _read(file: Path, name: str) -> Iterator[Passage]:
    """The passages of a file. name: how their source names it."""
    suffix = file.suffix.lower()
    try:
        if not file.is_file():
            raise HoldfastError(f"{file}: no such file; give a document, or a folder of them")
        if suffix == ".pdf":
            pages = [(page_of(name, n), text) for n, text in enumerate(_pdf(file), start=1)]
        elif suffix in _PAGES:
            pages = [(name, _page(file))]
        else:
            text = file.read_text(encoding="utf-8-sig")
            pages = [(name, _markdown(text) if suffix in _MARKDOWN else text)]
    except UnicodeDecodeError:
        raise UnreadableError(f"{file}: is no UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise UnreadableError(f"{file}: cannot be read ({error.strerror or error})") from error
    for source, text in pages:
        for sentences in _in_passages(text):
            yield Passage(source, sentences)


def page_of(name: str, number: int) -> str:
    """The source of the passages of a page. number: from 1."""
    return f"{name}, page {number}"


def is_page_of(source: str, name: str) -> bool:
    """Whether a passage's source is a page of a document of this name."""
    return source.startswith(f"{name}, page ")


def _pdf(file: Path) -> list[str]:
    """The text of each page."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise HoldfastError(
            f'{file}: a PDF is read by pypdf; pip install "holdfast[documents]"'
        ) from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # serious errors are raised
    try:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableError(f"{file}: is locked with a password; save it without one")
        texts = [page.extract_text() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = reason_of(error, 100)
        raise UnreadableError(f"{file}: is no readable PDF ({reason}); save it anew") from error
    # Lines break at the margin, perhaps within a hyphenated word, which is joined here.
    return [re.sub(r"(?<=\w)-\n(?=[a-z])", "", text) for text in texts]


def _page(file: Path) -> str:
    """The text of an HTML page, one paragraph per block, without navigation and the like."""
    try:
        from bs4 import BeautifulSoup
    except ImportError:
        raise HoldfastError(
            f'{file}: a page is read by beautifulsoup4; pip install "holdfast[documents]"'
        ) from None
    return _text_of(BeautifulSoup(file.read_bytes(), "html.parser"))


def _text_of(page: Any) -> str:
    for element in page.select(_BESIDE):
        element.decompose()
    for element in page(["br"]):
        element.replace_with("\n")
    blocks = page(["p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "td", "th", "dd", "dt", "div"])
    for element in blocks:
        element.append("\n\n")
    return str(page.get_text())


def _markdown(text: str) -> str:
    """The text of a Markdown document, a paragraph per block, without front matter and code blocks.

    The text of HTML blocks is included if beautifulsoup4 is installed.
    """
    from markdown_it import MarkdownIt

    paragraphs = []
    text = _FRONT_MATTER.sub("", text, count=1)
    for block in MarkdownIt("commonmark").enable("table").parse(text):
        if block.type == "html_block" and find_spec("bs4"):
            from bs4 import BeautifulSoup

            paragraphs.append(_text_of(BeautifulSoup(block.content, "html.parser")))
        elif block.type == "inline":
            paragraphs.append("".join(map(_inline, block.children or ())))
    return "\n\n".join(paragraphs)


def _inline(part: Any) -> str:
    """The text of an inline token; an HTML tag has none."""
    if part.type in ("softbreak", "hardbreak"):
        return "\n"
    if part.type == "html_inline":
        return "\n" if part.content.lower().startswith("<br") else ""
    return str(part.content)


def _in_passages(text: str) -> Iterator[tuple[str, ...]]:
    """A text's sentences in groups: a part of a paragraph, or several short paragraphs."""
    passage: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        sentences = sentences_of(paragraph)
        room = LONGEST - sum(map(len, passage))
        if passage and sum(map(len, sentences)) > room:
            yield tuple(passage)
            passage = []
        for sentence in sentences:
            if passage and sum(map(len, passage)) + len(sentence) > LONGEST:
                yield tuple(passage)
                passage = []
            passage.append(sentence)
    if passage:
        yield tuple(passage)


def sentences_of(paragraph: str) -> list[str]:
    """The sentences of a paragraph, with single spaces."""
    text = " ".join(paragraph.split())
    sentences: list[str] = []
    for piece in _END.split(text):
        if sentences and _ABBREVIATED.search(sentences[-1]):
            sentences[-1] = f"{sentences[-1]} {piece}"
        elif piece:
            sentences.append(piece)
    return sentences
