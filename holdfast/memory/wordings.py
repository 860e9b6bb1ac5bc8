"""Other wordings of a fact's question: learned as items of their own, or held out to be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from holdfast.builders.paraphrases import Paraphraser, Report
from holdfast.memory.spelling import loose_key
from holdfast.streams import Item, Stream, Task
from holdfast.streams.batches import WORDING_OF, is_wording

# Keys of a fact's details: wordings that the user wrote; wordings that are not learned, to see
# whether the others carry over.
GIVEN = "paraphrases"
HELD_OUT = "held_out"


def wording(of: Item, question: str) -> Item:
    """An item that asks for a fact's answer in other words."""
    return Item(question, of.answer, of.aliases, details={WORDING_OF: of.question})


def held_out(facts: Iterable[Item]) -> list[Item]:
    """The wordings of facts that are asked and never learned, as items."""
    return [Item(text, fact.answer, fact.aliases) for fact in facts for text in _held_out(fact)]


def with_wordings(
    stream: Stream,
    count: int,
    paraphraser: Paraphraser,
    report: Report,
    known: Collection[Item] = (),
) -> Stream:
    """Put every fact's other wordings behind it.

    What the user wrote is always learned; the paraphraser fills up to ``count`` wordings and adds
    one that is held out. A wording that is another fact's question, but for case, punctuation and
    spacing, is left out. known: the memory's items; the wordings that a fact has there count.
    Raises HoldfastError for a wording that is no question.
    """
    facts = [item for task in stream.tasks for item in task.items if not is_wording(item)]
    before = {loose_key(item.question): item for item in known if not is_wording(item)}
    there = Counter(loose_key(item.details[WORDING_OF]) for item in known if is_wording(item))
    keys = {loose_key(item.question) for item in (*known, *held_out(known), *facts)}
    given = {fact.question: _fresh(fact.details.get(GIVEN, ()), keys) for fact in facts}
    needed = {
        question: max(0, count - len(texts) - there[loose_key(question)])
        for question, texts in given.items()
    }
    lacking = [
        fact.question
        for fact in facts
        if count and (needed[fact.question] or loose_key(fact.question) not in before)
    ]
    # A few more than needed, since some may be another fact's.
    wanted = count + 3 + max(there.values(), default=0)
    written = dict(
        zip(lacking, paraphraser.write(lacking, wanted, report), strict=True) if lacking else ()
    )
    tasks = []
    for task in stream.tasks:
        items: list[Item] = []
        for item in task.items:
            if is_wording(item):
                items.append(item)
                continue
            more = _fresh(written.get(item.question, ()), keys)
            need = needed[item.question]
            earlier = before.get(loose_key(item.question))
            kept_back = more[need : need + 1] if earlier is None else _held_out(earlier)
            details = {key: value for key, value in item.details.items() if key != GIVEN}
            if kept_back and HELD_OUT not in details:
                details[HELD_OUT] = kept_back
            fact = replace(item, details=details)
            learned = given[item.question] + more[:need]
            items += [fact, *(wording(fact, text) for text in learned)]
        tasks.append(Task(task.name, tuple(items)))
    return replace(stream, tasks=tuple(tasks))


def _held_out(fact: Item) -> list[str]:
    return list(fact.details.get(HELD_OUT, ()))


def _fresh(texts: Iterable[str], keys: set[str]) -> list[str]:
    """The texts whose key is new; their keys are added."""
    found = []
    for text in texts:
        key = loose_key(text)
        if key and key not in keys:
            keys.add(key)
            found.append(text)
    return found
