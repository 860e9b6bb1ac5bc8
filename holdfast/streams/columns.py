"""The keys under which people keep a question and its answer, and what becomes of other keys."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import quoted

KEYS = ("question", "answer", "aliases", "task", "id", "details")
PARAPHRASES = "paraphrases"  # other wordings of the question, kept in the details
PAIRS = (("prompt", "completion"), ("instruction", "output"), ("input", "output"))

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """The columns that hold questions and answers; None: those called so, or a known pair."""

    question: str | None = None
    answer: str | None = None


def known_names(names: Sequence[str], columns: Columns) -> list[str]:
    """Names with those of known keys in small letters, whatever their capitals and white space.

    Those of :data:`PAIRS` are known where neither question nor answer is named. A column of
    ``columns`` keeps its name. Raises HoldfastError for two columns of one name.
    """
    asked = {columns.question, columns.answer}

    def within(known: set[str], names: Sequence[str]) -> list[str]:
        small = [name.strip().lower() for name in names]
        return [
            one if one in known and name not in asked else name
            for one, name in zip(small, names, strict=True)
        ]

    found = within({*KEYS, PARAPHRASES}, names)
    if not {"question", "answer"} & {*found}:
        found = within({"messages", *(name for pair in PAIRS for name in pair)}, found)
    twice = next((name for name in found if name and found.count(name) > 1), None)
    if twice is not None:
        raise HoldfastError(f"has two columns {quoted(twice)}; keep one")
    return found


def as_values(record: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """A record as values of :data:`KEYS`; all else goes to ``details`` under its own key.

    Where ``question`` and ``answer`` are missing, ``prompt`` and ``completion``, ``instruction``
    and ``output``, or ``messages`` of a chat with one question and one answer stand for them. Of a
    list of answers the first is the answer, the others are aliases.
    Raises HoldfastError, without the place, for a column that is not there, a chat of other form,
    and paraphrases that are no list of texts.
    """
    rest = dict(record)
    found: dict[str, Any] = {}
    for key, column in (("question", columns.question), ("answer", columns.answer)):
        if column is not None:
            if column not in rest:
                raise HoldfastError(
                    f"has no {quoted(column)}; it has {', '.join(rest) or 'nothing'}"
                )
            found[key] = rest.pop(column)
    if "question" not in rest | found and "answer" not in rest | found:
        found |= _pair(rest)
    clashing = {
        key: rest.pop(key) for key in ("question", "answer") if key in found and key in rest
    }
    found |= {key: rest.pop(key) for key in KEYS if key in rest}
    missing = [key for key in ("question", "answer") if key not in found]
    if missing:
        has = ", ".join(map(str, record)) or "nothing"
        raise HoldfastError(
            f'"{missing[0]}" is missing; every item needs a question and an answer, this has {has}'
        )
    if isinstance(found["answer"], (list, tuple)) and found["answer"]:
        found["answer"], *others = found["answer"]
        aliases = found.get("aliases", [])
        if isinstance(aliases, (list, tuple)):  # else it is refused later
            found["aliases"] = [*aliases, *others]
    extra = {**rest, **clashing, **found.pop("_more", {})}
    if PARAPHRASES in extra:
        extra[PARAPHRASES] = _texts(PARAPHRASES, extra[PARAPHRASES])
    if extra:
        details = found.get("details", {})
        # What is wrong with the details is said by who reads them.
        found["details"] = {**extra, **details} if isinstance(details, dict) else details
    return found


def _pair(rest: dict[str, Any]) -> dict[str, Any]:
    """Take a question and its answer out of ``rest``, from the first pair of keys that is there."""
    if "messages" in rest:
        return _chat(rest.pop("messages"))
    for question, answer in PAIRS:
        if question in rest and answer in rest:
            return {"question": rest.pop(question), "answer": rest.pop(answer)}
    return {}


def _chat(messages: Any) -> dict[str, Any]:
    said: dict[str, list[Any]] = {"system": [], "user": [], "assistant": []}
    for message in messages if isinstance(messages, (list, tuple)) else ():
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in said:
            said[role].append(message.get("content"))
    if [len(said["user"]), len(said["assistant"])] != [1, 1] or len(said["system"]) > 1:
        raise HoldfastError(
            '"messages" must have one of the role user, then one of the role assistant; cut a '
            "longer chat into pairs"
        )
    more = {"_more": {"system": said["system"][0]}} if said["system"] else {}
    return {"question": said["user"][0], "answer": said["assistant"][0], **more}


def _texts(key: str, value: Any) -> list[str]:
    if isinstance(value, (list, tuple)) and all(isinstance(text, str) and text for text in value):
        return list(value)
    raise HoldfastError(f'"{key}" is {value!r:.60}; write a list of texts')


def warn_of_misspelled(source: str, keys: Iterable[str]) -> None:
    """Say which further keys are nearly a known one: they are kept, but have no effect."""
    for key in sorted(set(keys) - {*KEYS, PARAPHRASES}):
        known: Sequence[str] = [*KEYS, PARAPHRASES]
        meant = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.75)
        if meant:
            logger.warning(
                "%s: %s is kept as a detail; if you meant %s, rename it",
                source,
                quoted(key),
                quoted(meant[0]),
            )
