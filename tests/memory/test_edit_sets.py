"""Sets of edits in their published formats; the cases are made up, the fields are theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation.edit_sets import Edit, read_edits

COUNTERFACT = {
    "requested_rewrite": {
        "prompt": "The mother tongue of {} is",
        "target_new": {"str": "English"},
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
            ("Complete: Ada Quill lives in",),
        ),
    )


def test_zsre(tmp_path: Path) -> None:
    without = {key: value for key, value in ZSRE.items() if key != "alt"}
    edited = read_edits(written(tmp_path / "a.json", ZSRE, {**without, "src": "Another?"}))
    first, second = edited.edits
    assert edited.name == "zsRE"
    assert first == Edit(
        "Which college did Ada Quill attend?",
        "New Mill",
        ("What college did Ada Quill go to?",),
        ("who keeps the lighthouse?",),
    )
    assert second.answer == "Old Mill"


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
    assert edit.neighbours == ("Complete: The name of the mother of Ada Quill is",)
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
