"""Reading the records out of a model's reply: what is complete counts, nothing is guessed."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

NO_JSON = "no JSON object"
CUT_OFF = "reply cut off"

MOST_FALSE_STARTS = 10  # brackets that open nothing; each costs a look through the whole reply
MOST_LAYERS = 3  # of objects around the records

_STRING = r'"(?:[^"\\]|\\.)*"'
# What decides nesting: braces, and strings, which hide braces. A lone quote opens a string
# that never ends.
_NESTING = re.compile(rf'{_STRING}|[{{}}"]', re.DOTALL)
_IN_ARRAY = re.compile(rf'{_STRING}|[\[\]{{"]', re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_WRAPPED_ARRAY = re.compile(rf"\{{\s*{_STRING}\s*:\s*(?=\[)", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
# How an array and an object begin, wherever they break off, and prose in brackets does not.
_BEGUN = re.compile(
    rf'\[\s*[\[{{"]|\{{\s*(?:\Z|{_STRING}\s*(?::|\Z)|"(?:[^"\\]|\\.)*\\?\Z)', re.DOTALL
)
_THOUGHTS = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
# Raw line breaks inside texts are read, so that the validator sees and rejects them.
_DECODER = json.JSONDecoder(strict=False)


class _Read(NamedTuple):
    """What was read: the candidates, the place in the text after them, and whether it broke off."""

    found: list[object]
    end: int
    cut: bool = False


def read_candidates(text: str) -> tuple[list[object], str | None]:
    """The candidates of a reply in its order, and what is wrong with it as a whole, if anything.

    Read are a JSON array, in prose or a code fence or after a ``<think>`` block, and arrays in it;
    an object that wraps one array of objects, or nothing but objects; objects one after the other.
    Commas before a closing bracket are forgiven. Of an array that was cut off, the complete objects
    count. An object of an array that is closed but is no JSON is given as its raw text, so that it
    is counted.

    The second value is :data:`NO_JSON` when there are no candidates, and :data:`CUT_OFF` when there
    are, but the reply ends within another. Never raises.
    """
    text = _without_thoughts(text)
    found: list[object] = []
    place, cut, false_starts = 0, False, 0
    while false_starts < MOST_FALSE_STARTS and (opening := _OPENING.search(text, place)):
        read = (_array if opening[0] == "[" else _lone_object)(text, opening.start())
        if read is None:
            false_starts += 1
            place = opening.end()
            continue
        found += read.found
        place = read.end
        cut |= read.cut
    if not found:
        return [], NO_JSON
    return found, CUT_OFF if cut else None


def _without_thoughts(text: str) -> str:
    text = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    # Some chat templates open the block themselves, so that a reply only closes it.
    if not text.lstrip().startswith(("[", "{")):
        text = text.rpartition("</think>")[2]
    return text


def _array(text: str, start: int) -> _Read | None:
    whole = _decoded(text, start)
    if whole is None:
        return _broken_array(text, start)
    values, end = whole
    assert isinstance(values, list)
    # Prose has brackets of its own, such as "[1]": an array without objects holds no candidates.
    return _Read(_objects(values), end)


def _objects(values: list[object]) -> list[object]:
    """What an array and the arrays in it hold, if there is an object among it; else nothing."""
    flat: list[object] = []
    left = values[::-1]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value[::-1]
        else:
            flat.append(value)
    return flat if any(isinstance(value, dict) for value in flat) else []


def _broken_array(text: str, start: int) -> _Read | None:
    """The complete objects of an array that is cut off or malformed; None where none begins."""
    found: list[object] = []
    place, depth = start, 0
    while token := _IN_ARRAY.search(text, place):
        place = token.end()
        if token[0] == '"':
            break
        if token[0] == "{":
            place = _end_of_object(text, token.start())
            if place < 0:
                return _Read(found, len(text), True) if _begins(text, token.start()) else None
            raw = text[token.start() : place]
            values = _repaired(raw)
            found.append(raw if values is None else values)
        depth += (token[0] == "[") - (token[0] == "]")
        if depth == 0:
            return _Read(found, place)
    holds = any(isinstance(value, dict) for value in found)
    return _Read(found, len(text), True) if holds and _begins(text, start) else None


def _begins(text: str, start: int) -> bool:
    """Whether the bracket at ``start`` is JSON's, though it may never close."""
    return _BEGUN.match(text, start) is not None


def _lone_object(text: str, start: int) -> _Read | None:
    whole = _decoded(text, start)
    if whole is not None:
        return _Read(_unwrapped(whole[0]), whole[1])
    end = _end_of_object(text, start)
    values = None if end < 0 else _repaired(text[start:end])
    if values is not None:
        return _Read(_unwrapped(values), end)
    if wrapping := _WRAPPED_ARRAY.match(text, start):
        return _array(text, wrapping.end())
    if end >= 0:
        return _Read([], end)
    # What stands within an object that broke off is a part of it, not a candidate.
    return _Read([], len(text), True) if _begins(text, start) else None


def _unwrapped(values: object, layers: int = MOST_LAYERS) -> list[object]:
    """What an object such as ``{"records": [...]}`` wraps; the object alone if it wraps nothing."""
    assert isinstance(values, dict)
    inner = list(values.values())
    if "question" in values or not inner or layers == 0:
        return [values]
    if all(isinstance(value, dict) for value in inner):
        return [record for value in inner for record in _unwrapped(value, layers - 1)]
    arrays = [value for value in inner if isinstance(value, list)]
    arrays = [value for value in arrays if _objects(value)] or arrays
    if len(arrays) != 1:
        return [values]
    return _objects(arrays[0]) or list(arrays[0])


def _end_of_object(text: str, start: int) -> int:
    """The place after the brace that closes the one at ``start``; -1 when nothing closes it."""
    depth = 0
    for token in _NESTING.finditer(text, start):
        if token[0] == '"':
            break
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0:
            return token.end()
    return -1


def _repaired(raw: str) -> object | None:
    """The object that ``raw`` is but for commas before a closing bracket; None if it is none."""
    without = _TRAILING_COMMA.sub(lambda match: match[1] or "", raw)
    whole = _decoded(without, 0)
    return whole[0] if whole is not None and whole[1] == len(without) else None


def _decoded(text: str, start: int) -> tuple[object, int] | None:
    try:
        return _DECODER.raw_decode(text, start)
    # A number may have more digits than Python reads (ValueError); brackets may nest too deep.
    except (ValueError, RecursionError):
        return None
