"""The ten sources of Real-QA, from their published files or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.builders.real_qa.candidate import SourceRecords
from holdfast.builders.real_qa.sources.arc import ARC_CHALLENGE, ARC_EASY, OPENBOOKQA
from holdfast.builders.real_qa.sources.medmcqa import MEDMCQA
from holdfast.builders.real_qa.sources.nq_open import NQ_OPEN
from holdfast.builders.real_qa.sources.popqa import POPQA
from holdfast.builders.real_qa.sources.published import shown
from holdfast.builders.real_qa.sources.sciq import SCIQ
from holdfast.builders.real_qa.sources.source import Hub, PublishedRecord, Source, gather
from holdfast.builders.real_qa.sources.squad import SQUAD
from holdfast.builders.real_qa.sources.triviaqa import TRIVIAQA
from holdfast.builders.real_qa.sources.webquestions import WEBQUESTIONS
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.hub import hub_or_cache
from holdfast.streams.hf_dataset import library
from holdfast.streams.item import quoted

__all__ = ["SOURCES", "Hub", "Source", "find_files", "read_files", "read_hub"]

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        ARC_CHALLENGE,
        ARC_EASY,
        MEDMCQA,
        NQ_OPEN,
        OPENBOOKQA,
        POPQA,
        SCIQ,
        SQUAD,
        TRIVIAQA,
        WEBQUESTIONS,
    )
}


def read_files(
    name: str, paths: Iterable[str | Path], *, searched: str | Path | None = None
) -> SourceRecords:
    """Read published files of one source, in the order given.

    name: a key of :data:`SOURCES`. searched: the folder that was searched, for the error when no
    paths are given. A record whose content cannot be used is left out, with its place and the
    reason; a record that several files hold is read from each.

    Raises HoldfastError for an unknown source, no files, and a file that is not of the source's
    published form, naming the file and the line or record.

    Source: app:data-real.
    """
    source = _source(name)
    files = [Path(path) for path in paths]
    try:
        if not files and searched is not None:
            raise HoldfastError(
                f"{shown(Path(searched))}: holds no published files of {name} in a folder of that "
                "name, nor is it that folder"
            )
        if not files:
            raise HoldfastError(f"no files of {name} are given")
        records = (record for path in files for record in _some(path, source))
        return gather(name, records, source.published)
    except HoldfastError as error:
        patterns = ", ".join(source.patterns)
        raise HoldfastError(f"{error}; give published files of {name}: {patterns}") from None


def find_files(root: str | Path, name: str) -> list[Path]:
    """The published files of one source under ``root/<name>`` or ``root/*/<name>``, sorted.

    When neither exists, ``root`` itself may be the folder of that name. The files may lie at any
    depth in it; other files are ignored. Returns an empty list when no file is found.

    Raises HoldfastError for an unknown source.
    """
    source = _source(name)
    root = Path(root)
    try:
        folders = [root / name, *root.glob(f"*/{name}")]
        if root.resolve().name == name:
            folders.append(root)
        folder = next((one for one in folders if one.is_dir()), None)
        if folder is None:
            return []
        return sorted(
            path
            for path in folder.rglob("*")
            if path.is_file()
            and not path.name.startswith(".")
            # TriviaQA's evidence passages, some of which have names like the question files.
            and "evidence" not in path.relative_to(folder).parts
            and any(path.match(pattern) for pattern in source.patterns)
        )
    except OSError as error:
        raise HoldfastError(
            f"{shown(root)}: cannot be searched ({error.strerror}); give a readable folder"
        ) from None


def read_hub(name: str, hub: Hub | None = None) -> SourceRecords:
    """Read one source from the Hugging Face hub, or from its cache. hub: another dataset or split.

    Raises HoldfastError when `datasets` is not installed, the dataset cannot be loaded, or its
    rows do not have the source's format.

    Source: app:data-real.
    """
    source = _source(name)
    hub = hub or source.hub
    load_dataset = library().load_dataset
    try:
        return gather(name, _rows(hub, load_dataset), source.row)
    except HoldfastError as error:
        message = (
            f"dataset {error}; check its name and the network, or download the published files of "
            f"{name} ({', '.join(source.patterns)}) and give their folder with --data-root"
        )
        raise HoldfastError(" ".join(message.split())) from None


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise HoldfastError(f"unknown source {quoted(name)}; {did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def _some(path: Path, source: Source) -> Iterator[PublishedRecord]:
    """The records of a file; raises HoldfastError when there are none."""
    empty = True
    for record in source.records(path):
        empty = False
        yield record
    if empty:
        raise HoldfastError(f"{shown(path)}: holds no records")


def _rows(hub: Hub, load_dataset: Callable[..., Iterable[object]]) -> Iterator[PublishedRecord]:
    # load_dataset also reads a local directory.
    reach = contextlib.nullcontext(True) if Path(hub.path).is_dir() else hub_or_cache()
    reachable = True
    try:
        with reach as reachable:
            rows = load_dataset(hub.path, hub.config, split=hub.split)
        for number, row in enumerate(rows, start=1):
            place = f"{hub} row {number}"
            yield PublishedRecord(place, place, f"{hub.split}:{number}", row)
    # datasets does not wrap errors of the network, the hub, the file formats and Arrow.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if not reachable and isinstance(error, OSError):
            reason = "not in the hub's cache, and the hub does not answer"
        raise HoldfastError(f"{hub}: cannot be loaded ({reason})") from error
