r"""The answer in a generated text: its last complete ``\boxed{}``, or else its last number.

Source: app:res-capability.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from holdfast.capability.numerals import numbers

# "number": what is asked for is a number. "expression": it may be anything that LaTeX can say.
Kind: TypeAlias = Literal["number", "expression"]

_BOX = re.compile(r"\\f?box(?:ed)?(?![a-z])\s*")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"-?[\w.,/]*\w")
# A root or a power of a number is a sum to be done, not a number with a unit.
_OPERATION = re.compile(r"\\sqrt|\d\s*\^\s*\{?\s*-?\d|√")


def extract(text: str, kind: Kind, language: str = "en") -> str | None:
    r"""The answer that a text comes to; None when it holds none.

    Of several boxes the last complete one counts: a solution may box what it finds on its way, and
    a box that was cut off holds no answer. An expression is the box's content as it stands. A
    number is the one number in the box, freed of units and spelled in one way; a box with several
    numbers, a root or a power, such as ``2 + 3``, is left as it stands, and one without any holds
    no answer. Without a box the answer is the text's last number, whatever the kind.

    text: what was generated, up to the stop; language: decides between 1.234 and 1,234.
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
