r"""Extract a text's first ``\boxed{...}`` and compare it with the accepted answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

OPENING = r"\boxed{"

# "exact": the answer or an alias, same case. "ignore_case": the answer or an alias, any case.
# "released": the primary answer only, any case, which is what the published numbers used.
Match: TypeAlias = Literal["exact", "ignore_case", "released"]


class Box(NamedTuple):
    """The first box of a text: the text after its opening brace, and whether it closes."""

    content: str
    closed: bool


def first_box(text: str) -> Box | None:
    r"""The first ``\boxed{`` of a text; None when there is none.

    Its content is not stripped; without a closing brace it runs to the end of the text. Escaped
    braces count as braces.
    """
    begin = text.find(OPENING)
    if begin == -1:
        return None
    content = text[begin + len(OPENING) :]
    depth = 1
    for position, character in enumerate(content):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return Box(content[:position], closed=True)
    return Box(content, closed=False)


def extract_boxed(text: str) -> str | None:
    """The stripped content of the text's first box; None when there is none or it is not closed."""
    box = first_box(text)
    return box.content.strip() if box is not None and box.closed else None


def accepts(content: str, accepted: Sequence[str], match: Match) -> bool:
    """Whether a closed box holds an accepted answer.

    accepted: the primary answer first, then its aliases. White space around both is ignored. "Any
    case" compares ``str.lower()`` with final sigma as sigma. Texts of equal Unicode normal form
    (NFD) are equal, because a tokenizer that normalises emits one form only.
    """
    boxed = _comparable(content.strip(), match)
    return any(boxed == _comparable(answer.strip(), match) for answer in _counted(accepted, match))


def can_become(content: str, accepted: Sequence[str], match: Match) -> bool:
    """Whether the content of a box still open can be continued to an accepted answer.

    False is certain, True is not: U+FFFD at the end of the content is ignored, because it may be
    the first bytes of a character whose other bytes are not generated yet.
    """
    begun = _comparable(content.rstrip("\ufffd").lstrip(), match)
    # NFD sorts combining marks: one generated later may precede those of the last letter.
    while begun and unicodedata.combining(begun[-1]):
        begun = begun[:-1]
    # There may be white space between a complete answer and the closing brace.
    whole = _comparable(content.rstrip("\ufffd").strip(), match)
    return any(
        answer.startswith(begun) or answer == whole
        for answer in (_comparable(text.strip(), match) for text in _counted(accepted, match))
    )


def judge(
    text: str, accepted: Sequence[str], match: Match, *, ended: bool, boxed: bool = True
) -> bool | None:
    """Whether the text answers correctly; None while that depends on tokens not yet generated.

    ended: whether generation has ended; boxed: whether the answer is the content of the first box;
    otherwise it is the whole text.
    """
    if not boxed:
        if ended:
            return accepts(text, accepted, match)
        return None if can_become(text, accepted, match) else False
    box = first_box(text)
    if box is not None and box.closed:
        return accepts(box.content, accepted, match)
    if ended or (box is not None and not can_become(box.content, accepted, match)):
        return False
    return None


def _counted(accepted: Sequence[str], match: Match) -> Sequence[str]:
    return accepted[:1] if match == "released" else accepted


def _comparable(text: str, match: Match) -> str:
    """The text in the case and Unicode normal form in which texts are compared."""
    # lower() turns a capital sigma into one of two letters by what follows it, unknown in a prefix.
    cased = text if match == "exact" else text.lower().replace("ς", "σ")
    return unicodedata.normalize("NFD", cased)
