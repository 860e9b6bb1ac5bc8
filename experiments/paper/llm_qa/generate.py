"""LLM-QA: a stream of invented facts, one topic per task, written by a model or a grammar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from experiments.paper.kept_between_calls import claim_settings
from experiments.paper.llm_qa.collection import Collection
from experiments.paper.llm_qa.filling import Filling, Known
from experiments.paper.llm_qa.journal import Journal
from experiments.paper.llm_qa.prompt import topics
from experiments.paper.llm_qa.writers import Writer
from holdfast.core.config import Config, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import remove_unfinished
from holdfast.core.files import lock_directory
from holdfast.core.reporting import NoteReport
from holdfast.streams.stream import Stream, Task, reorder

GENEROSITY = 4  # the default budget, in multiples of the prompts needed if all candidates are valid


class LLMQASettings(Config):
    """What to generate; the defaults are the paper's sizes.

    tasks, items: how many tasks, and items in each. order_seed: of the permutation of the tasks;
    None leaves them in the order of the topics. per_prompt: candidates requested per prompt.
    budget: the most prompts of one call; None is four times what would be needed if every
    candidate were valid.
    """

    tasks: int = Field(100, ge=1)
    items: int = Field(100, ge=1)
    seed: int = Field(42, ge=0)
    order_seed: int | None = Field(0, ge=0)
    per_prompt: int = Field(10, ge=1)
    budget: int | None = Field(None, ge=1)

    @property
    def prompts(self) -> int:
        """The most prompts of one call."""
        if self.budget is not None:
            return self.budget
        return GENEROSITY * self.tasks * -(-self.items // self.per_prompt)


def generate(
    writer: Writer,
    out: Path,
    settings: LLMQASettings,
    report: NoteReport | None = None,
    known: Known | None = None,
    novel_to: str = "a backbone",
) -> Stream:
    """Send requests to ``writer`` until every task is full; return the stream, tasks permuted.

    out: a directory of replies. Replies already there are used, not requested again, so that a
    call that was killed and repeated gives the same stream. report: called with (items so far,
    items in all, a note) after each batch. known: returns a verdict on each item it is given;
    items that the backbone knows, and those with a Failure, are rejected. novel_to: the name of
    that backbone, for the record.

    Raises HoldfastError when the directory belongs to other settings or is in use, or when the
    budget of prompts is spent; then the same call continues.
    Source: app:data-llm.
    """
    available = topics()
    if settings.tasks > len(available):
        raise HoldfastError(
            f"llm_qa: tasks = {settings.tasks}, but there are {len(available)} topics, one for "
            f"each task; use at most {len(available)}"
        )
    chosen = available[: settings.tasks]
    made_by = _made_by(writer, settings, None if known is None else novel_to)
    with lock_directory(out, parts=("settings.json", "replies.jsonl")):
        _claim(out, {**made_by, "topics": sha256_of([topic.phrase for topic in available])})
        collection = Collection(chosen, settings.items, settings.per_prompt, settings.seed)
        journal = Journal(out / "replies.jsonl")
        Filling(collection, journal, writer, settings.prompts, report, known).fill()
    stream = Stream(
        tuple(
            Task(topic.phrase, tuple(items))
            for topic, items in zip(chosen, collection.tasks, strict=True)
        ),
        name="llm_qa",
        about={**made_by, "order_seed": settings.order_seed, **collection.counts()},
    )
    return reorder(stream, settings.order_seed)


def _made_by(writer: Writer, settings: LLMQASettings, novel_to: str | None) -> dict[str, Any]:
    return {
        "writer": writer.name,
        "grammar": writer.kind == "grammar",
        "writer_settings": dict(writer.settings),
        **settings.model_dump(include={"tasks", "items", "seed", "per_prompt"}),
        "novel_to": novel_to,
    }


def _claim(out: Path, values: dict[str, Any]) -> None:
    """Write the settings into a new directory; refuse one that has other settings."""
    remove_unfinished(out)
    path = out / "settings.json"
    replies = out / "replies.jsonl"
    if replies.exists() and not path.exists():
        raise HoldfastError(
            f"{out}: holds replies.jsonl but no settings.json, so nobody knows what was asked; "
            "choose another directory"
        )
    claim_settings(path, "replies", values, [replies])
