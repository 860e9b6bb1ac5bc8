"""JSON lines; rows of these, of tables and of datasets, and how they become items and tasks."""

from __future__ import annotations

import difflib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.file_checks import regular
from holdfast.core.files import write_text_atomically
from holdfast.streams.item import Item, clean, quoted
from holdfast.streams.stream import QuestionRegistry, Stream, Task

KEYS = ("question", "answer", "aliases", "task", "id", "details")
PARAPHRASES = "paraphrases"  # other wordings of the question, kept in the details
KNOWN_KEYS = (*KEYS, PARAPHRASES)
PAIRS = (("prompt", "completion"), ("instruction", "output"), ("input", "output"))
EXAMPLE = '{"question": "...", "answer": "..."}'
_SHOWN = 20  # bad rows that an error lists one by one

Record = TypeVar("Record")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """The columns of questions and answers; None: ``question``, ``answer``, or a known pair.

    corrections: whether a later task may give a question a new answer.
    """

    question: str | None = None
    answer: str | None = None
    corrections: bool = False


NAMED_AS_KEYS = Columns()


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn errors of reading a file in the block into one line. kind: such as ``a table``.

    Refuses at once what is no regular file: reading a named pipe or a device may never end.
    """
    try:
        regular(path)
        yield
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give the path of {kind}") from None
    except UnicodeDecodeError:
        raise HoldfastError(f"{path}: is no UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise HoldfastError(
            f"{path}: cannot be read ({error.strerror or error}); give the path of {kind}"
        ) from error


def stream_of(
    source: str,
    records: Iterable[tuple[str, Record]],
    parse: Callable[[Record], Mapping[str, Any]],
    name: str,
    items_per_task: int | None = None,
    columns: Columns = NAMED_AS_KEYS,
    *,
    skip_blank: bool = True,
) -> Stream:
    """Parse (place, record) pairs and group their items into the tasks of a stream.

    source: its name in errors; parse: turns a record into a mapping for :func:`row_of`, with known
    keys in any case; name: the stream's; skip_blank: ignore records without any filled value.
    Either all rows name their task or none does. Tasks come in the order of their first row.
    Without names, every ``items_per_task`` rows make a task, named by its number; if that is None
    too, all rows are one task.
    Raises HoldfastError naming the source, the first twenty bad places with what is wrong there,
    and how many more there are.
    """
    rows = _rows(source, records, parse, columns, skip_blank)
    if not rows:
        raise HoldfastError(f"{source}: holds no facts; give a question and its answer")
    first_place, _, first_task = rows[0]
    has_tasks = first_task is not None
    for place, _, task in rows:
        if (task is not None) != has_tasks:
            with_task, without = (first_place, place) if has_tasks else (place, first_place)
            raise HoldfastError(
                f'{source} {place}: {with_task} names a "task" and {without} does not; give every '
                "one a task, or none"
            )
    if items_per_task is not None and items_per_task < 1:
        raise HoldfastError(f"{source}: items_per_task = {items_per_task}; use 1 or more")
    if has_tasks and items_per_task is not None:
        raise HoldfastError(
            f'{source}: its items name their "task", so items_per_task = {items_per_task} has no '
            "meaning; leave it out"
        )
    size = items_per_task or len(rows)
    tasks: dict[str, list[Item]] = {}
    for index, (_, item, task) in enumerate(rows):
        tasks.setdefault(task or str(index // size + 1), []).append(item)
    grouped = tuple(Task(name, tuple(items)) for name, items in tasks.items())
    return Stream(grouped, name, repeats=columns.corrections)


def _rows(
    source: str,
    records: Iterable[tuple[str, Record]],
    parse: Callable[[Record], Mapping[str, Any]],
    columns: Columns,
    skip_blank: bool,
) -> list[tuple[str, Item, str | None]]:
    """The place, item and task of each record."""
    rows: list[tuple[str, Item, str | None]] = []
    keys: set[str] = set()
    wrong: list[tuple[str, str]] = []  # place, reason
    questions: dict[str | None, QuestionRegistry] = defaultdict(QuestionRegistry)
    for place, record in records:
        try:
            given = parse(record)
            if skip_blank and not any(map(_is_filled, given.values())):
                continue
            names = known_names(list(given), columns)
            keys.update(names)
            item, task = row_of(dict(zip(names, given.values(), strict=True)), columns)
            questions[task if columns.corrections else None].add(item, f"{source} {place}")
            rows.append((place, item, task))
        except HoldfastError as error:
            wrong.append((place, str(error).removeprefix(f"{source} {place}: ")))
    if wrong:
        raise HoldfastError(_all_that_is_wrong(source, wrong, len(rows) + len(wrong)))
    _warn_of_misspelled(source, keys)
    return rows


def _is_filled(value: object) -> bool:
    """Whether a value is more than null, white space or an empty list or object."""
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [], (), {})


def _all_that_is_wrong(source: str, wrong: Sequence[tuple[str, str]], count: int) -> str:
    place, reason = wrong[0]
    if len(wrong) == 1:
        return f"{source} {place}: {reason}"
    if len(wrong) == count and len({why for _, why in wrong}) == 1:
        return f"{source} {place} and all others, {count} in all: {reason}"
    lines = [f"{source}: {len(wrong)} of {count} entries are wrong; nothing was taken"]
    lines += [f"  {where}: {why}" for where, why in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more")
    return "\n".join(lines)


def _warn_of_misspelled(source: str, keys: Iterable[str]) -> None:
    """Warn of keys that resemble a known one: they are kept as details, without effect."""
    for key in sorted(set(keys) - {*KNOWN_KEYS}):
        for meant in difflib.get_close_matches(key.lower(), KNOWN_KEYS, n=1, cutoff=0.75):
            message = "%s: %s is kept as a detail; if you meant %s, rename it"
            logger.warning(message, source, quoted(key), quoted(meant))


def known_names(names: Sequence[str], columns: Columns) -> list[str]:
    """Column names, with known keys stripped and in lower case.

    ``messages`` and the keys of :data:`PAIRS` are known only if there is neither question nor
    answer. Columns that ``columns`` names stay as they are. Raises HoldfastError for two columns of
    one name, and if one column is named for both questions and answers.
    """
    if columns.question is not None and columns.question == columns.answer:
        raise HoldfastError(
            f"{quoted(columns.question)} is named for questions and for answers; name two columns"
        )
    lowered = [name.strip().lower() for name in names]
    known = {*KNOWN_KEYS}
    if not {"question", "answer"} & {*lowered}:
        known |= {"messages", *(name for pair in PAIRS for name in pair)}
    chosen = {columns.question, columns.answer}
    heads = [
        lower if lower in known and name not in chosen else name
        for lower, name in zip(lowered, names, strict=True)
    ]
    twice = next((name for name in heads if name and heads.count(name) > 1), None)
    if twice is not None:
        raise HoldfastError(f"has two columns {quoted(twice)}; keep one")
    return heads


def row_of(record: Mapping[str, Any], columns: Columns = NAMED_AS_KEYS) -> tuple[Item, str | None]:
    """The item in the values of :data:`KEYS`, and its task's name; other keys are details.

    A pair of :data:`PAIRS`, or the ``messages`` of a chat with one question and one answer, may
    replace ``question`` and ``answer``. In a list of answers, all but the first are aliases.
    Raises HoldfastError for a missing column or key, a chat of another form, values of the wrong
    type, and whatever :class:`Item` refuses.
    """
    rest = dict(record)
    values: dict[str, Any] = {}
    for key, column in (("question", columns.question), ("answer", columns.answer)):
        if column is not None:
            if column not in rest:
                has = ", ".join(record) or "nothing"
                raise HoldfastError(f"has no {quoted(column)}; it has {has}")
            values[key] = rest.pop(column)
    if not {"question", "answer"} & {*rest, *values}:
        values |= _pair(rest)
    values |= {key: rest.pop(key) for key in KEYS if key in rest and key not in values}
    for key in ("question", "answer"):
        if key not in values:
            raise HoldfastError(
                f'"{key}" is missing; every item needs a question and an answer, this has '
                f"{', '.join(map(str, record)) or 'nothing'}"
            )
    answer, aliases = values["answer"], values.get("aliases", ())
    if isinstance(answer, (list, tuple)) and answer and isinstance(aliases, (list, tuple)):
        answer, aliases = answer[0], [*aliases, *answer[1:]]
    texts = rest.get(PARAPHRASES, [])
    if not isinstance(texts, (list, tuple)) or not all(
        isinstance(text, str) and text for text in texts
    ):
        raise HoldfastError(f'"{PARAPHRASES}" is {texts!r:.60}; write a list of texts')
    details = values.get("details", {})
    if not isinstance(details, dict):
        raise HoldfastError(f'"details" is {details!r:.60}; write an object, or leave it out')
    item = Item(values["question"], answer, aliases, _label("id", values), {**rest, **details})
    return item, _label("task", values)


def _pair(rest: dict[str, Any]) -> dict[str, Any]:
    """Remove question and answer from ``rest``: those of a chat, or the first pair it has."""
    if "messages" not in rest:
        for question, answer in PAIRS:
            if question in rest and answer in rest:
                return {"question": rest.pop(question), "answer": rest.pop(answer)}
        return {}
    contents: dict[str, list[Any]] = {"system": [], "user": [], "assistant": []}
    messages = rest.pop("messages")
    for message in messages if isinstance(messages, (list, tuple)) else ():
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in contents:
            contents[role].append(message.get("content"))
    if [len(contents["user"]), len(contents["assistant"])] != [1, 1] or len(contents["system"]) > 1:
        raise HoldfastError(
            '"messages" must have one of the role user, then one of the role assistant; cut a '
            "longer chat into pairs"
        )
    if contents["system"]:
        rest["system"] = contents["system"][0]
    return {"question": contents["user"][0], "answer": contents["assistant"][0]}


def _label(key: str, values: Mapping[str, Any]) -> str | None:
    """A name given as text or as a whole number; None when absent."""
    if key not in values:
        return None
    value = values[key]
    whole_number = isinstance(value, int) and not isinstance(value, bool)
    if not whole_number and not isinstance(value, str):
        raise HoldfastError(f'"{key}" is {value!r:.60}; give a text or a whole number, or nothing')
    return clean(key, str(value))


def details_of(text: str) -> Any:
    """Parse the details that a cell holds as JSON text."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):  # brackets may nest too deep
        raise HoldfastError('"details" is no JSON; write an object as text') from None


