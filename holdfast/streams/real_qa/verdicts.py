"""What a model said to every candidate: kept, so that it can be audited and is asked once.

```
verdicts/settings.json    the model, how it was sampled, and what was asked in which order
verdicts/squad.jsonl      {"id", "question", "answers", "completions", "known"}, in that order
```
``known`` is the accepted answer that stood in a completion, null when none did; a candidate that
could not be decided has ``error`` instead of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.config import differences, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import append, read_json, write_json
from holdfast.streams.real_qa.candidate import Candidate
from holdfast.streams.real_qa.contamination import ask, found
from holdfast.streams.text_model import Failure, Sampling, TextModel


@dataclass(frozen=True)
class Judged:
    """A source's candidates that were asked: those kept, and how many were not."""

    kept: list[Candidate]
    asked: int
    known: int
    errors: int


class Verdicts:
    """The verdicts of one directory.

    pools: every source's candidates in the order in which they are asked.
    Raises HoldfastError when the directory holds verdicts of another model or of other questions.
    """

    def __init__(
        self,
        directory: Path,
        model: TextModel,
        sampling: Sampling,
        pools: Mapping[str, Sequence[Candidate]],
    ) -> None:
        self._directory = directory
        self._model = model
        self._sampling = sampling
        self._pools = pools
        wanted = {
            "model": model.name,
            "sampling": sampling.model_dump(mode="json"),
            "pools": {
                name: sha256_of([[one.id, one.question, list(one.answers)] for one in pool])
                for name, pool in pools.items()
            },
        }
        path = directory / "settings.json"
        if not path.exists():
            write_json(path, wanted)
        elif changed := differences(read_json(path), wanted):
            raise HoldfastError(
                f"{directory}: holds verdicts made otherwise ({_named(changed)}); choose another "
                "directory, or remove this one"
            )

    def first_unknown(self, source: str, needed: int, tell: Callable[[int, int], None]) -> Judged:
        """Ask a source's candidates, in their order, until ``needed`` are unknown to the model.

        What is on disk is not asked again. A batch is written whole, and asked again as a whole if
        it was not, so an interrupted run gives the verdicts of one that never was. ``tell`` hears
        how many are found and how many were asked.
        """
        pool = self._pools[source]
        lines = self._stored(source)
        unknown = sum(_unknown(line) for line in lines)
        tell(min(unknown, needed), len(lines))
        while unknown < needed and len(lines) < len(pool):
            batch = pool[len(lines) : len(lines) + self._model.batch]
            fresh = self._ask(batch)
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in fresh)
            append(self._path(source), text)
            lines += fresh
            unknown += sum(map(_unknown, fresh))
            tell(min(unknown, needed), len(lines))
        kept = [one for one, line in zip(pool, lines, strict=False) if _unknown(line)]
        errors = sum("error" in line for line in lines)
        known = len(lines) - len(kept) - errors
        return Judged(kept[:needed], len(lines), known, errors)

    def _path(self, source: str) -> Path:
        return self._directory / f"{source}.jsonl"

    def _stored(self, source: str) -> list[dict[str, Any]]:
        """The verdicts on disk, in whole batches; what a killed writer left behind them is cut."""
        path = self._path(source)
        pool = self._pools[source]
        if not path.exists():
            return []
        lines = []
        for number, raw in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            try:
                line = json.loads(raw) if raw.endswith(b"\n") else None
            except ValueError:
                line = None
            if line is None:
                break
            if number > len(pool) or line.get("id") != pool[number - 1].id:
                raise HoldfastError(
                    f"{path} line {number}: is no verdict on the candidate that comes here; "
                    "the file was changed: remove it"
                )
            lines.append((line, len(raw)))
        if len(lines) < len(pool):
            lines = lines[: len(lines) - len(lines) % self._model.batch]
        os.truncate(path, sum(length for _, length in lines))
        return [line for line, _ in lines]

    def _ask(self, batch: Sequence[Candidate]) -> list[dict[str, Any]]:
        verdicts: list[dict[str, Any]] = [{} for _ in batch]
        questions = [(one.id, one.question) for one in batch]
        for place, answer in ask(self._model, questions, self._sampling):
            one = batch[place]
            verdict: dict[str, Any] = {"id": one.id, "question": one.question}
            verdict["answers"] = list(one.answers)
            if isinstance(answer, Failure):
                verdict["error"] = answer.reason
            else:
                matches = (found(completion, one.answers) for completion in answer)
                known = next((match for match in matches if match is not None), None)
                verdict |= {"completions": answer, "known": known}
            verdicts[place] = verdict
        assert all(verdicts), "a model left a prompt without an answer"
        return verdicts


def _named(changed: Sequence[str]) -> str:
    """The settings that differ, before the sources whose candidates differ, which have hashes."""
    settings = [line for line in changed if not line.startswith("pools.")]
    sources = [line.split(":")[0].removeprefix("pools.") for line in changed if "pools." in line]
    return "; ".join([*settings, *([f"candidates of {', '.join(sources)}"] if sources else [])])


def _unknown(line: Mapping[str, Any]) -> bool:
    return "error" not in line and line["known"] is None
