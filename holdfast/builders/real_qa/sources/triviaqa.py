"""TriviaQA: trivia questions with alias sets, from JSON files, tar archives and DPR's lists."""

from __future__ import annotations

import ast
import tarfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from holdfast.builders.real_qa.candidate import UnusableError, accepted
from holdfast.builders.real_qa.sources.published import (
    decoded,
    in_file,
    parse,
    shown,
    table,
    text_of,
    within,
)
from holdfast.builders.real_qa.sources.source import (
    Fields,
    Hub,
    PublishedRecord,
    Source,
    member,
    members,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.own import regular

JSON_FILES = ("qa/*.json", "unfiltered-web-*.json", "triviaqa_sample.json")
ARCHIVES = (".tgz", ".tar.gz", ".tar")

# A damaged header may give any size, so reading a member fails in many ways.
DAMAGE = (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, OverflowError, MemoryError)


def _records(path: Path) -> Iterator[PublishedRecord]:
    if path.name.endswith(ARCHIVES):
        return _in_archive(path)
    if path.suffix == ".txt":
        return table(path, columns=("question", "answers"))
    return _in_document(path, text_of(path))


def _in_document(path: Path, text: str, inside: str = "") -> Iterator[PublishedRecord]:
    """``{"Data": [...]}``."""
    where = shown(path / inside)
    document = parse(where, text)
    with within(where):
        values = members(document, "Data")
    for number, value in enumerate(values, start=1):
        yield in_file(path, "record", number, value, inside)


def _in_archive(path: Path) -> Iterator[PublishedRecord]:
    """The records of an archive's question files, in its order; evidence files are skipped."""
    for name, content in _question_files(path):
        yield from _in_document(path, decoded(shown(path / name), content), name)


def _question_files(path: Path) -> Iterator[tuple[str, bytes]]:
    found = False
    try:
        with tarfile.open(regular(path)) as archive:
            for entry in archive:
                # With a leading slash, path / name would drop the archive's own path.
                name = shown(Path(entry.name.lstrip("/")))
                file = archive.extractfile(entry) if entry.isreg() and _asks(name) else None
                if file is not None:
                    found = True
                    yield name, file.read()
    except FileNotFoundError:
        raise HoldfastError(f"{shown(path)}: no such file") from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"{shown(path)}: is no whole tar archive ({reason})") from None
    if not found:
        raise HoldfastError(f"{shown(path)}: holds no {' or '.join(JSON_FILES)}")


def _asks(name: str) -> bool:
    path = PurePosixPath(name)
    # Archives made on a Mac hold an extra "._name" for every file.
    return not path.name.startswith(".") and any(path.match(pattern) for pattern in JSON_FILES)


def _published(values: object) -> Fields:
    if isinstance(values, dict) and values.keys() == {"question", "answers"}:  # DPR's list
        return _listed(values)
    if isinstance(values, dict) and "Answer" not in values:
        member(values, "QuestionId")
        raise UnusableError("no answer")  # the published test splits
    answer = member(values, "Answer")
    primary = member(answer, "Value")
    aliases = [*members(answer, "Aliases"), *members(answer, "NormalizedAliases")]
    return Fields(member(values, "QuestionId"), member(values, "Question"), (primary, *aliases))


def _listed(values: dict[str, object]) -> Fields:
    """DPR's list has no canonical answer: the first usable alias is taken as the primary one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash that escapes nothing
            aliases = ast.literal_eval(str(values["answers"]))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        aliases = None
    if not isinstance(aliases, list):
        raise UnusableError("the answers are no Python list")
    return Fields(None, values["question"], accepted(aliases))


def _row(values: object) -> Fields:
    """``{"question_id", "question", "answer": {"value", "aliases", "normalized_aliases"}}``."""
    answer = member(values, "answer")
    primary = member(answer, "value")
    aliases = [*members(answer, "aliases"), *members(answer, "normalized_aliases")]
    if primary == "<unk>" and not aliases:
        raise UnusableError("no answer")  # the hub's test split
    return Fields(member(values, "question_id"), member(values, "question"), (primary, *aliases))


TRIVIAQA = Source(
    name="triviaqa",
    kind="factoid",
    hub=Hub("mandarjoshi/trivia_qa", "rc.nocontext", "train"),
    # Not every .txt: the evidence passages are .txt files too.
    patterns=(*JSON_FILES, "triviaqa-*.tgz", "triviaqa-*.tar.gz", "*trivia*.txt"),
    records=_records,
    published=_published,
    row=_row,
)
