"""The stages of an evaluation: each asks some questions and gives measures and answers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import eq
from pathlib import Path
from timeit import timeit
from typing import Any

from holdfast.core.reporting import CountReport, silent
from holdfast.memory.answering import Answer
from holdfast.memory.evaluation.asking import Sides
from holdfast.memory.evaluation.drift import bits_per_byte, kl_per_token
from holdfast.memory.evaluation.pararel import COMPLETE
from holdfast.memory.evaluation.probes import EverydayQuestion, Probe
from holdfast.memory.evaluation.result import Measure
from holdfast.memory.memory import Memory
from holdfast.memory.record import LESSONS
from holdfast.model.sources.fetch import find
from holdfast.streams.batches import FACTS_FILE
from holdfast.streams.item import bare, evenly, says

_TIMED = 20  # questions
_DRIFT = 80  # replies over which KL is averaged

Measures = dict[str, Measure]
# A stage's measures, and the answer to each question as JSON values.
StageResult = tuple[Measures, list[dict[str, Any]]]
Stages = Mapping[str, Callable[[CountReport], StageResult]]
# A question, the answers that count, and the number of the fact that it is about.
Asked = tuple[str, Sequence[str], int]


def stages(
    memory: Memory,
    sides: Sides,
    probes: Sequence[Probe],
    everyday: Sequence[EverydayQuestion],
    limit: int | None,
) -> Stages:
    """The stages by name, in order; limit: the most questions of each kind."""
    numbered = [(probe, sides.place(probe.question)) for probe in probes]
    taught = [(probe.question, [probe.answer], place) for probe, place in numbered]
    wordings = [
        (text, [probe.answer], place) for probe, place in numbered for text in probe.wordings
    ]
    reverse = [
        (probe.reverse[0], [probe.reverse[1]], place) for probe, place in numbered if probe.reverse
    ]
    sentences = [
        (COMPLETE.format(probe.sentence), [probe.answer], place)
        for probe, place in numbered
        if probe.sentence
    ]
    others = list(dict.fromkeys(text for probe in probes for text in probe.others))
    untaught = list(dict.fromkeys(text for probe in probes for text in probe.untaught))
    few = partial(evenly, limit=limit)
    return {
        "recalled": partial(exactly, sides, "recalled", few(taught)),
        "wordings": partial(exactly, sides, "wordings", few(wordings)),
        "reverse": partial(generated, sides, "reverse", few(reverse)),
        "sentence": partial(generated, sides, "sentence", few(sentences)),
        "everyday": partial(kept, sides, few(everyday)),
        "others": partial(unknown, sides, "others", few(others)),
        "untaught": partial(unknown, sides, "untaught", few(untaught)),
        "drift": partial(drift, sides, [row.question for row in evenly(few(everyday), _DRIFT)]),
        "costs": partial(costs, memory, sides, [row[0] for row in evenly(few(taught), _TIMED)]),
    }


def exactly(sides: Sides, name: str, asked: Sequence[Asked], report: CountReport) -> StageResult:
    """How many questions get exactly the wanted answer: from any source, and from the weights."""
    questions, wanted = [row[0] for row in asked], [row[1] for row in asked]
    answers = sides.memory(questions, part(report, 0, 2))
    given = sides.weights_give(questions, [row[2] for row in asked], part(report, 1, 2))
    listed = sides.listed(questions)
    right, by_list = (
        [answer.text in accepted for answer, accepted in zip(side, wanted, strict=True)]
        for side in (answers, listed)
    )
    by_weights = [
        is_right and answer.source == "weights"
        for is_right, answer in zip(right, answers, strict=True)
    ]
    count, from_weights = len(asked), fraction(given)
    measures = {
        name: Measure(count, fraction(right), from_weights, fraction(by_list)),
        f"{name}_from_weights": Measure(count, fraction(by_weights), from_weights),
    }
    return measures, rows_of(answers, given, listed, wanted, right)


def generated(sides: Sides, name: str, asked: Sequence[Asked], report: CountReport) -> StageResult:
    """How many generated replies contain one of the answers that count."""
    questions, wanted = [row[0] for row in asked], [row[1] for row in asked]
    answers = sides.memory(questions, part(report, 0, 2))
    replies = sides.weights(questions, [row[2] for row in asked], part(report, 1, 2))
    listed = sides.listed(questions)
    right, by_weights, by_list = (
        list(map(says, side, wanted)) for side in (texts(answers), replies, texts(listed))
    )
    measure = Measure(len(asked), fraction(right), fraction(by_weights), fraction(by_list))
    return {name: measure}, rows_of(answers, replies, listed, wanted, right)


def kept(sides: Sides, everyday: Sequence[EverydayQuestion], report: CountReport) -> StageResult:
    """How many everyday questions that the untouched model answers are still answered."""
    questions = [row.question for row in everyday]
    wanted = [row.answers for row in everyday]
    answers = sides.memory(questions, part(report, 0, 2))
    known = list(map(says, sides.untouched(questions), wanted))
    replies = _one_set(sides, questions, part(report, 1, 2))
    listed = sides.listed(questions)

    def still(side: Sequence[str]) -> float | None:
        return fraction(list(compress(map(says, side, wanted), known)))

    measures = {
        "everyday_kept": _measure(sum(known), still, answers, replies, listed),
        **_accepted(sides, "everyday", answers, replies, listed),
    }
    right = list(map(says, texts(answers), wanted))
    rows = rows_of(answers, replies, listed, wanted, right)
    return measures, [
        {**row, "known": was_known} for row, was_known in zip(rows, known, strict=True)
    ]


def unknown(sides: Sides, name: str, questions: Sequence[str], report: CountReport) -> StageResult:
    """How many untaught questions are taken for taught, get a taught answer, or are unchanged."""
    answers = sides.memory(questions, part(report, 0, 2))
    before = sides.untouched(questions)
    replies = _one_set(sides, questions, part(report, 1, 2))
    listed = sides.listed(questions)

    def unchanged(side: Sequence[str]) -> float | None:
        return fraction(list(map(eq, side, before)))

    measures = {
        **_accepted(sides, name, answers, replies, listed),
        f"{name}_unchanged": _measure(len(questions), unchanged, answers, replies, listed),
    }
    right = list(map(eq, texts(answers), before))
    return measures, rows_of(answers, replies, listed, [[text] for text in before], right)


def drift(sides: Sides, questions: Sequence[str], report: CountReport) -> StageResult:
    """KL and bits per byte with the weights acting at every token; empty with several adapters."""
    if not sides.has_one_set or not questions:
        return {}, []
    replies = sides.untouched(questions)
    divergence = kl_per_token(sides, questions, replies, part(report, 0, 2))
    before, after = bits_per_byte(sides, part(report, 1, 2))
    measures = {
        "kl": Measure(len(questions), weights=divergence),
        "bits_per_byte": Measure(weights=after),
        "bits_per_byte_change": Measure(weights=after / before - 1),
    }
    return measures, []


def costs(
    memory: Memory, sides: Sides, questions: Sequence[str], report: CountReport
) -> StageResult:
    """Median seconds of one taught question, with the model loaded, and bytes on disk."""
    record, lessons = memory.record, memory.directory / LESSONS
    adapters = _size(lessons / file for file in {lesson.file for lesson in record.lessons})
    neurons = record.all_neurons
    weights = adapters if neurons is None else _size([lessons / neurons.file])
    listed = _size([memory.directory / FACTS_FILE])
    directory = find(memory.model)
    model = 0 if directory is None else _size(directory.rglob("*"))
    timed: dict[str, Callable[[str], object]] = {
        "memory": lambda question: sides.answerer.replies([question]),
        "weights": lambda question: sides.weights([question], [sides.place(question)], silent),
        "list": lambda question: sides.answerer.listed([question]),
    }
    seconds = {}
    for number, (side, ask) in enumerate(timed.items(), start=1):
        spent = [timeit(partial(ask, question), number=1) for question in questions]
        seconds[side] = statistics.median(spent)
        report(number, len(timed))
    measures = {
        "seconds": Measure(len(questions), **seconds),
        "bytes": Measure(None, adapters + listed, weights, listed),
        "model_bytes": Measure(None, model, model, model),
    }
    return measures, []


def _size(paths: Iterable[Path]) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in paths if path.is_file())


def fraction(verdicts: Sequence[bool]) -> float | None:
    """The fraction of verdicts that are true; None if there are none."""
    return sum(verdicts) / len(verdicts) if verdicts else None


def part(report: CountReport, number: int, count: int) -> CountReport:
    """A report for part ``number``, from 0, of ``count`` equal parts of a stage, in per cent."""
    return lambda done, total: report(round(100 * (number + done / total) / count), 100)


def texts(answers: Sequence[Answer]) -> list[str]:
    """The texts of the answers."""
    return [answer.text for answer in answers]


def rows_of(
    answers: Sequence[Answer],
    weights: Sequence[str] | Sequence[bool] | None,
    listed: Sequence[Answer],
    wanted: Sequence[Sequence[str]],
    right: Sequence[bool],
) -> list[dict[str, Any]]:
    """A row per question. weights: replies, or whether they are right; right: of the memory's."""
    return [
        {
            "question": answer.question,
            "wanted": list(wanted[place]),
            "right": right[place],
            "answer": answer.text,
            "source": answer.source,
            "fact": answer.fact.question if answer.fact is not None else None,
            "weights": None if weights is None else weights[place],
            "list": listed[place].text,
        }
        for place, answer in enumerate(answers)
    ]


