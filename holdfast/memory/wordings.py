"""Other wordings of a fact's question: learned as items or by rule, held out, or corrupted."""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from holdfast.builders.paraphrases import Paraphraser, reworded
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import NoteReport
from holdfast.core.seeding import derive
from holdfast.memory.library import ENTITY, other_wordings, relations
from holdfast.memory.words import library_words, loose_key, words
from holdfast.streams import Item, Stream, Task
from holdfast.streams.batches import (
    WORDING_OF,
    check_wording,
    fact_key,
    fact_question,
    is_wording,
    latest,
)
from holdfast.streams.item import is_visible, question_key, quoted, same_answer

logger = logging.getLogger(__name__)
# Keys of a fact's details: wordings that the user wrote; wordings that are not learned, to measure
# whether learning carries over to them.
GIVEN = "paraphrases"
HELD_OUT = "held_out"
RULED = 8  # most wordings of a question by rule
_LEFT_OUT = 0.15  # probability that a word that may be left out is
_BEGINNING = 2, 9  # least and most words of another question's beginning


def wording(of: Item, question: str) -> Item:
    """An item that asks for a fact's answer in other words."""
    return Item(question, of.answer, of.aliases, details={WORDING_OF: of.question})


def has_fact(item: Item, items: Mapping[str, Item]) -> bool:
    """Whether ``items``, by key, have the fact that a wording asks for, with the same answer."""
    fact = items.get(fact_key(item))
    return fact is not None and not is_wording(fact) and same_answer(fact, item)


def held_out(facts: Iterable[Item]) -> list[Item]:
    """The held-out wordings of facts, as items."""
    return [Item(text, fact.answer, fact.aliases) for fact in facts for text in _held_out(fact)]


def with_wordings(
    stream: Stream,
    count: int,
    paraphraser: Paraphraser,
    report: NoteReport,
    on_file: Collection[Item] = (),
) -> Stream:
    """Add other wordings after every fact: those that the user wrote, then the paraphraser's.

    The paraphraser fills up to ``count`` wordings per fact, if that is not 0, and adds to each new
    fact one that is held out. A text that is a question or wording already, whatever its spelling,
    is left out. on_file: the memory's items; their wordings count. Raises HoldfastError for details
    of a wrong form, and for a wording whose fact is missing.
    """
    _check_details(stream, on_file)
    facts = [item for task in stream.tasks for item in task.items if not is_wording(item)]
    before = {loose_key(item.question): item for item in on_file if not is_wording(item)}
    counts = Counter(loose_key(fact_question(item)) for item in on_file if is_wording(item))
    keys = {loose_key(item.question) for item in (*on_file, *held_out(on_file), *facts)}
    for sentence in left_out_wordings(stream, on_file):
        logger.warning(sentence)
    given: dict[str, list[str]] = defaultdict(list)  # also of a fact that a later batch corrects
    for fact in facts:
        given[fact.question] += _fresh(fact.details.get(GIVEN, ()), keys)
    needed = {
        question: max(0, count - len(texts) - counts[loose_key(question)])
        for question, texts in given.items()
    }
    lacking = [
        fact.question
        for fact in facts
        if count and (needed[fact.question] or loose_key(fact.question) not in before)
    ]
    written: dict[str, list[str]] = {}
    if lacking:
        # A few more than needed, since some may be questions of other facts.
        wanted = count + 3 + max(counts.values(), default=0)
        written = dict(zip(lacking, paraphraser.write(lacking, wanted, report), strict=True))
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


def left_out_wordings(stream: Stream, on_file: Iterable[Item]) -> list[str]:
    """Notices on wordings that the user gives to a fact but that ask for another one."""
    facts = [item for task in stream.tasks for item in task.items if not is_wording(item)]
    owners = {loose_key(item.question): fact_question(item) for item in (*on_file, *facts)}
    return [
        left_out(text, owner, fact.question)
        for fact in facts
        for text in fact.details.get(GIVEN, ())
        if loose_key(owner := owners.get(loose_key(text), fact.question))
        != loose_key(fact.question)
    ]


