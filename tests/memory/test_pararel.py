"""Counterfactual edits: another object of the relation, other patterns, neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation.edit_sets import read_edits
from holdfast.memory.evaluation.pararel import draw_edits, read_relations

PATTERNS = {
    "P108": ["[X] works for [Y] .", "[X], who works for [Y].", "[X] is employed by [Y].", "[Y]!"],
    "P20": ["[X] died in [Y].", "[X] died at [Y].", "[X]'s life ended in [Y]."],
    "P1001": ["[X] is a legal term in [Y] ."],  # one pattern: nothing to hold out
}
TRIPLES = {
    "P108": [(f"Ann {n}", ("Apple", "Nokia", "BBC")[n % 3]) for n in range(12)],
    "P20": [(f"Ann {n}", ("Rome", "Oslo")[n % 2]) for n in range(8)] + [("Bo", "Oslo")],
    "P1001": [("tax", "France")],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("patterns", "triples"):
        (tmp_path / kind).mkdir()
    for name in PATTERNS:
        lines = [json.dumps({"pattern": text}) for text in PATTERNS[name]]
        (tmp_path / "patterns" / f"{name}.jsonl").write_text("\n".join(lines))
        lines = [json.dumps({"sub_label": s, "obj_label": o}) for s, o in TRIPLES[name]]
        (tmp_path / "triples" / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_patterns_that_end_in_their_object(folder: Path):
    works, died = read_relations(folder)
    assert works.patterns == ("[X] works for", "[X], who works for", "[X] is employed by")
    assert (works.name, died.name) == ("P108", "P20") and len(died.triples) == 9


def check(edits, triples, others: int) -> None:
    edited = {edit["details"]["entity"] for edit in edits}
    assert len(edited) == len(edits)
    for edit in edits:
        details = edit["details"]
        true = {o for s, o in triples[details["relation"]] if s == details["entity"]}
        assert details["was"] in true and edit["answer"] not in true
        assert edit["answer"] in {o for _, o in triples[details["relation"]]}
        assert edit["question"] not in details["held_out"]
        assert len(details["others"]) == others
        for text in (*details["held_out"], *details["untaught"]):
            assert details["entity"] in text
        assert not {edit["question"], *details["held_out"]} & set(details["untaught"])
        assert not any(text == f"Complete: {name}" for text in details["others"] for name in edited)


def test_edits(folder: Path):
    edits = draw_edits(folder, 6, seed=4)
    assert edits == draw_edits(folder, 6, seed=4) != draw_edits(folder, 6, seed=5)
    check(edits, TRIPLES, others=2)
    assert {edit["details"]["sentence"] for edit in edits} == {None}  # both patterns are asked
    one = draw_edits(folder, 6, seed=4, held_out=1)[0]["details"]
    assert one["entity"] in one["sentence"] not in one["held_out"][0]
    relations = [edit["details"]["relation"] for edit in edits]
    assert relations.count("P108") == relations.count("P20") == 3
    works = edits[relations.index("P108")]
    name = works["details"]["entity"]
    assert works["question"] == f"Complete: {name} works for"
    assert set(works["details"]["held_out"]) == {
        f"Complete: {name}, who works for",
        f"Complete: {name} is employed by",
    }
    if name in {s for s, _ in TRIPLES["P20"]}:
        assert works["details"]["untaught"] == [f"Complete: {name} died in"]
    asked = draw_edits(folder, 6, seed=4, form="question")
    assert [edit["answer"] for edit in asked] == [edit["answer"] for edit in edits]
    assert {edit["question"].split()[0] for edit in asked} == {"Which", "Where"}


def test_a_set_of_edits_is_drawn(folder: Path):
    edited = read_edits(folder, limit=4, seed=3)
    assert (edited.name, len(edited.edits)) == ("ParaRel", 4)
    assert read_edits(folder, limit=4, seed=3) == edited != read_edits(folder, limit=4, seed=4)
    drawn = draw_edits(folder, 4, seed=3)
    for edit, fact in zip(edited.edits, drawn, strict=True):
        details = fact["details"]
        assert (edit.question, edit.answer) == (fact["question"], fact["answer"])
        assert edit.wordings == tuple(details["held_out"])
        assert edit.neighbours == (*details["others"], *details["untaught"])
    with pytest.raises(HoldfastError, match="is no folder of ParaRel"):
        read_edits(folder, limit=40)


def test_too_few(folder: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="there are 13 subjects to edit, not 20"):
        draw_edits(folder, 20, seed=4)
    with pytest.raises(ValueError, match="holds no patterns"):
        read_relations(tmp_path / "elsewhere")


def test_the_published_set(real_data: Path):
    folder = real_data / "editing" / "pararel"
    triples = {relation.name: relation.triples for relation in read_relations(folder)}
    assert len(triples) == 14
    check(draw_edits(folder, 200, seed=7), triples, others=2)
