"""The measures, each a function from questions to rows of a table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.memory.chat.answering import Answer
from holdfast.memory.chat.evaluation.asking import Asker, Report
from holdfast.memory.chat.evaluation.drift import bits_per_byte, kl_per_token
from holdfast.memory.chat.evaluation.probes import EverydayQuestion, Probe
from holdfast.memory.chat.evaluation.result import Row
from holdfast.memory.chat.evaluation.scoring import TaughtAnswers, evenly, fraction, says
from holdfast.memory.chat.memory import ChatMemory
from holdfast.model.fetch import find

COMPLETE = "Complete: {}"  # how a text is given that a fact's answer continues
_TIMED = 20  # questions
_DRIFT = 80  # replies along which KL is taken

Rows = dict[str, Row]
# A question, the answer that counts, and the number of the fact that it is about.
Asked = tuple[str, str, int]


def stages(
    memory: ChatMemory,
    asker: Asker,
    probes: Sequence[Probe],
    everyday: Sequence[EverydayQuestion],
    limit: int | None,
) -> dict[str, Callable[[Report], Rows]]:
    """The measures by name, in order; limit: questions of each kind at most."""
    numbered = [(probe, asker.place(probe.question)) for probe in probes]
    taught = [(probe.question, probe.answer, place) for probe, place in numbered]
    wordings = [(text, probe.answer, place) for probe, place in numbered for text in probe.wordings]
    reverse = [(*probe.reverse, place) for probe, place in numbered if probe.reverse]
    sentences = [
        (COMPLETE.format(probe.sentence), probe.answer, place)
        for probe, place in numbered
        if probe.sentence
    ]
    others = list(dict.fromkeys(text for probe in probes for text in probe.others))
    untaught = list(dict.fromkeys(text for probe in probes for text in probe.untaught))
    few = partial(evenly, limit=limit)
    return {
        "recalled": partial(exactly, asker, "recalled", few(taught)),
        "wordings": partial(exactly, asker, "wordings", few(wordings)),
        "reverse": partial(generated, asker, "reverse", few(reverse)),
        "sentence": partial(generated, asker, "sentence", few(sentences)),
        "everyday": partial(kept, asker, few(everyday)),
        "others": partial(unknown, asker, "others", few(others)),
        "untaught": partial(unknown, asker, "untaught", few(untaught)),
        "drift": partial(drift, asker, [one.question for one in evenly(few(everyday), _DRIFT)]),
        "costs": partial(costs, memory, asker, [one[0] for one in evenly(few(taught), _TIMED)]),
    }


def exactly(asker: Asker, name: str, asked: Sequence[Asked], report: Report) -> Rows:
    """How many questions get their fact's answer, exactly: at all, and from the weights."""
    questions = [question for question, _, _ in asked]
    answers = asker.memory(questions, report)
    owners = [place for _, _, place in asked]
    from_weights = fraction(asker.weights_give(questions, owners, report))
    right = [answer.text == wanted for answer, (_, wanted, _) in zip(answers, asked, strict=True)]
    listed = [
        stored(answer) == wanted for answer, (_, wanted, _) in zip(answers, asked, strict=True)
    ]
    by_weights = [
        good and answer.source == "weights" for good, answer in zip(right, answers, strict=True)
    ]
    count = len(asked)
    return {
        name: Row(count, fraction(right), from_weights, fraction(listed)),
        f"{name}_from_weights": Row(count, fraction(by_weights), from_weights),
    }


def generated(asker: Asker, name: str, asked: Sequence[Asked], report: Report) -> Rows:
    """How many replies have the wanted answer in them, by generation."""
    questions = [question for question, _, _ in asked]
    answers = asker.memory(questions, report)
    replies = asker.weights(questions, [place for _, _, place in asked], report)
    wanted = [[answer] for _, answer, _ in asked]
    return {
        name: Row(
            len(asked),
            fraction(list(map(says, (answer.text for answer in answers), wanted))),
            fraction(list(map(says, replies, wanted))),
            fraction(list(map(says, map(stored, answers), wanted))),
        )
    }


