"""Find new facts that a memory takes for facts on file, such as a correction in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Answer, Answerer
from holdfast.memory.plan import Plan
from holdfast.memory.spelling import loose_key
from holdfast.streams import Item
from holdfast.streams.batches import fact_key, is_wording, latest
from holdfast.streams.item import quoted, same_answer

_MOST = 100  # new facts that are checked; reading a question takes some milliseconds


def contradictions(answerer: Callable[[], Answerer], decided: Plan) -> tuple[str, ...]:
    """Notices on new facts whose questions the memory answers already, with another answer.

    answerer: of what was on file before. Both facts are kept, each for its own wording, since the
    memory may misunderstand the question. Only the first hundred new facts are checked.
    """
    facts = _new_facts(decided)[:_MOST]
    if not facts or not decided.on_file:
        return ()
    return tuple(
        f"{quoted(fact.question)} may ask the same as {quoted(other.question)}, which stays "
        f"on file with the answer {quoted(other.answer)}; if so, forget that one"
        for fact, other in zip(
            facts, taken_for(answerer, [fact.question for fact in facts]), strict=True
        )
        if other is not None
        and not same_answer(other, fact)
        and fact.answer.casefold() != other.answer.casefold()
        and loose_key(fact.question) != loose_key(other.question)  # the plan has a notice on those
    )


def taken_for(answerer: Callable[[], Answerer], questions: Sequence[str]) -> list[Item | None]:
    """The fact on file that the memory takes each question for; None for none.

    All None if a lesson is damaged: asking will report that, and teaching goes on.
    """
    try:
        answers = answerer().taught(questions)
    except HoldfastError:
        return [None] * len(questions)
    return [answer.fact if isinstance(answer, Answer) else None for answer in answers]


def _new_facts(decided: Plan) -> list[Item]:
    """The facts that a plan adds, without corrections and other wordings."""
    on_file = latest(decided.tasks[: decided.on_file])
    items = (item for task in decided.tasks[decided.on_file :] for item in task.items)
    return [item for item in items if not is_wording(item) and fact_key(item) not in on_file]
