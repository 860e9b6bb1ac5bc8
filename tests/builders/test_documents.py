"""The text of documents, in passages."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from pypdf import PdfReader, PdfWriter

from holdfast.builders.documents import LONGEST, is_document, passages, sentences_of
from holdfast.core.errors import HoldfastError

TEXT = "The lamp was lit in 1874. Its keeper is Orsa Tindle."


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_pdf(path: Path, *pages: str) -> Path:
    with mpl.rc_context({"pdf.fonttype": 42}), PdfPages(path) as file:
        for text in pages:
            figure = Figure()
            figure.text(0.05, 0.5, text)
            file.savefig(figure)
    return path


@pytest.mark.parametrize(
    ("paragraph", "count"),
    [
        (TEXT, 2),
        ("Dr. Amberley met Mr. J. Oake at St. Orrin. They spoke.", 2),
        ("It cost 3.50 crowns, i.e. little. Why? Nobody knows!", 3),
        ("“Go home.” She went. (He stayed.) So it was", 4),
        ("one line\n   broken in two.", 1),
        ("", 0),
    ],
)
def test_sentences(paragraph: str, count: int) -> None:
    sentences = sentences_of(paragraph)
    assert len(sentences) == count and all(
        sentence == " ".join(sentence.split()) for sentence in sentences
    )


@pytest.mark.parametrize(
    "first", ['She said "I go."', "He wrote “the end.”", "(In 1911.)", '("So.")']
)
def test_a_sentence_keeps_what_closes_it(first: str) -> None:
    assert sentences_of(f"{first} Then she left.") == [first, "Then she left."]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "breaks and tags.md",
            "Built by Voss  \nin 1911.\n\nA <b>bold</b> word<br>next.\n\n<p>Ida is *old*.</p>\n",
            "Built by Voss in 1911. A bold word next. Ida is *old*.",
        ),
        (
            "front matter.md",
            "---\ntitle: Notes\n---\n# Ostwick\n\nThe mill is old. It grinds oats.\n\n---\n\nEnd.",
            "Ostwick\nThe mill is old. It grinds oats. End.",
        ),
        (
            "marks.markdown",
            "# The *lamp*\n\n- It was [lit](http://x.y) in **1874**.\n- `Oil` burns.\n\n> Bye.",
            "The lamp\nIt was lit in 1874. Oil burns. Bye.",
        ),
        (
            "what stands beside.html",
            "<html><head><title>x</title><script>var a = 'No.'</script></head><body>"
            f"<nav>Home</nav><h1>Lamp</h1><p>{TEXT}</p><ul><li>One &amp; two.</li></ul>"
            "<footer>1999</footer></body>",
            f"Lamp\n{TEXT} One & two.",
        ),
    ],
)
def test_the_text_of_a_page(tmp_path: Path, name: str, text: str, expected: str) -> None:
    """A heading is a line of its own; marks, tags and what is no text are left out."""
    (passage,) = passages(written(tmp_path / name, text))
    assert (passage.source, passage.text) == (name, expected)


def test_a_pdf_by_its_pages(tmp_path: Path) -> None:
    pages = passages(write_pdf(tmp_path / "a.pdf", TEXT, "A light-\nhouse stood there."))
    assert [passage.source for passage in pages] == ["a.pdf, page 1", "a.pdf, page 2"]
    assert [passage.text for passage in pages] == [TEXT, "A lighthouse stood there."]


def test_a_folder_in_order_and_no_more_than_its_documents(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    written(tmp_path / "b" / "z.txt", "Third it is.")
    written(tmp_path / "a.md", "First it is.")
    written(tmp_path / "b" / "c.TXT", "Second it is.")
    written(tmp_path / ".hidden" / "d.md", "Never.")
    written(tmp_path / "e.csv", "question,answer")
    assert [(passage.source, passage.text) for passage in passages(tmp_path)] == [
        ("a.md", "First it is."), ("b/c.TXT", "Second it is."), ("b/z.txt", "Third it is."),
    ]  # fmt: skip
    assert is_document(tmp_path) and is_document(tmp_path / "a.md")
    assert not is_document(tmp_path / ".hidden" / "nothing") and not is_document(Path("a.csv"))


def test_a_file_of_a_folder_without_text_or_damaged_is_named_and_left_out(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", "\n")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe\x00")
    left_out: list[str] = []
    with pytest.raises(HoldfastError, match=f"{tmp_path}: has no text"):
        passages(tmp_path)
    written(tmp_path / "b.txt", "First it is.")
    assert [passage.text for passage in passages(tmp_path, left_out.append)] == ["First it is."]
    assert [line.partition(":")[0] for line in left_out] == [
        f"{tmp_path}/a.txt",
        f"{tmp_path}/c.txt",
    ]
    assert "has no text, so it is left out" in left_out[0]
    assert left_out[1].endswith("is no UTF-8 text; save the file as UTF-8; it is left out")


def test_long_texts_are_divided_between_sentences(tmp_path: Path) -> None:
    sentence = "The mill of Dunlow grinds oats for three villages and a farm. "
    text = f"{sentence * 40}\n\n{sentence * 3}\n\n{sentence}"
    parts = passages(written(tmp_path / "a.txt", text))
    assert sum(len(passage.sentences) for passage in parts) == 44
    assert all(len(passage.text) <= LONGEST + len(passage.sentences) for passage in parts)
    assert len(parts) <= 1 + 44 * len(sentence) // LONGEST + 1


def test_a_sentence_that_is_longer_than_a_passage_is_one(tmp_path: Path) -> None:
    (passage,) = passages(written(tmp_path / "a.txt", "word " * 600 + "end."))
    assert len(passage.sentences) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff\xfe\x00", "is no UTF-8 text"),
        ("a.txt", b"  \n ", "has no text"),
        ("a.html", b"<nav>Home</nav>", "has no text"),
        ("a.pdf", b"%PDF-1.4 no more", "is no readable PDF"),
    ],
)
def test_bad_input(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(HoldfastError, match=message) as raised:
        passages(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(HoldfastError, match="no such file"):
        passages(tmp_path / "none.txt")


def test_a_scan_and_a_locked_pdf(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="has no text; a scan needs OCR first"):
        passages(write_pdf(tmp_path / "scan.pdf", ""))
    writer = PdfWriter()
    for page in PdfReader(write_pdf(tmp_path / "open.pdf", TEXT)).pages:
        writer.add_page(page)
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    with pytest.raises(HoldfastError, match="is locked with a password"):
        passages(tmp_path / "locked.pdf")


@pytest.mark.parametrize(("name", "library"), [("a.pdf", "pypdf"), ("a.html", "bs4")])
def test_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    original_import = builtins.__import__

    def without(wanted: str, *rest: Any) -> Any:
        if wanted.partition(".")[0] == library:
            raise ImportError(wanted)
        return original_import(wanted, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HoldfastError, match=r"pip install \"holdfast\[documents\]\""):
        passages(written(tmp_path / name, "<p>x</p>"))
