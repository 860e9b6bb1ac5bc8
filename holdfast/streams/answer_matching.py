"""Whether a reply contains an answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable


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
