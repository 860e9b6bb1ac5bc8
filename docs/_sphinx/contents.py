"""Writes the list of pages, which conf.py has, where index.md has its mark."""

from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

MARK = "<!-- contents -->"


def setup(app: Sphinx) -> dict[str, bool]:
    """Begin to listen."""
    app.add_config_value("CONTENTS", {}, "env")
    app.connect("source-read", replace_mark)
    return {"parallel_read_safe": True}


def replace_mark(app: Sphinx, _page: str, source: list[str]) -> None:
    """Replace the mark by one toctree a section, shown in the sidebar alone."""
    sections = app.config.CONTENTS.items()
    trees = (
        toctree(caption, list(expanded(pages, Path(app.srcdir)))) for caption, pages in sections
    )
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, "\n\n".join(trees))


def expanded(pages: list[str], root: Path) -> Iterator[str]:
    """The pages in their order, each pattern as the pages that it adds."""
    for page in pages:
        if "*" not in page:
            yield page
            continue
        found = sorted(root.glob(f"{page}.md")) + sorted(root.glob(f"{page}.ipynb"))
        names = [str(file.relative_to(root).with_suffix("")) for file in found]
        yield from (name for name in names if name not in pages)


def toctree(caption: str, pages: list[str]) -> str:
    """A section of the sidebar; one without a caption stands on its own."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["```{toctree}", *options, "", *pages, "```"])
