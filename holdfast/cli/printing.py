r"""Makes everything that the commands print safe for a terminal.

Control sequences and marks that reverse the direction of text, as a fact may hold, are printed as
escapes like ``\u001b``, which JSON readers decode. If standard output is not UTF-8, JSON is in
ASCII, and other text that cannot be encoded ends the command.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from holdfast.core.errors import HoldfastError

# C0 except tab and line feed, DEL, C1, Unicode's marks that override the direction of text, and
# unpaired surrogates, which no encoding has.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text with its unsafe characters replaced by escapes."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_line(value: Any) -> str:
    """A value as one line of JSON, in ASCII unless standard output is in a UTF encoding."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))


def cannot_show(error: UnicodeEncodeError) -> HoldfastError:
    """The error for a text that standard output cannot encode."""
    lacking = ascii(error.object[error.start])[1:-1]
    return HoldfastError(
        f"standard output is {error.encoding}, which has no character {lacking}; "
        "set PYTHONIOENCODING=utf-8"
    )


class SafeStream:
    """Writes :func:`escaped` text to another stream, or text as it is if it is ``drawn``."""

    def __init__(self, stream: TextIO, *, drawn: bool = False) -> None:
        self.raw = stream
        self._drawn = drawn

    def write(self, text: str) -> int:
        # Libraries' progress bars begin with a carriage return, which is safe at a line's start.
        begin = "\r" if text.startswith("\r") and self.raw is sys.__stderr__ else ""
        written = text if self._drawn else begin + escaped(text.removeprefix(begin))
        try:
            self.raw.write(written)
        except UnicodeEncodeError as error:
            raise cannot_show(error) from None
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def safe_output() -> Iterator[None]:
    """Escape all that is printed during the block."""
    # A stream is None if the program has none.
    out, err = (cast(TextIO, end and SafeStream(end)) for end in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


class SafeConsole(Console):
    """A console of rich that writes rich's own control sequences and escapes its texts."""

    def __init__(self, *, stderr: bool = False, highlight: bool = True) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        drawn = cast(TextIO, SafeStream(getattr(stream, "raw", stream), drawn=True))
        super().__init__(file=drawn, highlight=highlight)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)


def say(label: str, text: str, width: int = 13) -> None:
    """Print a label and a text, aligned with the lines above."""
    print(f"{label:<{width}}{text}")


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table; its first column is left-aligned and folds, the others are right-aligned."""
    first, *numbers = headings
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, *cells in rows:
        table.add_row(Text(label), *map(Text, cells))
    SafeConsole(highlight=False).print(table)