def _one_set(sides: Sides, questions: Sequence[str], report: CountReport) -> list[str] | None:
    """Replies with the weights on; None if the memory has several adapters."""
    if not sides.has_one_set:
        report(1, 1)
        return None
    return sides.weights(questions, [0] * len(questions), report)


def _accepted(
    sides: Sides,
    name: str,
    answers: Sequence[Answer],
    replies: Sequence[str] | None,
    listed: Sequence[Answer],
) -> Measures:
    """The fractions of questions that are taken for taught, and that get some taught answer."""
    taught = {bare(fact.answer) for fact in sides.facts}
    accepted, by_list = (fraction([answer.taught for answer in side]) for side in (answers, listed))

    def taught_answer(side: Sequence[str]) -> float | None:
        return fraction([bare(text) in taught for text in side])

    return {
        f"{name}_accepted": Measure(len(answers), accepted, None, by_list),
        f"{name}_taught_answer": _measure(len(answers), taught_answer, answers, replies, listed),
    }


def _measure(
    of: int,
    score: Callable[[Sequence[str]], float | None],
    answers: Sequence[Answer],
    replies: Sequence[str] | None,
    listed: Sequence[Answer],
) -> Measure:
    """The scores of the answers of the memory, its weights (None: not asked) and its list."""
    from_weights = None if replies is None else score(replies)
    return Measure(of, score(texts(answers)), from_weights, score(texts(listed)))
