"""Facts drawn from the invented sets: the same for a seed, with probes that are what they say."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fact_sets
from benchmarks.fact_sets import NAMES, corrected, draw, filled, load_set, several
from benchmarks.lessons import MOST, in_lessons
from holdfast.memory.evaluation.probes import probes_of
from holdfast.memory.facts import stream_from
from holdfast.memory.plan import plan
from holdfast.streams.item import question_key


@pytest.mark.parametrize("name", NAMES)
def test_a_set_keeps_to_its_schema(name: str):
    fact_set = load_set(name)
    entities = [entity for kind in fact_set["kinds"].values() for entity in kind["entities"]]
    assert len(entities) >= 120 and len(set(entities)) == len(entities)
    assert min(len(kind["entities"]) for kind in fact_set["kinds"].values()) >= 30
    assert len(fact_set["relations"]) >= 20
    for relation in fact_set["relations"]:
        questions = [relation["question"], *relation["wordings"]]
        assert len(set(questions)) == len(questions) >= 5
        assert all("{x}" in text for text in (*questions, relation["sentence"]))
        assert relation["reverse"] is None or "{a}" in relation["reverse"]
        assert all(isinstance(answer, str) and answer for answer in relation["answers"])
        assert len(set(relation["answers"])) >= 40
    for kind in fact_set["kinds"]:
        assert len(fact_set["untaught"][kind]) >= 10


@settings(max_examples=25)
@given(st.sampled_from(NAMES), st.integers(1, 300), st.integers(0, 2**31))
def test_what_is_drawn(name: str, count: int, seed: int):
    facts = draw(name, count, seed)
    assert facts == draw(name, count, seed)
    questions = {question_key(fact["question"]) for fact in facts}
    assert len(facts) == len(questions) == count
    details = [fact["details"] for fact in facts]
    entities = {probes["entity"] for probes in details}
    uses = Counter((fact["details"]["relation"], fact["answer"]) for fact in facts)
    assert max(uses.values()) == 1  # so the other side of each is certain
    relations = {relation["name"]: relation for relation in load_set(name)["relations"]}
    for fact, probes in zip(facts, details, strict=True):
        relation = relations[probes["relation"]]
        assert fact["question"] == filled(relation["question"], probes["entity"])
        assert len(set(probes["held_out"])) == 2 and fact["question"] not in probes["held_out"]
        assert probes["reverse"]["answer"] == probes["entity"]
        assert fact["answer"].lower() in probes["reverse"]["question"].lower()
        kind = load_set(name)["kinds"][relation["kind"]]["entities"]
        others = {filled(relation["question"], other) for other in set(kind) - entities}
        assert len(probes["others"]) == 1 and set(probes["others"]) <= others
        assert len(probes["untaught"]) >= 1
        assert not questions & {question_key(text) for text in probes["untaught"]}
        assert all(probes["entity"].lower() in text.lower() for text in probes["untaught"])


def test_an_entity_has_one_to_four_relations_as_long_as_there_are_entities():
    counts = Counter(fact["details"]["entity"] for fact in draw("garden", 200, 3))
    assert set(counts.values()) == {1, 2, 3, 4}
    assert max(Counter(f["details"]["entity"] for f in draw("garden", 900, 3)).values()) > 4
    with pytest.raises(ValueError, match=r"garden: has 9\d\d facts to draw, not 2000"):
        draw("garden", 2000, 3)


def test_other_options_do_not_shift_the_facts():
    def facts_with(**options):
        return [(f["question"], f["answer"]) for f in draw("harbour", 60, 5, **options)]

    assert facts_with() == facts_with(held_out=None, others=3, untaught=5)
    assert facts_with() != [(f["question"], f["answer"]) for f in draw("harbour", 60, 6)]
    for fact in draw("harbour", 60, 5, held_out=None):
        about = {relation["name"]: relation for relation in load_set("harbour")["relations"]}
        wordings = about[fact["details"]["relation"]]["wordings"]
        assert len(fact["details"]["held_out"]) == len(wordings)


def test_several_sets_have_equal_shares():
    facts = several(["harbour", "workshop", "chronicle"], 100, 7)
    assert sorted(Counter(fact["details"]["set"] for fact in facts).values()) == [33, 33, 34]


@settings(max_examples=25)
@given(st.integers(2, 40), st.integers(0, 30), st.integers(0, 2**31))
def test_lessons_and_corrections(lessons: int, corrections: int, seed: int):
    facts = draw("garden", 5 * lessons, seed)
    lines = in_lessons(facts, str(lessons), None, 0, seed, corrected)
    assert [{k: v for k, v in line.items() if k != "task"} for line in lines] == facts
    sizes = Counter(line["task"] for line in lines)
    assert len(sizes) == lessons and set(sizes.values()) <= set(range(1, MOST + 1))
    first = [line["task"] for line in lines]
    assert first == sorted(first)

    wanted = min(corrections, sum(size for name, size in sizes.items() if name != first[-1]))
    lines = in_lessons(facts, str(lessons), None, wanted, seed, corrected)
    by_question = defaultdict(list)
    for line in lines:
        by_question[line["question"]].append(line)
    changed = [both for both in by_question.values() if len(both) == 2]
    assert len(changed) == wanted and len(lines) == len(facts) + wanted
    for before, after in changed:
        assert before["task"] < after["task"] and before["answer"] != after["answer"]
        assert after["answer"].lower() in after["details"]["reverse"]["question"].lower()
    answers = Counter((line["details"]["relation"], line["answer"]) for line in lines)
    assert max(answers.values()) == 1


def test_lessons_of_one_size_or_of_any():
    facts = draw("garden", 25, 1)
    equal = in_lessons(facts, "one", 10, 0, 1, corrected)
    assert list(Counter(line["task"] for line in equal).values()) == [10, 10, 5]
    assert len({line["task"] for line in in_lessons(facts, "one", None, 0, 1, corrected)}) == 1
    assert len({line["task"] for line in in_lessons(facts, "uneven", None, 0, 1, corrected)}) > 1
    with pytest.raises(ValueError, match="do not fit 30 lessons"):
        in_lessons(facts, "30", None, 0, 1, corrected)
    with pytest.raises(ValueError, match="only 0 facts can be corrected"):
        in_lessons(facts, "one", None, 1, 1, corrected)


def test_the_file_is_what_learn_and_evaluate_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "facts.jsonl"
    command = f"x garden --facts 40 --seed 2 --lessons uneven --corrections 5 --out {out}"
    monkeypatch.setattr(sys, "argv", command.split())
    fact_sets.main()
    assert "45 lines in" in capsys.readouterr().out
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    decided = plan((), 0, stream_from(out))
    assert len(decided.corrected) == 5 and len(decided.tasks) == len({x["task"] for x in lines})
    (probe,) = probes_of(decided.tasks[0].items[:1])
    details = lines[0]["details"]
    assert list(probe.wordings) == details["held_out"] and probe.sentence == details["sentence"]
    assert probe.reverse == (details["reverse"]["question"], details["reverse"]["answer"])
    assert list(probe.others) == details["others"]
    assert list(probe.untaught) == details["untaught"]


def test_a_name_that_is_no_set(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["x", "gardn", "--out", str(tmp_path / "f.jsonl")])
    with pytest.raises(SystemExit):
        fact_sets.main()
    assert "gardn: is no set; there are harbour" in capsys.readouterr().err
