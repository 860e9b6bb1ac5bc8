"""What a model said to every candidate: kept, so that it can be audited and is asked once.

```
verdicts/settings.json    the model, how it was sampled, and the rule by which it is judged
verdicts/squad.jsonl      {"id", "question", "answers", "completions", "known"} a candidate
```
``known`` is the accepted answer that stood in a completion, null when none did; a candidate that
could not be decided has ``error`` instead of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.builders.real_qa.candidate import Candidate
from holdfast.builders.real_qa.contamination import RULE, ask, found
from holdfast.builders.text_model import Failure, SamplingParameters, TextModel
from holdfast.core.config import differences
from holdfast.core.errors import HoldfastError
from holdfast.core.files import (
    extend,
    read_json,
    remove_unfinished,
    write_json,
    write_text_atomically,
)
from holdfast.streams.jsonl import lines_of

Verdict = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """A source's candidates up to the last one kept, and how many were not kept, by reason.

    silent: of the kept, those to which every completion was empty.
    """

    kept: list[Candidate]
    asked: int
    known: int
    errors: int
    silent: int


class Verdicts:
    """The verdicts of one directory; they hold for whoever asks the same of the same model.

    Raises HoldfastError when the directory holds verdicts of another model or sampling.
    """

    def __init__(self, directory: Path, model: TextModel, sampling: SamplingParameters) -> None:
        self._directory = directory
        self._model = model
        self._sampling = sampling
        wanted = {
            "model": model.name,
            "sampling": sampling.model_dump(mode="json"),
            "rule": RULE,
        }
        remove_unfinished(directory)
        path = directory / "settings.json"
        if not path.exists():
            write_json(path, wanted)
        elif changed := differences(read_json(path), wanted):
            raise HoldfastError(
                f"{directory}: holds verdicts made otherwise ({'; '.join(changed)}); choose "
                "another directory, or remove this one"
            )

    def first_unknown(
        self, source: str, pool: Sequence[Candidate], needed: int, tell: Callable[[int, int], None]
    ) -> Judged:
        """Ask a source's candidates, in their order, until ``needed`` are unknown to the model.

        What is on disk is not asked again. What came before the model failed, or the process was
        interrupted, is kept. ``tell`` hears how many are found and how many have a verdict.
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
            # Batches lie on a grid, so that an interrupted one asks no more than it would have.
            end = (len(judged) // self._model.batch + 1) * self._model.batch
            batch = [one for one in pool[len(judged) : end] if not _holds(stored.get(one.id), one)]
            self._ask(batch, path, stored)
        _tidy(path, pool, stored)
        kept = [one for one, line in zip(pool, judged, strict=False) if _unknown(line)]
        silent = sum(_unknown(line) and not "".join(line["completions"]).strip() for line in judged)
        errors = sum("error" in line for line in judged)
        known = len(judged) - len(kept) - errors
        return Judged(kept, len(judged), known, errors, silent)

    def _ask(self, batch: Sequence[Candidate], path: Path, stored: dict[str, Verdict]) -> None:
        fresh: dict[int, Verdict] = {}
        try:
            questions = [(one.id, one.question) for one in batch]
            for place, answer in ask(self._model, questions, self._sampling):
                fresh[place] = _verdict(batch[place], answer)
        finally:
            lines = [fresh[place] for place in sorted(fresh)]
            # All or none: answers depend, by rounding, on the questions that are asked beside them.
            extend(path, "".join(map(_line, lines)))
            stored.update((line["id"], line) for line in lines)
        assert len(fresh) == len(batch), "a model left a prompt without an answer"


def _up_to(needed: int, pool: Sequence[Candidate], stored: Mapping[str, Verdict]) -> list[Verdict]:
    """The verdicts on the pool's first candidates: until one has none, or enough are unknown."""
    verdicts: list[Verdict] = []
    unknown = 0
    for candidate in pool:
        verdict = stored.get(candidate.id)
        if verdict is None or not _holds(verdict, candidate) or unknown == needed:
            break
        verdicts.append(verdict)
        unknown += _unknown(verdict)
    return verdicts


def _holds(verdict: Verdict | None, candidate: Candidate) -> bool:
    """Whether a verdict is on this very question and these answers."""
    return (
        verdict is not None
        and verdict["question"] == candidate.question
        and verdict["answers"] == list(candidate.answers)
    )


def _verdict(one: Candidate, answer: list[str] | Failure) -> Verdict:
    verdict: Verdict = {"id": one.id, "question": one.question, "answers": list(one.answers)}
    if isinstance(answer, Failure):
        return verdict | {"error": answer.reason}
    matches = (found(completion, one.answers) for completion in answer)
    known = next((match for match in matches if match is not None), None)
    return verdict | {"completions": answer, "known": known}


def _unknown(verdict: Verdict) -> bool:
    return "error" not in verdict and verdict["known"] is None


def _line(verdict: Verdict) -> str:
    return json.dumps(verdict, ensure_ascii=False) + "\n"


def _read(path: Path) -> dict[str, Verdict]:
    """The verdicts on disk, by candidate."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    verdicts = {}
    for place, raw in lines_of(content):
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


def _tidy(path: Path, pool: Sequence[Candidate], stored: Mapping[str, Verdict]) -> None:
    """Put the verdicts into the order of the pool, whatever the order in which they came."""
    places = {candidate.id: place for place, candidate in enumerate(pool)}
    ordered = sorted(stored.values(), key=lambda line: places.get(line["id"], len(places)))
    text = "".join(map(_line, ordered))
    if path.exists() and path.read_text(encoding="utf-8") != text:
        write_text_atomically(path, text)