def left_out(text: str, owner: str, of: str) -> str:
    """The notice on a wording of one fact that asks for another fact."""
    return f"{quoted(text)} asks for {quoted(owner)}, and is left out as a wording of {quoted(of)}"


def _check_details(stream: Stream, on_file: Collection[Item]) -> None:
    """Raise HoldfastError if details with wordings have a wrong form, or a wording has no fact."""
    facts = {question_key(item.question): item for item in on_file}
    for task in stream.tasks:
        facts |= latest([task])
        for item in task.items:
            if not _are_texts(given := item.details.get(GIVEN, [])):
                raise HoldfastError(
                    f'{quoted(item.question)}: "{GIVEN}" is {given!r:.60}; write a list of texts'
                )
            if not is_wording(item):
                continue
            check_wording(item)
            if not has_fact(item, facts):
                raise HoldfastError(
                    f"{quoted(item.question)}: is another wording of "
                    f"{quoted(fact_question(item))}, which is not taught that answer; teach "
                    f'it so, or leave "{WORDING_OF}" out'
                )


def _are_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(text, str) and text for text in value
    )


def _held_out(fact: Item) -> list[str]:
    """A fact's held-out wordings; a detail of that name in another form means something else."""
    value = fact.details.get(HELD_OUT, ())
    return list(value) if _are_texts(value) else []


def _fresh(texts: Iterable[str], keys: set[str]) -> list[str]:
    """The texts whose keys are new; adds these to ``keys``."""
    fresh = []
    for text in texts:
        key = loose_key(text)
        if key and key not in keys:
            keys.add(key)
            fresh.append(text)
    return fresh


def lesson_wordings(question: str, given: Iterable[str] = ()) -> list[str]:
    """Wordings to train on besides the question: those given, then up to eight by rule.

    By rule are a hurried spelling, wordings from the library of relations, and general frames;
    which ones depends on the question alone.
    """
    given = list(given)
    related = other_wordings(question)
    hurried = question.strip().rstrip("?.! ").lower()
    drawn = sorted(related, key=lambda text: derive(0, question, text))[:4]
    ruled = [hurried, *drawn, *reworded(question)]
    texts: dict[str, str] = {}
    for text in filter(is_visible, (*given, *ruled)):  # the hurried spelling of "?" is empty
        texts.setdefault(question_key(text), text)
    texts.pop(question_key(question), None)
    return list(texts.values())[: len(given) + RULED]


def corruptions(wordings: Sequence[str], count: int) -> list[str]:
    """At most ``count`` corruptions of a question's wordings, which keep what it names.

    A corruption lacks words, or begins with the beginning of another question, or both. They depend
    on the wordings alone.
    """
    draw = random.Random(derive(0, *wordings, "corrupted"))
    taught = set(map(question_key, wordings))
    corrupted: dict[str, str] = {}
    for _ in range(3 * count):
        text = _corrupted(draw.choice(wordings), draw)
        if len(corrupted) < count and is_visible(text) and question_key(text) not in taught:
            corrupted.setdefault(question_key(text), text)
    return list(corrupted.values())


def _corrupted(text: str, draw: random.Random) -> str:
    """Leave out words in three cases of four; put a beginning before half of these and the rest."""
    is_shortened = draw.random() < 0.75
    if is_shortened:
        text = _shortened(text, draw)
    if not is_shortened or draw.random() < 0.5:
        relation = draw.choice(relations())
        other = draw.choice(relation.wordings).replace(ENTITY, "it").split()
        text = " ".join([*other[: draw.randint(*_BEGINNING)], text.strip()])
    return text.strip()


def _shortened(text: str, draw: random.Random) -> str:
    """The text without some of the words that ask."""
    shortened, end = "", 0
    for place, word in enumerate(words(text)):
        asks = word.key in library_words() and (place == 0 or not word.is_marked)
        if asks and draw.random() < _LEFT_OUT:
            shortened += text[end : word.begin].rstrip()
        else:
            shortened += text[end : word.end]
        end = word.end
    return shortened + text[end:]
