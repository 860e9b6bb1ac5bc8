r"""Extract the answer of a generated text: its last complete ``\boxed{}``, or its last number.

Source: app:res-capability.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from holdfast.capability.numerals import numbers

# "number": the answer is a number. "expression": the answer may be any LaTeX expression.
Kind: TypeAlias = Literal["number", "expression"]

_BOX = re.compile(r"\\f?box(?:ed)?(?![a-z])\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"-?[\w.,/]*\w")
# A root or a power is an expression to evaluate, not a number with a unit.
_OPERATION = re.compile(r"\\sqrt|\d\s*\^\s*\{?\s*-?\d|√")


def extract(text: str, kind: Kind, language: str = "en") -> str | None:
    r"""The final answer in a text; None when it has none.

    Of several boxes the last complete one counts: a solution may box intermediate results, and a
    box that was cut off holds no answer. For an expression, the box's content is returned
    unchanged. For a number, the one number in the box is returned in normal form, without units; a
    box with several numbers, such as ``2 + 3``, or a root or a power is returned unchanged, and a
    box without a number gives None. Without a box, the text's last number is returned.

    text: the generated text, up to the stop; language: decides between 1.234 and 1,234.
    Source: app:res-capability.
    """
    box = last_box(text)
    if box is None:
        found = numbers(text, language)
        return found[-1] if found else None
    if kind == "expression":
        return box
    found = numbers(box, language)
    if len(found) > 1 or _OPERATION.search(box):
        return box
    return found[0] if found else None


def last_box(text: str) -> str | None:
    r"""The stripped content of the last ``\boxed{}`` or ``\fbox{}`` that closes and is not empty.

    Escaped braces do not count. A box without braces, ``\boxed 7``, holds the word that follows.
    """
    content = None
    for opening in _BOX.finditer(text):
        content = _content(text, opening.end()) or content
    return content


def _content(text: str, begin: int) -> str | None:
    if text[begin : begin + 1] != "{":
        bare = _BARE.match(text, begin)
        return bare[0] if bare else None
    depth = 0
    for brace in _BRACES.finditer(text, begin):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return text[begin + 1 : brace.start()].strip()
    return None
