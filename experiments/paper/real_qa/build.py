"""Real-QA: ten public sources, filtered against one model, pooled and cut into tasks.

Source: app:data-real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field

from experiments.paper.real_qa.candidate import CandidateItem, SourceRecords
from experiments.paper.real_qa.contamination import SAMPLING, Match
from experiments.paper.real_qa.pool import Pool, pools
from experiments.paper.real_qa.sources import SOURCES
from experiments.paper.real_qa.verdicts import Judged, Verdicts
from holdfast.builders.text_model import TextModel
from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.core.reporting import NoteReport
from holdfast.core.seeding import derive
from holdfast.streams.item import Item
from holdfast.streams.stream import Stream, Task


class RealQASettings(Config):
    """Tasks, items in each, seed, and rule for known answers; by default 500 items per source."""

    tasks: int = Field(100, ge=1)
    items: int = Field(50, ge=1)
    seed: int = Field(42, ge=0)
    match: Match = "word_boundary"


def build(
    readings: Mapping[str, SourceRecords],
    model: TextModel,
    directory: Path,
    settings: RealQASettings | None = None,
    *,
    fits: Callable[[CandidateItem], bool] | None = None,
    report: NoteReport | None = None,
) -> Stream:
    """Draw equally many unknown facts from each source, shuffle them and cut them into tasks.

    readings: by source. directory: holds the verdicts, in ``verdicts/``; a call with the same
    sources and model continues from them. fits: whether a candidate is short enough. report:
    called with (items found, items in all, a note).

    Raises HoldfastError when a source runs out of candidates, or the directory holds the verdicts
    of another model.
    """
    settings = settings or RealQASettings()
    shares = _shares(sorted(readings), settings.tasks * settings.items)
    ready = pools(readings, settings.seed, fits)
    _refuse_the_impossible(shares, ready)
    sampling = SAMPLING.model_copy(update={"seed": settings.seed})
    with lock_directory(directory, parts=("verdicts",)):
        verdicts = Verdicts(directory / "verdicts", model, sampling, settings.match)
        judged = _judged(verdicts, ready, shares, report)
    _refuse_shortage(shares, judged, ready)
    chosen = [
        candidate
        for source in judged.values()
        for candidate in sorted(source.kept, key=lambda candidate: candidate.id)
    ]
    Random(derive(settings.seed, "real-qa pool")).shuffle(chosen)
    cut = [
        chosen[start : start + settings.items] for start in range(0, len(chosen), settings.items)
    ]
    return Stream(
        tuple(Task(str(index), tuple(map(_item, part))) for index, part in enumerate(cut, start=1)),
        name="real_qa",
        about={
            "dataset_type": "real_qa",
            "model": model.name,
            "seed": settings.seed,
            "match": settings.match,
            "sampling": sampling.model_dump(mode="json"),
            "sources": {
                name: _account(readings[name], ready[name].dropped, judged[name]) for name in judged
            },
        },
    )


def _judged(
    verdicts: Verdicts,
    ready: Mapping[str, Pool],
    shares: Mapping[str, int],
    report: NoteReport | None,
) -> dict[str, Judged]:
    """Each source's share of candidates that the model does not know."""
    total = sum(shares.values())
    judged: dict[str, Judged] = {}
    for source, share in shares.items():
        before = sum(len(source.kept) for source in judged.values())

        def tell(done: int, asked: int, source: str = source, before: int = before) -> None:
            if report is not None:
                report(before + done, total, f"{source}, {asked} asked")

        judged[source] = verdicts.first_unknown(source, ready[source].candidates, share, tell)
    return judged


def _shares(sources: list[str], total: int) -> dict[str, int]:
    """How many items come from each source: equally many, the remainder from the first ones."""
    if not sources:
        raise HoldfastError("real_qa: no source is given; name at least one")
    each, rest = divmod(total, len(sources))
    if not each:
        raise HoldfastError(
            f"real_qa: {total} items cannot come from {len(sources)} sources; ask for more items "
            "or fewer sources"
        )
    return {name: each + (place < rest) for place, name in enumerate(sources)}


def _refuse_the_impossible(shares: Mapping[str, int], ready: Mapping[str, Pool]) -> None:
    """Raise HoldfastError, before any query, when a source has too few usable candidates."""
    usable = {name: len(ready[name].candidates) for name in shares}
    _refuse(
        [f"{name} {usable[name]} usable of {n}" for name, n in shares.items() if usable[name] < n]
    )


def _refuse_shortage(
    shares: Mapping[str, int], judged: Mapping[str, Judged], ready: Mapping[str, Pool]
) -> None:
    short = [
        f"{name} {len(judged[name].kept)} of {share} (of {len(ready[name].candidates)} usable "
        f"candidates {judged[name].known} are known, {judged[name].errors} failed)"
        for name, share in shares.items()
        if len(judged[name].kept) < share
    ]
    _refuse(short, "; all verdicts are kept for that")


def _refuse(short: list[str], besides: str = "") -> None:
    if short:
        raise HoldfastError(
            f"real_qa: too few candidates: {', '.join(short)}; give more files, fewer tasks or "
            f"items, or leave these sources out{besides}"
        )


def _item(candidate: CandidateItem) -> Item:
    return candidate.item(dataset=candidate.source, type=SOURCES[candidate.source].kind)


def _account(reading: SourceRecords, dropped: Mapping[str, int], judged: Judged) -> dict[str, Any]:
    """Counts of a source's records by outcome, for the manifest."""
    reasons = Counter(record.reason for record in reading.left)
    return {
        "records": reading.records,
        "left_out": dict(reasons) | dict(dropped),
        "asked": judged.asked,
        "known": judged.known,
        "errors": judged.errors,
        "silent": judged.silent,
        "kept": len(judged.kept),
    }