def kept(asker: Asker, everyday: Sequence[EverydayQuestion], report: Report) -> Rows:
    """How many of the everyday questions that the untouched model answers are still answered."""
    questions = [one.question for one in everyday]
    answers = asker.memory(questions, report)
    known = [
        says(text, one.answers)
        for text, one in zip(asker.untouched(questions), everyday, strict=True)
    ]
    replies = _one_adapter(asker, questions, report)

    def still(texts: Sequence[str]) -> float | None:
        rows = zip(texts, everyday, known, strict=True)
        return fraction([says(text, one.answers) for text, one, right in rows if right])

    return {
        "everyday_kept": Row(
            sum(known),
            still([answer.text for answer in answers]),
            None if replies is None else still(replies),
            still([stored(answer) for answer in answers]),
        ),
        **_accepted(asker, "everyday", answers, replies),
    }


def unknown(asker: Asker, name: str, questions: Sequence[str], report: Report) -> Rows:
    """How many untaught questions are accepted, get a taught answer, or are answered as before."""
    answers = asker.memory(questions, report)
    before = asker.untouched(questions)
    replies = _one_adapter(asker, questions, report)

    def unchanged(texts: Sequence[str]) -> float | None:
        return fraction([text == own for text, own in zip(texts, before, strict=True)])

    return {
        **_accepted(asker, name, answers, replies),
        f"{name}_unchanged": Row(
            len(questions),
            unchanged([answer.text for answer in answers]),
            None if replies is None else unchanged(replies),
            unchanged([stored(answer) for answer in answers]),
        ),
    }


def drift(asker: Asker, questions: Sequence[str], report: Report) -> Rows:
    """KL and bits per byte of one adapter that always acts.

    Behind a gate both are those of the untouched model, since it answers what was not taught.
    """
    if not asker.has_one_adapter or not questions:
        return {"kl": Row(), "bits_per_byte": Row(), "bits_per_byte_change": Row()}
    adapter = asker.answerer.adapter(0)
    replies = asker.untouched(questions)
    divergence = kl_per_token(asker.engine, adapter, questions, replies, report)
    before, after = bits_per_byte(asker.engine, adapter, report)
    return {
        "kl": Row(len(questions), weights=divergence),
        "bits_per_byte": Row(weights=after),
        "bits_per_byte_change": Row(weights=after / before - 1),
    }


def costs(memory: ChatMemory, asker: Asker, questions: Sequence[str], report: Report) -> Rows:
    """Median seconds of a taught question, asked alone with the model loaded, and bytes on disk."""
    sizes = memory.sizes()
    place = asker.place
    timed: dict[str, Callable[[str], object]] = {
        "memory": lambda one: asker.answerer.replies([one]),
        "weights": lambda one: asker.weights([one], [place(one)], lambda *_: None),
        "list": lambda one: asker.answerer.accepted([one]),
    }
    seconds = {}
    for number, (side, ask) in enumerate(timed.items(), start=1):
        spent = []
        for question in questions:
            begin = time.perf_counter()
            ask(question)
            spent.append(time.perf_counter() - begin)
        seconds[side] = statistics.median(spent)
        report(number, len(timed))
    directory = find(memory.model)
    files = directory.rglob("*") if directory is not None else ()
    model = sum(path.stat().st_size for path in files if path.is_file())
    return {
        "seconds": Row(len(questions), **seconds),
        "bytes": Row(None, sum(sizes.values()), sizes["lessons"], sizes["list"]),
        "model_bytes": Row(None, model, model, model),
    }


def stored(answer: Answer) -> str:
    """What the list alone answers: the accepted fact's answer, else the untouched model's reply."""
    return answer.fact.answer if answer.fact is not None else answer.text


def _one_adapter(asker: Asker, questions: Sequence[str], report: Report) -> list[str] | None:
    """Replies with the only adapter always on; None of a memory with several."""
    return asker.weights(questions, [0] * len(questions), report) if asker.has_one_adapter else None


def _accepted(
    asker: Asker, name: str, answers: Sequence[Answer], replies: Sequence[str] | None
) -> Rows:
    """The fractions that are taken for taught, and that get a taught answer."""
    taught = TaughtAnswers(fact.answer for fact in asker.facts)
    accepted = fraction([answer.taught for answer in answers])
    return {
        f"{name}_accepted": Row(len(answers), accepted, None, accepted),
        f"{name}_taught_answer": Row(
            len(answers),
            fraction([answer.text in taught for answer in answers]),
            None if replies is None else fraction([text in taught for text in replies]),
            fraction([stored(answer) in taught for answer in answers]),
        ),
    }
