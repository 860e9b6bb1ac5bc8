"""The facts of a request that teaches: what they are, and whether there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.memory.states import LessonState
from holdfast.memory.wordings import GIVEN
from holdfast.serving.refusal import RefusalError
from holdfast.streams import Stream

LESSONS = 32  # that wait; a lesson takes seconds to minutes
FACTS = 1000  # that wait, in all lessons, their other wordings included


def facts_in(body: object) -> tuple[Any, int]:
    """The facts of a request and how many other wordings of each are wanted.

    body: one fact, a list of facts, or an object with ``facts`` and perhaps ``paraphrases``.
    Raises HoldfastError for anything else.
    """
    count = 0
    if isinstance(body, dict) and "facts" in body:
        if strange := [key for key in body if key not in {"facts", "paraphrases"}]:
            raise HoldfastError(f'unknown key {strange[0]!r:.40}; give "facts" and "paraphrases"')
        count = body.get("paraphrases", 0)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 20:
            raise HoldfastError(f'"paraphrases" is {count!r:.40}; give a number from 0 to 20')
        body = body["facts"]
    if isinstance(body, dict):
        body = [body]
    if not isinstance(body, Sequence) or isinstance(body, str):
        raise HoldfastError("give a list of facts, each with a question and an answer")
    return body, count


def check_room(waiting: Sequence[LessonState], posted: Stream, paraphrases: int) -> None:
    """Raise RefusalError where a request has too many lessons or facts, alone or with what waits.

    waiting: the lessons that are not learned yet.
    """
    lessons, facts = len(posted.tasks), 0
    for task in posted.tasks:
        for item in task.items:
            facts += 1 + max(paraphrases, len(item.details.get(GIVEN, ())))
    if lessons > LESSONS or facts > FACTS:
        raise RefusalError(
            413,
            f"{lessons} lessons with {facts} facts and wordings, and at most {LESSONS} with "
            f"{FACTS} may wait; facts of one task are one lesson: teach fewer at once, or run "
            "holdfast learn",
            "too_large",
        )
    before = sum(state.facts for state in waiting)
    if len(waiting) + lessons > LESSONS or before + facts > FACTS:
        raise RefusalError(
            503,
            f"{len(waiting)} lessons with {before} facts wait, and at most {LESSONS} with {FACTS} "
            "may; teach again later, or cancel one with DELETE /lessons/N",
            "busy",
        )
