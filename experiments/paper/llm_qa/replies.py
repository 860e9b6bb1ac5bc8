"""Parse the candidate records of a model's reply; incomplete records are not completed."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

NO_JSON = "no JSON object"
CUT_OFF = "reply cut off"

MOST_FALSE_STARTS = 10  # brackets that open no JSON; each may cost a scan of the whole reply
MOST_LAYERS = 3  # of objects that wrap the records

_STRING = r'"(?:[^"\\]|\\.)*"'
# The tokens that decide nesting: braces, and strings, whose braces do not count. A lone quote
# opens a string that never ends.
_NESTING = re.compile(rf'{_STRING}|[{{}}"]', re.DOTALL)
_IN_ARRAY = re.compile(rf'{_STRING}|[\[\]{{"]', re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_WRAPPED_ARRAY = re.compile(rf"\{{\s*{_STRING}\s*:\s*(?=\[)", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
# The beginning of a JSON array or object, possibly cut off; bracketed prose does not match.
_BEGUN = re.compile(
    rf'\[\s*[\[{{"]|\{{\s*(?:\Z|{_STRING}\s*(?::|\Z)|"(?:[^"\\]|\\.)*\\?\Z)', re.DOTALL
)
_THOUGHTS = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
# Not strict: accept raw line breaks in strings, so that the validator sees and rejects them.
_DECODER = json.JSONDecoder(strict=False)


class _Read(NamedTuple):
    """Candidates found, the position in the text after them, and whether the text was cut off."""

    candidates: list[object]
    end: int
    cut: bool = False


def read_candidates(text: str) -> tuple[list[object], str | None]:
    """The candidates of a reply in order, and the problem of the reply as a whole, or None.

    Accepted are a JSON array, also nested, in prose, in a code fence or after a ``<think>`` block;
    an object that wraps one array of objects, or only objects; a sequence of objects. Trailing
    commas are accepted. Of an array that was cut off, the complete objects are returned. An object
    in an array that closes but is not JSON is returned as raw text, so that it is counted.

    The second value is :data:`NO_JSON` when there are no candidates, and :data:`CUT_OFF` when there
    are some, but the reply ends within another. Never raises.
    """
    text = _without_thoughts(text)
    candidates: list[object] = []
    place, cut, false_starts = 0, False, 0
    while false_starts < MOST_FALSE_STARTS and (opening := _OPENING.search(text, place)):
        read = (_array if opening[0] == "[" else _lone_object)(text, opening.start())
        if read is None:
            false_starts += 1
            place = opening.end()
            continue
        candidates += read.candidates
        place = read.end
        cut |= read.cut
    if not candidates:
        return [], NO_JSON
    return candidates, CUT_OFF if cut else None


def _without_thoughts(text: str) -> str:
    text = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    # Some chat templates put <think> into the prompt, so that the reply has only </think>.
    if not text.lstrip().startswith(("[", "{")):
        text = text.rpartition("</think>")[2]
    return text


def _array(text: str, start: int) -> _Read | None:
    whole = _decoded(text, start)
    if whole is None:
        return _broken_array(text, start)
    values, end = whole
    assert isinstance(values, list)
    # An array without objects, such as the citation "[1]" in prose, holds no candidates.
    return _Read(_objects(values), end)


def _objects(values: list[object]) -> list[object]:
    """The array flattened, if it holds any object; else empty."""
    flat: list[object] = []
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value[::-1]
        else:
            flat.append(value)
    return flat if any(isinstance(value, dict) for value in flat) else []


def _broken_array(text: str, start: int) -> _Read | None:
    """The complete objects of an array that is cut off or malformed; None where none begins."""
    objects: list[object] = []
    place, depth = start, 0
    while token := _IN_ARRAY.search(text, place):
        place = token.end()
        if token[0] == '"':
            break
        if token[0] == "{":
            place = _end_of_object(text, token.start())
            if place < 0:
                return _Read(objects, len(text), True) if _begins(text, token.start()) else None
            raw = text[token.start() : place]
            values = _repaired(raw)
            objects.append(raw if values is None else values)
        depth += (token[0] == "[") - (token[0] == "]")
        if depth == 0:
            return _Read(objects, place)
    holds = any(isinstance(value, dict) for value in objects)
    return _Read(objects, len(text), True) if holds and _begins(text, start) else None


def _begins(text: str, start: int) -> bool:
    """Whether JSON begins at the bracket at ``start``, even if it never closes."""
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
    # Objects nested in an object that was cut off are parts of it, not candidates.
    return _Read([], len(text), True) if _begins(text, start) else None


def _unwrapped(values: object, layers: int = MOST_LAYERS) -> list[object]:
    """The records in an object such as ``{"records": [...]}``; ``[values]`` if it wraps none."""
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
    """The position after the brace that closes the one at ``start``; -1 when none does."""
    depth = 0
    for token in _NESTING.finditer(text, start):
        if token[0] == '"':
            break
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0:
            return token.end()
    return -1


def _repaired(raw: str) -> object | None:
    """``raw`` parsed without its trailing commas; None if it is still no JSON."""
    without = _TRAILING_COMMA.sub(lambda match: match[1] or "", raw)
    whole = _decoded(without, 0)
    return whole[0] if whole is not None and whole[1] == len(without) else None


def _decoded(text: str, start: int) -> tuple[object, int] | None:
    try:
        return _DECODER.raw_decode(text, start)
    # A number may have more digits than Python reads (ValueError); brackets may nest too deep.
    except (ValueError, RecursionError):
        return None
