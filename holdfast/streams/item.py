"""An item: a question, its answer and accepted aliases; how its texts are checked and compared."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, reason_of

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Item:
    """A question and its target answer. Surrounding white space is stripped.

    aliases: other answers accepted when recall is scored; never trained on. id: the source's name
    for the item, not necessarily unique. details: other values of the source (topic, dataset, ...)
    as JSON values. Neither id nor details are in a fingerprint.

    Raises HoldfastError for a text that is empty, holds NUL or is not valid Unicode, for aliases
    that are no list, and for details that are not JSON.
    """

    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.aliases, (tuple, list)):
            raise HoldfastError(f'"aliases" is {self.aliases!r:.60}; write a list of texts')
        # A frozen dataclass can normalise its fields only through object.__setattr__.
        object.__setattr__(self, "question", clean("question", self.question))
        object.__setattr__(self, "answer", clean("answer", self.answer))
        object.__setattr__(self, "aliases", tuple(clean("aliases", text) for text in self.aliases))
        if self.id is not None:
            object.__setattr__(self, "id", clean("id", self.id))
        if self.details:
            _check_details(self.details)


def is_visible(text: str) -> bool:
    """Whether a text has a character that is neither white space nor of Unicode category Cf."""
    return any(unicodedata.category(symbol) != "Cf" and not symbol.isspace() for symbol in text)


def braces_balance(text: str) -> bool:
    r"""Whether ``\boxed{text}`` closes exactly at its end when braces are counted."""
    depth = 0
    for symbol in text:
        depth += (symbol == "{") - (symbol == "}")
        if depth < 0:
            return False
    return depth == 0


def check_boxed(item: Item) -> None:
    r"""Raise HoldfastError for an answer or alias that cannot be read back from a box.

    ``\boxed{a}b}`` reads back as ``a``, so ``a}b`` could never be scored.
    """
    texts = [("answer", item.answer), *(("alias", alias) for alias in item.aliases)]
    for kind, text in texts:
        if not braces_balance(text):
            raise HoldfastError(
                f"the {kind} {quoted(text)} of question {quoted(item.question)} has unbalanced "
                "braces, so it cannot be read back from \\boxed{...}; balance or remove them"
            )


def _check_details(details: Mapping[str, Any]) -> None:
    """Raise HoldfastError for details that are not JSON, before a file is written hours later."""
    try:
        json.dumps(dict(details), ensure_ascii=False, allow_nan=False).encode()
    # Halves of surrogate pairs, NaN, infinities, types that JSON lacks, values nested too deeply.
    except (ValueError, TypeError, RecursionError) as error:
        raise HoldfastError(
            f'"details" cannot be kept as JSON ({reason_of(error)}); correct it, or leave it out'
        ) from None


def question_key(question: str) -> str:
    """The form in which questions are compared; case counts.

    Invisible characters are removed and each run of white space becomes one space. The text is in
    Unicode form NFC, because tokenizers fold equivalent encodings.
    """
    visible = "".join(symbol for symbol in question if unicodedata.category(symbol) != "Cf")
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def same_answer(first: Item, second: Item) -> bool:
    """Whether two items have the same answer, whatever its Unicode normal form."""
    text, other = (unicodedata.normalize("NFC", item.answer) for item in (first, second))
    return text == other


def folded(text: str) -> str:
    """A text without case, in Unicode form NFKC, with single spaces and straight apostrophes."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


def bare(text: str) -> str:
    """A folded text without a full stop at its end."""
    return folded(text).rstrip(". ")


def says(reply: str, answers: Iterable[str]) -> bool:
    """Whether any of ``answers`` occurs in a reply as whole words, in any case.

    A number does not occur in a longer one: ``8`` is not in ``8.5``.
    """
    text = folded(reply)
    return any(
        re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(folded(answer))}(?!\w|[.,]\d)", text)
        for answer in answers
    )


def quoted(value: object, longest: int = 60) -> str:
    """``value`` in quotes for an error: one line, valid UTF-8, at most ``longest`` characters."""
    flat = " ".join(str(value).split()).encode("utf-8", "backslashreplace").decode()
    return f'"{flat}"' if len(flat) <= longest else f'"{flat[: longest - 3]}..."'


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 fact``, ``2 facts``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def evenly(values: Sequence[_Value], limit: int | None) -> list[_Value]:
    """At most ``limit`` of the values, evenly spread, in order."""
    count = len(values)
    if limit is None or count <= limit:
        return list(values)
    return [values[place * count // limit] for place in range(limit)]


def _stripped(value: str) -> str:
    """Strip a text; if all its lines begin with the first line's indentation, remove that too."""
    text, begin = value.strip(), value[: len(value) - len(value.lstrip())].rpartition("\n")[2]
    if all(line.startswith(begin) or not line.strip() for line in text.split("\n")[1:]):
        text = text.replace(f"\n{begin}", "\n")
    return text


def clean(field: str, value: object, remedy: str = "") -> str:
    """``value`` without surrounding white space.

    field: its name in errors; remedy: what an error says to do if it is empty. Raises HoldfastError
    unless it is a non-empty text without NUL that UTF-8 can hold.
    """
    if not isinstance(value, str):
        raise HoldfastError(f'"{field}" is {value!r:.60}, which is no text; write a text in quotes')
    text = _stripped(value.replace("\r\n", "\n"))
    if not is_visible(text):
        needed = field in ("question", "answer")
        remedy = remedy or (
            "every item needs a question and an answer" if needed else "fill it or leave it out"
        )
        raise HoldfastError(f'"{field}" is empty; {remedy}')
    try:
        text.encode()
    except UnicodeEncodeError:
        # Bytes of another encoding, or half of a surrogate pair.
        raise HoldfastError(
            f'"{field}" {quoted(text)} is no valid Unicode; retype it, or convert it to UTF-8'
        ) from None
    if "\0" in text:
        escaped = quoted(text.replace("\0", "\\0"))
        raise HoldfastError(f'"{field}" {escaped} holds the character NUL; remove it')
    return text
