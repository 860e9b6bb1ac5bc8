"""Sets of edits: published formats, with made-up cases, and edits that are drawn from ParaRel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation.edits import Edit, read_edits
from holdfast.memory.evaluation.pararel import draw_edits, read_relations

COUNTERFACT = {
    "requested_rewrite": {
        "prompt": "The mother tongue of {} is",
        "target_new": {"str": "English", "id": "Q1860"},
        "target_true": {"str": "French"},
        "subject": "Ada Quill",
    },
    "paraphrase_prompts": ["It rains. Ada Quill, a native", "Ada Quill spoke the language"],
    "neighborhood_prompts": ["The mother tongue of Joss Oake is"],
    "attribute_prompts": ["The mother tongue of Pell Marr is"],
    "generation_prompts": ["Ada Quill lives in"],
}
ZSRE = {
    "subject": "Ada Quill",
    "src": "Which college did Ada Quill attend?",
    "pred": "Old Mill",
    "rephrase": "What college did Ada Quill go to?",
    "alt": "New Mill",
    "answers": ["Old Mill"],
    "loc": "nq question: who keeps the lighthouse",
    "loc_ans": "Orsa Tindle",
}
MQUAKE = {
    "requested_rewrite": [
        {
            "prompt": "{} is a citizen of",
            "target_new": {"str": "Borduria"},
            "target_true": {"str": "Syldavia"},
            "subject": "Ada Quill",
            "question": "What is the country of citizenship of Ada Quill?",
        },
        {
            "prompt": "The capital of {} is",
            "target_new": {"str": "Dunlow"},
            "target_true": {"str": "Szohod"},
            "subject": "Borduria",
            "question": "What is the capital of Borduria?",
        },
    ],
    "questions": ["In which capital is Ada Quill at home?", "Where does her government sit?"],
    "answer": "Klow",
    "new_answer": "Dunlow",
    "new_answer_alias": ["Dunlow City"],
}
KNOWEDIT = {
    "subject": "Ada Quill",
    "prompt": "The name of the country of citizenship of Ada Quill is",
    "target_new": "Borduria",
    "rephrase": "Which country is Ada Quill a citizen of?",
    "ground_truth": ["Syldavia"],
    "portability": {
        "Subject_Aliasing": [
            {
                "prompt": "The country of A. Quill is",
                "ground_truth": [["Borduria"], ["Bordurian Realm"]],
            }
        ],
        "Reasoning": [
            {"prompt": "The currency of Ada Quill's country is", "ground_truth": "crown"}
        ],
        "Logical_Generalization": None,
    },
    "locality": {
        "Relation_Specificity": [
            {"prompt": "The name of the mother of Ada Quill is", "ground_truth": [["Eda"]]}
        ],
        "Forgetfulness": [],
    },
}


def written(path: Path, *cases: Any, lines: bool = False) -> Path:
    text = "".join(f"{json.dumps(case)}\n" for case in cases) if lines else json.dumps(cases)
    path.write_text(text, encoding="utf-8")
    return path


def test_counterfact(tmp_path: Path) -> None:
    edited = read_edits(written(tmp_path / "a.json", COUNTERFACT))
    assert edited.name == "CounterFact"
    assert edited.edits == (
        Edit(
            "Complete: The mother tongue of Ada Quill is",
            "English",
            (
                "Complete: It rains. Ada Quill, a native",
                "Complete: Ada Quill spoke the language",
            ),
            ("Complete: The mother tongue of Joss Oake is",),
            (),
            (),
            ("Complete: Ada Quill lives in",),
        ),
    )


def test_zsre(tmp_path: Path) -> None:
    without = {key: value for key, value in ZSRE.items() if key != "alt"}
    edited = read_edits(
        written(tmp_path / "a.json", ZSRE, {**without, "src": "Another?", "loc": "Who?"})
    )
    first, second = edited.edits
    assert edited.name == "zsRE"
    assert first == Edit(
        "Which college did Ada Quill attend?",
        "New Mill",
        ("What college did Ada Quill go to?",),
        ("who keeps the lighthouse?",),
    )
    assert (second.answer, second.neighbours) == ("Old Mill", ("Who?",))


def test_mquake(tmp_path: Path) -> None:
    """Every rewrite of a case is an edit; its questions in several steps are asked once."""
    edited = read_edits(written(tmp_path / "a.json", MQUAKE))
    first, second = edited.edits
    assert edited.name == "MQuAKE"
    assert (first.question, first.answer) == (
        "What is the country of citizenship of Ada Quill?", "Borduria",
    )  # fmt: skip
    assert first.wordings == ("Complete: Ada Quill is a citizen of",)
    assert first.portability == (
        ("In which capital is Ada Quill at home?", ("Dunlow", "Dunlow City")),
        ("Where does her government sit?", ("Dunlow", "Dunlow City")),
    )
    assert (second.answer, second.portability) == ("Dunlow", ())


def test_knowedit(tmp_path: Path) -> None:
    (edit,) = read_edits(written(tmp_path / "a.json", KNOWEDIT, lines=True)).edits
    assert (edit.question, edit.answer) == (
        "Complete: The name of the country of citizenship of Ada Quill is", "Borduria",
    )  # fmt: skip
    assert edit.wordings == ("Which country is Ada Quill a citizen of?",)
    assert edit.relations == ("Complete: The name of the mother of Ada Quill is",)
    assert edit.neighbours == ()
    assert edit.portability == (
        ("Complete: The country of A. Quill is", ("Borduria", "Bordurian Realm")),
        ("Complete: The currency of Ada Quill's country is", ("crown",)),
    )


def test_ten_to_a_lesson_and_no_question_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cases = [{**ZSRE, "src": f"Which college is number {number % 21}?"} for number in range(25)]
    edited = read_edits(written(tmp_path / "a.json", *cases))
    assert [len(task.items) for task in edited.stream().tasks] == [10, 10, 1]
    assert len(read_edits(tmp_path / "a.json", limit=3).edits) == 3
    assert not caplog.records  # the others say the same


def test_cases_that_share_an_edit_are_all_asked(tmp_path: Path) -> None:
    """As many of MQuAKE do; and what one case leaves as it was may be what another one edits."""
    other = {**MQUAKE, "questions": ["Where does Ada Quill vote?"], "new_answer_alias": []}
    first, _ = read_edits(written(tmp_path / "a.json", MQUAKE, other)).edits
    assert [question for question, _ in first.portability] == [
        *MQUAKE["questions"], "Where does Ada Quill vote?",
    ]  # fmt: skip
    again = {**COUNTERFACT, "paraphrase_prompts": ["Ada spoke"], "generation_prompts": ["She is"]}
    [edit] = read_edits(written(tmp_path / "d.json", COUNTERFACT, again)).edits
    assert edit.wordings[2:] == ("Complete: Ada spoke",)
    assert edit.generation == ("Complete: Ada Quill lives in", "Complete: She is")
    mother = {**KNOWEDIT, "prompt": "The name of the mother of Ada Quill is"}
    for edit in read_edits(written(tmp_path / "b.json", KNOWEDIT, mother)).edits:
        assert edit.relations == ()
    near = {"Specificity": [{"prompt": "The name of the mother of Ada\u200b Quill is"}]}
    hidden = {**KNOWEDIT, "locality": near}
    assert read_edits(written(tmp_path / "c.json", hidden)).edits[0].neighbours
    assert not read_edits(written(tmp_path / "c.json", hidden, mother)).edits[0].neighbours


def test_another_answer_to_an_earlier_question_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "a.json", ZSRE, {**ZSRE, "alt": "Rome"}, {**ZSRE, "alt": "Oslo"})
    (edit,) = read_edits(path).edits
    assert edit.answer == ZSRE["alt"]
    assert "left out 2 edits with another answer to an earlier one's question" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[1]", "holds no list of cases"),
        ('[{"question": "a?"}]', "its cases have question; CounterFact, MQuAKE"),
        (json.dumps([COUNTERFACT, {"requested_rewrite": {}}]), "case 2: is no case of CounterFact"),
        (json.dumps([{**KNOWEDIT, "target_new": " "}]), "case 1: is no case of KnowEdit"),
        (json.dumps([{**KNOWEDIT, "prompt": " "}]), "an empty question"),
        (json.dumps([{**ZSRE, "alt": " "}]), "case 1: is no case of zsRE"),
    ],
)
def test_bad_input(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(HoldfastError, match=message) as raised:
        read_edits(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(HoldfastError, match="no such file"):
        read_edits(tmp_path / "b.json")


def test_a_seed_is_for_a_draw(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="not drawn; omit --seed"):
        read_edits(written(tmp_path / "a.json", COUNTERFACT), seed=0)


# Counterfactual edits: another object of the relation, other patterns, neighbours.

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
        of_edited = {edit["question"].replace(details["entity"], name) for name in edited}
        assert not of_edited & set(details["others"])


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
    for kind in ("patterns", "triples"):  # a relation that asks what another one does
        (folder / kind / "P127.jsonl").write_text((folder / kind / "P20.jsonl").read_text())
    check(draw_edits(folder, 6, seed=4), {**TRIPLES, "P127": TRIPLES["P20"]}, others=2)


def test_a_set_of_edits_is_drawn(folder: Path):
    edited = read_edits(folder, limit=4, seed=3)
    assert (edited.name, len(edited.edits)) == ("ParaRel", 4)
    assert read_edits(folder, limit=4, seed=3) == edited != read_edits(folder, limit=4, seed=4)
    drawn = draw_edits(folder, 4, seed=3)
    for edit, fact in zip(edited.edits, drawn, strict=True):
        details = fact["details"]
        assert (edit.question, edit.answer) == (fact["question"], fact["answer"])
        assert edit.wordings == tuple(details["held_out"])
        assert edit.neighbours == tuple(details["others"])
        assert edit.relations == tuple(details["untaught"])
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
