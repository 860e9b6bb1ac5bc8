"""Reading the records out of a model's reply: what is complete counts, nothing is guessed."""

from __future__ import annotations

import json
import re

NO_JSON = "no JSON object"

_STRING = r'"(?:[^"\\]|\\.)*"'
# What decides nesting: braces, and strings, which hide braces. A lone quote opens a string
# that never ends.
_NESTING = re.compile(rf'{_STRING}|[{{}}"]', re.DOTALL)
_IN_ARRAY = re.compile(rf'{_STRING}|[\[\]{{"]', re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_WRAPPED_ARRAY = re.compile(rf"\{{\s*{_STRING}\s*:\s*(?=\[)", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
_THOUGHTS = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
# Raw line breaks inside texts are read, so that the validator sees and rejects them.
_DECODER = json.JSONDecoder(strict=False)

Read = tuple[list[object], int]  # the candidates, and the place in the text after them


def read_candidates(text: str) -> tuple[list[object], str | None]:
    """The candidates of a reply in its order, and, when there are none, why.

    Read are a JSON array, in prose or a code fence or after a ``<think>`` block; an object that
    wraps one array; objects one after the other. Commas before a closing bracket are forgiven. Of
    an array that was cut off, the complete objects count. An object of an array that is closed but
    is no JSON is given as its raw text, so that it is counted. Never raises.
    """
    text = _without_thoughts(text)
    found: list[object] = []
    place = 0
    while opening := _OPENING.search(text, place):
        read = _array if opening[0] == "[" else _lone_object
        values, place = read(text, opening.start())
        found += values
    return found, None if found else NO_JSON


def _without_thoughts(text: str) -> str:
    text = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    # Some chat templates open the block themselves, so that a reply only closes it.
    if not text.lstrip().startswith(("[", "{")):
        text = text.rpartition("</think>")[2]
    return text


def _array(text: str, start: int) -> Read:
    whole = _decoded(text, start)
    if whole is None:
        return _broken_array(text, start)
    values, end = whole
    assert isinstance(values, list)
    # Prose has brackets of its own, such as "[1]": an array without objects holds no candidates.
    return (values if any(isinstance(value, dict) for value in values) else []), end


def _broken_array(text: str, start: int) -> Read:
    """The complete objects of an array that is cut off or malformed."""
    found: list[object] = []
    place, depth = start, 0
    while token := _IN_ARRAY.search(text, place):
        place = token.end()
        if token[0] == '"':
            return found, len(text)
        if token[0] == "{":
            place = _end_of_object(text, token.start())
            if place < 0:
                return found, len(text)
            raw = text[token.start() : place]
            if depth == 1:
                values = _repaired(raw)
                found.append(raw if values is None else values)
        depth += (token[0] == "[") - (token[0] == "]")
        if depth == 0:
            return found, place
    return found, len(text)


def _lone_object(text: str, start: int) -> Read:
    whole = _decoded(text, start)
    if whole is not None:
        return _unwrapped(whole[0]), whole[1]
    end = _end_of_object(text, start)
    values = None if end < 0 else _repaired(text[start:end])
    if values is not None:
        return _unwrapped(values), end
    if wrapping := _WRAPPED_ARRAY.match(text, start):
        return _array(text, wrapping.end())
    return [], len(text) if end < 0 else end


def _unwrapped(values: object) -> list[object]:
    """The array that an object such as ``{"records": [...]}`` wraps; else the object alone."""
    assert isinstance(values, dict)
    arrays = [value for value in values.values() if isinstance(value, list)]
    return [values] if "question" in values or len(arrays) != 1 else list(arrays[0])


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
