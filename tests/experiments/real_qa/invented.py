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

NAMES = [
    "arc_challenge",
    "arc_easy",
    "medmcqa",
    "nq_open",
    "openbookqa",
    "popqa",
    "sciq",
    "squad",
    "triviaqa",
    "webquestions",
]

TRAIN_ARC = [
    {
        "id": "Mill_7",
        "question": {
            "stem": "What turns a water mill?",
            "choices": [{"text": "a candle", "label": "A"}, {"text": "a stream", "label": "B"}],
        },
        "answerKey": "B",
    },
    {
        "id": "Mill_8",
        "question": {
            "stem": "Which is a metal?",
            "choices": [
                {"text": "tin", "label": "1"},
                {"text": "wool", "label": "2"},
                {"text": "clay", "label": "3"},
            ],
        },
        "answerKey": "1",
    },
]
MEDMCQA = [
    {
        "id": "aa-1",
        "question": "Bone of the upper arm",
        "exp": None,
        "cop": 1,
        "opa": "Humerus",
        "opb": "Femur",
        "opc": "Tibia",
        "opd": "Ulna",
        "subject_name": "Anatomy",
        "topic_name": None,
        "choice_type": "single",
    },
    {
        "id": "aa-2",
        "question": "Bone of the shin",
        "exp": "see above",
        "cop": 4,
        "opa": "Humerus",
        "opb": "Femur",
        "opc": "Ulna",
        "opd": "Tibia",
        "subject_name": "Anatomy",
        "topic_name": "Leg",
        "choice_type": "multi",
    },
]
NQ_OPEN = [
    {"question": "who keeps the green lighthouse", "answer": ["Ana Ruiz", "ana ruiz ", "A. Ruiz"]},
    {"question": "when did the ferry stop", "answer": ["1931"]},
]
SCIQ = [
    {
        "question": "What do bees collect?",
        "distractor3": "sand",
        "distractor1": "salt",
        "distractor2": "iron",
        "correct_answer": "nectar",
        "support": "",
    }
]
SQUAD_QUESTIONS = [
    {
        "answers": [
            {"answer_start": 4, "text": "the old pier"},
            {"answer_start": 8, "text": "pier"},
        ],
        "question": "Where did Ula stand? ",
        "id": "5a",
    },
    {"answers": [{"answer_start": 0, "text": "Ula"}], "question": "Who stood there?", "id": "5b"},
]
TRIVIAQA = [
    {
        "Question": "Which town has the blue tower?",
        "QuestionId": "iv_1",
        "Answer": {
            "Value": "Norrby",
            "Aliases": ["Norrby (town)", "NORRBY", ""],
            "NormalizedAliases": ["norrby town", "norrby"],
            "Type": "WikipediaEntity",
        },
        "EntityPages": [],
    }
]
WEBQUESTIONS = [
    {
        "url": "x",
        "targetValue": '(list (description "Old Harbour") (description Quay))',
        "utterance": "where do the boats sleep?",
    },
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
    "triviaqa": [
        ("Which town has the blue tower?", ("Norrby", "Norrby (town)", "norrby town")),
    ],
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
