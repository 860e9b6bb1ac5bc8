"""The topics of LLM-QA: one for each task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Topic:
    """What the facts of one task are about.

    phrase: names the topic and its task; noun: for one entity of the topic, in the singular;
    family: the key of its question frames in the offline grammar.
    """

    phrase: str
    noun: str
    family: str


@cache
def topics() -> tuple[Topic, ...]:
    """The 100 topics, related ones near one another as in the paper; the list is our own.

    Source: app:data-llm.
    """
    text = (files("experiments.paper.llm_qa") / "topics.txt").read_text(encoding="utf-8")
    return tuple(Topic(*line.split("\t")) for line in text.splitlines())
