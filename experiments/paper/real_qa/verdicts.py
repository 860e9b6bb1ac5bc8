"""Verdicts on candidates, stored so that they can be audited and the model is queried only once.

```
verdicts/settings.json    the model, its sampling parameters, and the matching rule
verdicts/squad.jsonl      {"id", "question", "answers", "completions", "known"}, one per candidate
```
``known`` is the accepted answer that a completion contained, null when none did; a candidate that
could not be decided has ``error`` instead of ``completions`` and ``known``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper.kept_between_calls import claim_settings, extend
from experiments.paper.real_qa.candidate import CandidateItem
from experiments.paper.real_qa.contamination import Match, ask, found
from holdfast.builders.text_model import Failure, SamplingParameters, TextModel
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular, remove_unfinished, require_directory
from holdfast.core.files import read_bytes, write_text_atomically
from holdfast.core.reporting import CountReport
from holdfast.streams.rows import lines_of

Verdict = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """The kept candidates of a source, and counts over the candidates asked.

    known, errors: not kept, for that reason; silent: kept, but every completion was empty.
    """

    kept: list[CandidateItem]
    asked: int
    known: int
    errors: int
    silent: int


class Verdicts:
    """The verdicts of one directory, reused for the same candidates, model, sampling and match.

    Raises HoldfastError when the directory holds verdicts of another model, sampling or match.
    """

    def __init__(
        self, directory: Path, model: TextModel, sampling: SamplingParameters, match: Match
    ) -> None:
        self._match: Match = match
        self._directory = directory
        self._model = model
        self._sampling = sampling
        wanted = {
            "model": model.name,
            "sampling": sampling.model_dump(mode="json"),
            "match": match,
        }
        require_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        remove_unfinished(directory)
        files = directory.glob("*.jsonl")
        claim_settings(directory / "settings.json", "verdicts", wanted, files)

    def first_unknown(
        self,
        source: str,
        pool: Sequence[CandidateItem],
        needed: int,
        tell: CountReport,
    ) -> Judged:
        """Test a source's candidates, in order, until ``needed`` are unknown to the model.

        Verdicts on disk are reused; those that arrive before a failure or an interruption are
        stored. tell: called with (unknown candidates found, candidates with a verdict).
        """
        path = self._directory / f"{source}.jsonl"
        stored = _read(path)
        judged: list[Verdict] = []
        while True:
            judged = _up_to(needed, pool, stored)
            unknown = sum(map(_unknown, judged))
            tell(min(unknown, needed), len(judged))
            if unknown >= needed or len(judged) == len(pool):
                break
            # Batches end at multiples of the batch size, so that an interrupted run tests no
            # more candidates than an uninterrupted one.
            end = (len(judged) // self._model.batch + 1) * self._model.batch
            batch = [
                candidate
                for candidate in pool[len(judged) : end]
                if not _holds(stored.get(candidate.id), candidate)
            ]
            self._ask(batch, path, stored)
        _tidy(path, pool, stored)
        kept = [candidate for candidate, line in zip(pool, judged, strict=False) if _unknown(line)]
        silent = sum(_unknown(line) and not "".join(line["completions"]).strip() for line in judged)
        errors = sum("error" in line for line in judged)
        known = len(judged) - len(kept) - errors
        return Judged(kept, len(judged), known, errors, silent)

    def _ask(self, batch: Sequence[CandidateItem], path: Path, stored: dict[str, Verdict]) -> None:
        fresh: dict[int, Verdict] = {}
        try:
            questions = [(candidate.id, candidate.question) for candidate in batch]
            for place, answer in ask(self._model, questions, self._sampling):
                fresh[place] = _verdict(batch[place], answer, self._match)
        finally:
            lines = [fresh[place] for place in sorted(fresh)]
            # All or none: answers depend, through rounding, on the other questions of the batch.
            extend(path, "".join(map(_line, lines)))
            stored.update((line["id"], line) for line in lines)
        assert len(fresh) == len(batch), "a model left a prompt without an answer"


def _up_to(
    needed: int, pool: Sequence[CandidateItem], stored: Mapping[str, Verdict]
) -> list[Verdict]:
    """The verdicts on the pool's first candidates, until one has none or enough are unknown."""
    verdicts: list[Verdict] = []
    unknown = 0
    for candidate in pool:
        verdict = stored.get(candidate.id)
        if verdict is None or not _holds(verdict, candidate) or unknown == needed:
            break
        verdicts.append(verdict)
        unknown += _unknown(verdict)
    return verdicts


def _holds(verdict: Verdict | None, candidate: CandidateItem) -> bool:
    """Whether a verdict is on this candidate's question and answers."""
    return (
        verdict is not None
        and verdict["question"] == candidate.question
        and verdict["answers"] == list(candidate.answers)
    )


def _verdict(candidate: CandidateItem, answer: list[str] | Failure, match: Match) -> Verdict:
    answers = list(candidate.answers)
    verdict: Verdict = {"id": candidate.id, "question": candidate.question, "answers": answers}
    if isinstance(answer, Failure):
        return verdict | {"error": answer.reason}
    matches = (found(completion, answers, match) for completion in answer)
    known = next((matched for matched in matches if matched is not None), None)
    return verdict | {"completions": answer, "known": known}


def _unknown(verdict: Verdict) -> bool:
    return "error" not in verdict and verdict["known"] is None


def _line(verdict: Verdict) -> str:
    return json.dumps(verdict, ensure_ascii=False) + "\n"


def _read(path: Path) -> dict[str, Verdict]:
    """The verdicts on disk, by candidate."""
    verdicts = {}
    for place, raw in lines_of(read_bytes(path) if path.exists() else b""):
        try:
            line = json.loads(raw)
            assert {"id", "question", "answers"} <= line.keys()
            assert "error" in line or {"completions", "known"} <= line.keys()
        except (ValueError, RecursionError, AttributeError, AssertionError):
            raise HoldfastError(
                f"{path} {place}: is no verdict; remove this line, then run the same command again"
            ) from None
        verdicts[line["id"]] = line
    return verdicts


def _tidy(path: Path, pool: Sequence[CandidateItem], stored: Mapping[str, Verdict]) -> None:
    """Rewrite the file with the verdicts in the order of the pool."""
    places = {candidate.id: place for place, candidate in enumerate(pool)}
    ordered = sorted(stored.values(), key=lambda line: places.get(line["id"], len(places)))
    text = "".join(map(_line, ordered))
    if path.exists() and regular(path).read_text(encoding="utf-8") != text:
        write_text_atomically(path, text)
