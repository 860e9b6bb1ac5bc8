r"""The answer in a text: the first ``\boxed{`` up to its balanced close, and what it must equal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

OPENING = r"\boxed{"

# "exact": the answer or an alias, same case. "ignore_case": the answer or an alias, any case.
# "released": the primary answer only, any case, which is what the published numbers used.
Match: TypeAlias = Literal["exact", "ignore_case", "released"]


class Box(NamedTuple):
    """The first box of a text: what stands after its opening, and whether it closes."""

    content: str
    closed: bool


def first_box(text: str) -> Box | None:
    r"""The first ``\boxed{`` of a text; None when none opens.

    text: what was generated after the prompt. The content is not stripped; that of a box that
    never closes runs to the end of the text. Every brace counts, an escaped one too.
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
    """The stripped content of the text's first box; None when none opens or it never closes."""
    box = first_box(text)
    return box.content.strip() if box is not None and box.closed else None


def accepts(content: str, accepted: Sequence[str], match: Match) -> bool:
    """Whether a closed box holds an accepted answer.

    accepted: the primary answer first, then its aliases. White space around either side is
    ignored. "Any case" compares ``str.lower()``, both small sigmas taken as one. Different
    codings of one Unicode text are equal: a model whose tokenizer normalises has only one.
    """
    found = _comparable(content.strip(), match)
    return any(found == _comparable(answer.strip(), match) for answer in _counted(accepted, match))


def can_become(content: str, accepted: Sequence[str], match: Match) -> bool:
    """Whether the content of a box still open can be continued to an accepted answer.

    False is certain; True may be a hope: a content that ends in U+FFFD is judged without it,
    because it may be the first bytes of a character whose rest is still to come.
    """
    begun = _comparable(content.rstrip("\ufffd").lstrip(), match)
    # A mark that follows may be sorted before those that the last letter already carries.
    while begun and unicodedata.combining(begun[-1]):
        begun = begun[:-1]
    # White space may stand between a whole answer and the closing brace.
    whole = _comparable(content.rstrip("\ufffd").strip(), match)
    return any(
        answer.startswith(begun) or answer == whole
        for answer in (_comparable(text.strip(), match) for text in _counted(accepted, match))
    )


def judge(text: str, accepted: Sequence[str], match: Match, *, ended: bool) -> bool | None:
    """Whether the text answers correctly; None while that depends on what will follow.

    text: what was generated after the prompt so far; ended: nothing will follow.
    """
    box = first_box(text)
    if box is not None and box.closed:
        return accepts(box.content, accepted, match)
    if ended or (box is not None and not can_become(box.content, accepted, match)):
        return False
    return None


def _counted(accepted: Sequence[str], match: Match) -> Sequence[str]:
    return accepted[:1] if match == "released" else accepted


def _comparable(text: str, match: Match) -> str:
    """The text in the one case and coding in which texts are compared."""
    # The capital sigma alone is lowered by what follows it, which a prefix does not know yet.
    cased = text if match == "exact" else text.lower().replace("ς", "σ")
    return unicodedata.normalize("NFD", cased)
