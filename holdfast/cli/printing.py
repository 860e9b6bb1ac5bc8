r"""One place makes what is printed safe for a terminal.

A fact, an answer or a name may hold control sequences, which move the cursor or write elsewhere,
and marks that turn the direction of a text around. They are shown as ``\u001b``, which is what
JSON writes for them too, so that JSON stays exact. Where standard output is not UTF-8, JSON is in
ASCII, and a text that cannot be shown ends the command.
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

from holdfast.core.errors import HoldfastError

# C0 but for tab and line feed, DEL, C1, the marks of Unicode that override directions, and halves
# of surrogate pairs, which no encoding has.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text with every control character and override of directions in sight."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_line(value: Any) -> str:
    """A value as one line of JSON for standard output, in ASCII where that is not UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))


def cannot_show(error: UnicodeEncodeError) -> HoldfastError:
    """What is said of a text that the encoding of standard output lacks characters for."""
    lacking = ascii(error.object[error.start])[1:-1]
    return HoldfastError(
        f"standard output is {error.encoding}, which has no character {lacking}; "
        "set PYTHONIOENCODING=utf-8"
    )


class StrictStream:
    """A text stream that writes to another; a character that it lacks is the caller's mistake."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        try:
            self.raw.write(text)
        except UnicodeEncodeError as error:
            raise cannot_show(error) from None
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class SafeStream(StrictStream):
    """A text stream that writes :func:`escaped` text to another."""

    def write(self, text: str) -> int:
        # Progress bars of libraries begin so; at the begin of a line it does nothing.
        begin = "\r" if text.startswith("\r") and self.raw is sys.__stderr__ else ""
        super().write(begin + escaped(text.removeprefix(begin)))
        return len(text)


@contextmanager
def safe_output() -> Iterator[None]:
    """Within the block all that is printed is safe; what a library draws goes past it."""
    with redirect_stdout(_safe(sys.stdout)), redirect_stderr(_safe(sys.stderr)):
        yield


def _safe(stream: TextIO | None) -> TextIO:
    # None where the program has no such stream.
    return cast(TextIO, stream and SafeStream(stream))


class SafeConsole(Console):
    """A console of rich whose own sequences are drawn, and whose texts are safe."""

    def __init__(self, *, stderr: bool = False, highlight: bool = True) -> None:
        stream: Any = sys.stderr if stderr else sys.stdout
        drawn = cast(TextIO, StrictStream(getattr(stream, "raw", stream)))
        super().__init__(file=drawn, highlight=highlight)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)
