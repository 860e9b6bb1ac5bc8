"""Records of our own in the ten published formats, and what they say."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.paper.real_qa.candidate import SourceRecords
from experiments.paper.real_qa.records import read_files
from tests.refused import line_of


def arc(name: str, stem: str, choices: dict[str, str], key: object) -> dict[str, Any]:
    """A record of ARC. choices: texts by label."""
    listed = [{"text": text, "label": label} for label, text in choices.items()]
    return {"id": name, "question": {"stem": stem, "choices": listed}, "answerKey": key}


TRAIN_ARC = [
    arc("Mill_7", "What turns a water mill?", {"A": "a candle", "B": "a stream"}, "B"),
    arc("Mill_8", "Which is a metal?", {"1": "tin", "2": "wool", "3": "clay"}, "1"),
]
BONES = {"opa": "Humerus", "opb": "Femur", "opc": "Tibia", "opd": "Ulna"}
UPPER = {"id": "aa-1", "question": "Bone of the upper arm", "exp": None, "cop": 1, **BONES}
MEDMCQA = [
    UPPER | {"subject_name": "Anatomy", "topic_name": None, "choice_type": "single"},
    UPPER
    | {"id": "aa-2", "question": "Bone of the shin", "exp": "see above", "cop": 3}
    | {"subject_name": "Anatomy", "topic_name": "Leg", "choice_type": "multi"},
]
NQ_OPEN = [
    {"question": "who keeps the green lighthouse", "answer": ["Ana Ruiz", "ana ruiz ", "A. Ruiz"]},
    {"question": "when did the ferry stop", "answer": ["1931"]},
]
WRONG = {"distractor3": "sand", "distractor1": "salt", "distractor2": "iron"}
SCIQ = [{"question": "What do bees collect?", **WRONG, "correct_answer": "nectar", "support": ""}]
PIER = [{"answer_start": 4, "text": "the old pier"}, {"answer_start": 8, "text": "pier"}]
SQUAD_QUESTIONS = [
    {"answers": PIER, "question": "Where did Ula stand? ", "id": "5a"},
    {"answers": [{"answer_start": 0, "text": "Ula"}], "question": "Who stood there?", "id": "5b"},
]
NORRBY = {
    "Value": "Norrby",
    "Aliases": ["Norrby (town)", "NORRBY", ""],
    "NormalizedAliases": ["norrby town", "norrby"],
    "Type": "WikipediaEntity",
}
TOWER = {"Question": "Which town has the blue tower?", "QuestionId": "iv_1", "Answer": NORRBY}
TRIVIAQA: list[dict[str, Any]] = [TOWER | {"EntityPages": []}]
HARBOUR = '(list (description "Old Harbour") (description Quay))'
WEBQUESTIONS = [
    {"url": "x", "targetValue": HARBOUR, "utterance": "where do the boats sleep?"},
    {"url": "y", "targetValue": "(list (description 1912))", "utterance": "when was it built?"},
]
POPQA_COLUMNS = ["id", "subj", "prop", "obj", "question", "possible_answers"]
POPQA = [
    ["17", "Ilse Bram", "occupation", "potter", "What is it?", '["potter", "ceramist"]'],
    ["18", "Oto Prell", "birthplace", 'the "Hook"', "Where?", '["the \\"Hook\\"", "Hook"]'],
]


def lines(records: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def array(records: Any) -> bytes:
    return json.dumps(records, indent=1).encode()


def tsv(rows: Iterable[list[str]]) -> bytes:
    written = io.StringIO(newline="")
    csv.writer(written, delimiter="\t", lineterminator="\n").writerows(rows)
    return written.getvalue().encode()


def squad(questions: Any) -> bytes:
    paragraphs = [{"context": "On it.", "qas": [question]} for question in questions]
    return array({"data": [{"title": "Ula", "paragraphs": paragraphs}], "version": "1.1"})


def archive(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as whole:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            whole.addfile(entry, io.BytesIO(content))
    return written.getvalue()


PUBLISHED: dict[str, tuple[str, bytes]] = {
    "arc_challenge": ("ARC-Challenge-Train.jsonl", lines(TRAIN_ARC)),
    "arc_easy": ("ARC-Easy-Train.jsonl", lines(TRAIN_ARC)),
    "medmcqa": ("dev.json", lines(MEDMCQA)),
    "nq_open": ("NQ-open.dev.jsonl", lines(NQ_OPEN)),
    "openbookqa": ("train.jsonl", lines(TRAIN_ARC)),
    "popqa": ("popQA.tsv", tsv([POPQA_COLUMNS, *POPQA])),
    "sciq": ("valid.json", array(SCIQ)),
    "squad": ("train-v1.1.json", squad(SQUAD_QUESTIONS)),
    "triviaqa": ("unfiltered-web-dev.json", array({"Data": TRIVIAQA, "Version": 1.0})),
    "webquestions": ("webquestions.examples.train.json", array(WEBQUESTIONS)),
}
NAMES = list(PUBLISHED)
ARC_ANSWERS = [("What turns a water mill?", ("a stream",)), ("Which is a metal?", ("tin",))]
PAIRS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "arc_challenge": ARC_ANSWERS,
    "arc_easy": ARC_ANSWERS,
    "medmcqa": [("Bone of the upper arm", ("Humerus",)), ("Bone of the shin", ("Tibia",))],
    "nq_open": [
        ("who keeps the green lighthouse", ("Ana Ruiz", "A. Ruiz")),
        ("when did the ferry stop", ("1931",)),
    ],
    "openbookqa": ARC_ANSWERS,
    "popqa": [("What is it?", ("potter", "ceramist")), ("Where?", ('the "Hook"', "Hook"))],
    "sciq": [("What do bees collect?", ("nectar",))],
    "squad": [("Where did Ula stand?", ("the old pier", "pier")), ("Who stood there?", ("Ula",))],
    "triviaqa": [(TOWER["Question"], ("Norrby", "Norrby (town)", "norrby town"))],
    "webquestions": [
        ("where do the boats sleep?", ("Old Harbour", "Quay")),
        ("when was it built?", ("1912",)),
    ],
}
IDS = {
    "arc_challenge": ["arc_challenge:Mill_7", "arc_challenge:Mill_8"],
    "arc_easy": ["arc_easy:Mill_7", "arc_easy:Mill_8"],
    "medmcqa": ["medmcqa:aa-1", "medmcqa:aa-2"],
    "nq_open": ["nq_open:NQ-open.dev:1", "nq_open:NQ-open.dev:2"],
    "openbookqa": ["openbookqa:Mill_7", "openbookqa:Mill_8"],
    "popqa": ["popqa:17", "popqa:18"],
    "sciq": ["sciq:valid:1"],
    "squad": ["squad:5a", "squad:5b"],
    "triviaqa": ["triviaqa:iv_1"],
    "webquestions": [f"webquestions:webquestions.examples.train:{n}" for n in (1, 2)],
}


def pairs(reading: SourceRecords) -> list[tuple[str, tuple[str, ...]]]:
    return [(candidate.question, candidate.answers) for candidate in reading.candidates]


def read(folder: Path, name: str, content: bytes, file: str | None = None) -> SourceRecords:
    path = folder / (file or PUBLISHED[name][0])
    path.write_bytes(content)
    return read_files(name, [path])


def reasons(reading: SourceRecords) -> list[tuple[str, str]]:
    return [(Path(record.place).name, record.reason) for record in reading.left]


def refusal(call: Callable[[], object], folder: Path) -> str:
    return line_of(call).replace(f"{folder}/", "")