def without_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object without its known keys that are null: null counts as an empty cell."""
    return {
        key: value for key, value in values.items() if value is not None or key not in KNOWN_KEYS
    }


def values_of(task: Task, item: Item) -> dict[str, Any]:
    """An item's values as :func:`row_of` reads them, without optional ones that it lacks."""
    values: dict[str, Any] = {"task": task.name, "question": item.question, "answer": item.answer}
    if item.aliases:
        values["aliases"] = list(item.aliases)
    if item.id is not None:
        values["id"] = item.id
    if item.details:
        values["details"] = dict(item.details)
    return values


def read_jsonl(
    path: str | Path, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Read lines ``{"question", "answer", "aliases"?, "task"?, "id"?, "details"?}`` as a stream.

    Other keys are kept in the details. ``prompt`` and ``completion``, ``instruction`` or ``input``
    and ``output``, or the ``messages`` of a chat may replace ``question`` and ``answer``.

    ``task`` is text or a whole number (``1`` and ``"1"`` are one task), given in every line or in
    none. Tasks come in the order of their first line. Without ``task``, every ``items_per_task``
    lines make a task, named by its number; without ``items_per_task``, the file is one task. Blank
    lines are skipped. The stream is named after the file.

    Raises HoldfastError naming the file and, if one is wrong, the line.
    """
    path = Path(path)
    with reading(path, "a .jsonl file"):
        content = path.read_bytes()
    records = lines_of(content)
    return stream_of(str(path), records, json_object, path.stem, items_per_task, columns)


def write_jsonl(stream: Stream, path: str | Path) -> None:
    """Write a stream atomically, so that :func:`read_jsonl` returns equal tasks.

    The stream's name, ``exact_case`` and ``about`` are not written. Raises HoldfastError when the
    path cannot be written.
    """
    lines = [
        json.dumps(values_of(task, item), ensure_ascii=False)
        for task in stream.tasks
        for item in task.items
    ]
    write_text_atomically(Path(path), "".join(f"{line}\n" for line in lines), parents=True)


def lines_of(content: bytes) -> list[tuple[str, bytes]]:
    """The non-blank lines of a file, each with its place (``line 7``)."""
    # Only the line feed ends a line: text may hold Unicode's own line separators.
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [(f"line {n}", raw) for n, raw in enumerate(lines, start=1) if raw.strip()]


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises HoldfastError, without the place, if it is none."""
    try:
        values = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise HoldfastError("is no UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = reason_of(error)
        raise HoldfastError(f"is no JSON ({reason}); write one {EXAMPLE} a line") from None
    if not isinstance(values, dict):
        raise HoldfastError(f"is no JSON object; write one {EXAMPLE} a line")
    return without_null(values)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that occurs twice in one object; json would silently keep the last."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HoldfastError(f"key {quoted(twice)} stands twice; keep one")
    return values
