"""Real-QA from candidates to a stream: who stays, who leaves, and that stopping changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from experiments.paper.real_qa.build import RealQASettings, build
from experiments.paper.real_qa.candidate import CandidateItem, Left, SourceRecords
from experiments.paper.real_qa.pool import CONTRADICTING, REPEATED, TOO_LONG, pools
from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters
from holdfast.core.errors import HoldfastError
from tests.experiments.real_qa.models import Reply, Scripted
from tests.refused import line_of

SETTINGS = RealQASettings(tasks=3, items=4, seed=5)


def reading(source: str, *questions: tuple[str, ...], unusable: int = 0) -> SourceRecords:
    candidates = tuple(
        CandidateItem(source, f"{source}:{number}", question, answers)
        for number, (question, *answers) in enumerate(questions)
    )
    gone = tuple(Left(f"record {number}", "no answer") for number in range(unusable))
    return SourceRecords(candidates, gone, len(candidates) + unusable)


def numbered(source: str, count: int) -> SourceRecords:
    return reading(source, *((f"{source} question {n}", f"answer{n}") for n in range(count)))


READINGS = {"sciq": numbered("sciq", 30), "nq_open": numbered("nq_open", 20)}


def knows_every_third(asked: Prompt) -> Reply:
    number = int(asked.name.split(":")[1])
    return f"surely answer{number}" if number % 3 == 0 else "no idea"


def test_a_question_stays_with_its_first_source_and_the_rest_is_counted() -> None:
    long = ("Q", "a" * 99)
    questions = {
        "squad": [("Who is it?", "Ida"), ("only here", "x")],
        "popqa": [("who  IS it", "Ida Venn", "ida"), ("Which river?", "Amber"), long],
        "sciq": [("which river", "Orl"), ("Which river?", "amber")],
    }
    readings = {source: reading(source, *each) for source, each in questions.items()}
    made = pools(readings, seed=1, fits=lambda candidate: len(candidate.answers[0]) < 50)
    kept = {candidate.question for candidate in made["popqa"].candidates}
    assert kept == {"who  IS it", "Which river?"}
    assert made["popqa"].dropped == Counter({TOO_LONG: 1})
    assert made["squad"].dropped == Counter({REPEATED: 1})
    assert made["sciq"].dropped == Counter({CONTRADICTING: 1, REPEATED: 1})
    assert made["sciq"].candidates == []


def test_each_source_gives_as_many_and_only_what_the_model_does_not_know(tmp_path: Path) -> None:
    stream = build(READINGS, Scripted(knows_every_third), tmp_path, SETTINGS)
    items = [item for task in stream.tasks for item in task.items]
    assert [len(task.items) for task in stream.tasks] == [4, 4, 4]
    assert Counter(item.details["dataset"] for item in items) == {"nq_open": 6, "sciq": 6}
    assert all(int(str(item.id).split(":")[1]) % 3 for item in items)
    account = stream.about["sources"]["sciq"]
    assert account["kept"] == 6
    assert account["asked"] == account["known"] + account["errors"] + account["kept"]
    tried = verdicts(tmp_path, "sciq")[: account["asked"]]
    assert account["known"] == sum(line["known"] is not None for line in tried) > 0
    for line in verdicts(tmp_path, "sciq"):  # each can be audited
        number = int(str(line["id"]).split(":")[1])
        is_known = number % 3 == 0
        assert line["question"] == f"sciq question {number}"
        assert line["answers"] == [f"answer{number}"]
        assert line["completions"] == [f"surely answer{number}" if is_known else "no idea"] * 5
        assert line["known"] == (f"answer{number}" if is_known else None)
    wider = Scripted(knows_every_third, batch=7)
    assert build(READINGS, wider, tmp_path, SETTINGS) == stream
    assert wider.asked == []
    mixed = [Counter(item.details["dataset"] for item in task.items) for task in stream.tasks]
    assert any(len(counts) == 2 for counts in mixed)


def verdicts(directory: Path, source: str) -> list[dict[str, object]]:
    text = (directory / "verdicts" / f"{source}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_an_error_is_never_unknown(tmp_path: Path) -> None:
    """Half of the candidates cannot be decided: none of them is in the stream, all are counted."""

    def reply(asked: Prompt) -> Reply:
        number = int(asked.name.split(":")[1])
        return Failure("the prompt was refused") if number % 2 else "no idea"

    stream = build(READINGS, Scripted(reply), tmp_path, SETTINGS)
    ids = [str(item.id) for task in stream.tasks for item in task.items]
    assert all(int(name.split(":")[1]) % 2 == 0 for name in ids)
    for source in READINGS:
        account = stream.about["sources"][source]
        tried = verdicts(tmp_path, source)[: account["asked"]]
        errors = [line for line in tried if "error" in line]
        assert account["errors"] == len(errors) > 0
        assert all("known" not in line and "completions" not in line for line in errors)


def test_what_all_candidates_could_not_give_is_not_asked_for(tmp_path: Path) -> None:
    most = min(len(reading.candidates) for reading in READINGS.values())
    wanted = SETTINGS.model_copy(update={"tasks": 1, "items": len(READINGS) * (most + 1)})
    model = Scripted(lambda _: "no idea")
    with pytest.raises(HoldfastError, match=f"{most} usable of {most + 1}"):
        build(READINGS, model, tmp_path, wanted)
    assert model.asked == []


class Killed(BaseException):
    pass


class Neighbourly(Scripted):
    """Says what depends on its batch, as rounding makes of a model on this machine."""

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        beside = ", ".join(prompt.name for prompt in prompts)
        yield from enumerate([[beside] * sampling.samples] * len(prompts))


@pytest.mark.parametrize("instant", range(8))
def test_killed_while_it_writes_no_half_of_a_batch_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instant: int
) -> None:
    model = Neighbourly(knows_every_third)
    whole = build(READINGS, model, tmp_path / "whole", SETTINGS)
    flushes = 0

    def torn(handle: int) -> None:
        nonlocal flushes
        flushes += 1
        if flushes == instant + 1:
            with contextlib.suppress(OSError):  # half of what is written in place arrives
                os.ftruncate(handle, os.fstat(handle).st_size // 2)
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.core.files.os.fsync", torn)
        with contextlib.suppress(Killed):
            build(READINGS, model, tmp_path / "killed", SETTINGS)
    assert flushes > instant
    assert build(READINGS, model, tmp_path / "killed", SETTINGS) == whole
    for path in (tmp_path / "whole" / "verdicts").iterdir():
        assert path.read_bytes() == (tmp_path / "killed" / "verdicts" / path.name).read_bytes()


def test_a_larger_stream_continues_from_the_same_verdicts(tmp_path: Path) -> None:
    first = Scripted(knows_every_third)
    build(READINGS, first, tmp_path, SETTINGS)
    more = Scripted(knows_every_third)
    larger = RealQASettings(tasks=4, items=4, seed=5)
    stream = build(READINGS, more, tmp_path, larger)
    assert set(first.asked).isdisjoint(more.asked)
    assert stream == build(READINGS, Scripted(knows_every_third), tmp_path / "new", larger)


def test_another_model_or_sampling_is_refused(tmp_path: Path) -> None:
    build(READINGS, Scripted(knows_every_third), tmp_path, SETTINGS)
    model = Scripted(knows_every_third)
    model.name = "another"
    with pytest.raises(HoldfastError, match=r'model: "scripted" -> "another"'):
        build(READINGS, model, tmp_path, SETTINGS)
    other = RealQASettings(tasks=3, items=4, seed=6)
    with pytest.raises(HoldfastError, match=r"sampling\.seed: 5 -> 6"):
        build(READINGS, Scripted(knows_every_third), tmp_path, other)


def test_a_model_that_gave_no_verdict_may_be_replaced(tmp_path: Path) -> None:
    def dead(asked: Prompt) -> Reply:
        raise HoldfastError("no such model")

    model = Scripted(dead)
    model.name = "mistyped"
    with pytest.raises(HoldfastError, match="no such model"):
        build(READINGS, model, tmp_path, SETTINGS)
    build(READINGS, Scripted(knows_every_third), tmp_path, SETTINGS)


def test_what_came_before_a_model_failed_is_kept(tmp_path: Path) -> None:
    """An endpoint that goes down inside a batch: what it answered is not asked again."""

    def mortal(asked: Prompt) -> Reply:
        if len(model.asked) == 6:
            raise HoldfastError("stopped answering")
        return knows_every_third(asked)

    model = Scripted(mortal)
    with pytest.raises(HoldfastError, match="stopped answering"):
        build(READINGS, model, tmp_path, SETTINGS)
    answered = model.asked[:5]
    again = Scripted(knows_every_third)
    stream = build(READINGS, again, tmp_path, SETTINGS)
    assert set(again.asked).isdisjoint(answered)
    assert stream == build(READINGS, Scripted(knows_every_third), tmp_path / "new", SETTINGS)


def test_a_source_that_runs_out_says_so_and_keeps_what_was_asked(tmp_path: Path) -> None:
    readings = {"sciq": numbered("sciq", 30), "nq_open": numbered("nq_open", 7)}
    line = line_of(build, readings, Scripted(knows_every_third), tmp_path, SETTINGS)
    assert "nq_open 4 of 6" in line and "sciq" not in line
    assert len(verdicts(tmp_path, "nq_open")) == 7
    smaller = RealQASettings(tasks=2, items=4, seed=5)
    stream = build(readings, Scripted(knows_every_third), tmp_path, smaller)
    assert len(stream.tasks) == 2


def test_shares_are_equal_and_the_first_sources_give_the_rest(tmp_path: Path) -> None:
    readings = READINGS | {"squad": numbered("squad", 20)}
    settings = RealQASettings(tasks=2, items=4, seed=5)
    stream = build(readings, Scripted(knows_every_third), tmp_path, settings)
    counts = Counter(item.details["dataset"] for task in stream.tasks for item in task.items)
    assert counts == {"nq_open": 3, "sciq": 3, "squad": 2}
    few = RealQASettings(tasks=1, items=2)
    with pytest.raises(HoldfastError, match="2 items cannot come from 3 sources"):
        build(readings, Scripted(knows_every_third), tmp_path / "x", few)


@pytest.mark.parametrize("damage", ["[]", '{"id": "x"}', "no JSON"])
def test_a_damaged_line_loses_nothing_and_is_named(tmp_path: Path, damage: str) -> None:
    build(READINGS, Scripted(knows_every_third), tmp_path, SETTINGS)
    path = tmp_path / "verdicts" / "sciq.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    damaged = "".join([lines[0], damage + "\n", *lines[2:]])
    path.write_text(damaged)
    with pytest.raises(HoldfastError, match=r"sciq\.jsonl line 2: is no verdict; remove this line"):
        build(READINGS, Scripted(knows_every_third), tmp_path, SETTINGS)
    assert path.read_text() == damaged
