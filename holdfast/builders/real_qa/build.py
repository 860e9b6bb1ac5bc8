"""Real-QA: ten public sources, filtered against one model, pooled and cut into tasks.

Source: app:data-real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field

from holdfast.builders.real_qa.candidate import Candidate, Reading
from holdfast.builders.real_qa.contamination import SAMPLING
from holdfast.builders.real_qa.pool import Pool, pools
from holdfast.builders.real_qa.sources import SOURCES
from holdfast.builders.real_qa.verdicts import Judged, Verdicts
from holdfast.builders.text_model import Report, TextModel
from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.core.files import alone
from holdfast.core.seeding import derive
from holdfast.streams.item import Item
from holdfast.streams.stream import Stream, Task


class Settings(Config):
    """The size of a stream, 500 items of each of ten sources by default, and its draws."""

    tasks: int = Field(100, ge=1)
    items: int = Field(50, ge=1)
    seed: int = Field(42, ge=0)


def build(
    readings: Mapping[str, Reading],
    model: TextModel,
    directory: Path,
    settings: Settings | None = None,
    *,
    fits: Callable[[Candidate], bool] | None = None,
    report: Report | None = None,
) -> Stream:
    """Draw equally from the sources what the model does not know, pool, shuffle, cut.

    readings: by source. directory: keeps the verdicts, in ``verdicts/``; asking again with the
    same sources and model continues there. fits: whether a candidate is short enough. report: is
    told how many items are found, of how many.

    Raises HoldfastError when a source runs out of candidates, or the directory holds the verdicts
    of another model.
    """
    settings = settings or Settings()
    shares = _shares(sorted(readings), settings.tasks * settings.items)
    ready = pools(readings, settings.seed, fits)
    _refuse_the_impossible(shares, ready)
    sampling = SAMPLING.model_copy(update={"seed": settings.seed})
    with alone(directory):
        verdicts = Verdicts(directory / "verdicts", model, sampling)
        judged = _judged(verdicts, ready, shares, report)
    _refuse_shortage(shares, judged, ready)
    chosen = [
        candidate
        for one in judged.values()
        for candidate in sorted(one.kept, key=lambda candidate: candidate.id)
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
    report: Report | None,
) -> dict[str, Judged]:
    """Each source's share of candidates that the model does not know."""
    total = sum(shares.values())
    judged: dict[str, Judged] = {}
    for source, share in shares.items():
        before = sum(len(one.kept) for one in judged.values())

        def tell(done: int, asked: int, source: str = source, before: int = before) -> None:
            if report is not None:
                report(before + done, total, f"{source}, {asked} asked")

        judged[source] = verdicts.first_unknown(source, ready[source].candidates, share, tell)
    return judged


def _shares(sources: list[str], total: int) -> dict[str, int]:
    """How many items come from each source: equally many, the first ones giving the rest."""
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
    """HoldfastError, before anything is asked, where not even all candidates would do."""
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


def _item(candidate: Candidate) -> Item:
    return candidate.item(dataset=candidate.source, type=SOURCES[candidate.source].kind)


def _account(reading: Reading, dropped: Mapping[str, int], judged: Judged) -> dict[str, Any]:
    """Where a source's records went; the manifest tells it."""
    left: dict[str, int] = {}
    for one in reading.left:
        left[one.reason] = left.get(one.reason, 0) + 1
    return {
        "records": reading.records,
        "left_out": left | dict(dropped),
        "asked": judged.asked,
        "known": judged.known,
        "errors": judged.errors,
        "silent": judged.silent,
        "kept": len(judged.kept),
    }
