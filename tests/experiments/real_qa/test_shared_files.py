"""The ten sources as they are published: how much is read, and that it is the right thing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from experiments.paper.real_qa.records import find_files, read_files
from experiments.paper.real_qa.sources import SOURCES

ARC = "ARC-V1-Feb2018-2"
OPENBOOKQA = "OpenBookQA-V1-Sep2018/Data/Main"

# source, file, records, left out
COUNTS = [
    ("arc_challenge", f"{ARC}/ARC-Challenge/ARC-Challenge-Dev.jsonl", 299, 0),
    ("arc_challenge", f"{ARC}/ARC-Challenge/ARC-Challenge-Train.jsonl", 1119, 0),
    ("arc_easy", f"{ARC}/ARC-Easy/ARC-Easy-Dev.jsonl", 500, 0),
    ("arc_easy", f"{ARC}/ARC-Easy/ARC-Easy-Train.jsonl", 1500, 0),
    ("medmcqa", "dev.json", 2500, 0),
    ("nq_open", "NQ-open.dev.jsonl", 2500, 0),
    ("openbookqa", f"{OPENBOOKQA}/dev.jsonl", 500, 0),
    ("openbookqa", f"{OPENBOOKQA}/train.jsonl", 1500, 0),
    ("popqa", "popQA.tsv", 1936, 0),
    ("sciq", "SciQ dataset-2 3/valid.json", 1000, 0),
    ("squad", "train-v1.1.json", 1483, 0),
    ("triviaqa", "dpr/topics.dpr.trivia.dev.txt", 1200, 0),
    ("triviaqa", "samples/triviaqa_sample.json", 1, 0),
    ("triviaqa", "triviaqa-rc/qa/web-dev.json", 3, 0),
    ("triviaqa", "triviaqa-rc/qa/web-train.json", 3, 0),
    ("triviaqa", "triviaqa-rc/qa/wikipedia-dev.json", 1, 0),
    ("triviaqa", "triviaqa-rc/qa/wikipedia-train.json", 1, 0),
    ("triviaqa", "triviaqa-sample.tgz", 11, 0),
    ("triviaqa", "triviaqa-unfiltered/unfiltered-web-dev.json", 3, 0),
    ("triviaqa", "triviaqa-unfiltered/unfiltered-web-train.json", 3, 0),
    ("triviaqa", "triviaqa-unfiltered_b/unfiltered-web-dev.json", 3, 0),
    ("triviaqa", "triviaqa-unfiltered_b/unfiltered-web-train.json", 3, 0),
    ("webquestions", "webquestions.examples.train.json", 1500, 0),
]

# Of a question and its accepted answers, one a line: the first digits of the SHA-256, computed from
# the files by a few lines that share nothing with the readers. Two questions of ARC have digits as
# labels, the last one of WebQuestions has raw quotes in its answer.
DIGESTS = {
    "arc_challenge:MCAS_2009_5_6516": "4209c3be40fc",
    "arc_challenge:NYSEDREGENTS_2004_8_31": "0a960fee2c93",
    "arc_easy:MCAS_2007_8_5189": "6e59f41ad74a",
    "arc_easy:NYSEDREGENTS_2006_8_10": "55efd2c06bf1",
    "medmcqa:45258d3d-b974-44dd-a161-c3fccbdadd88": "33709b2ea4a1",
    "medmcqa:e38402c3-69bf-40a8-90c4-09277ca352eb": "2606f1b5d5c0",
    "nq_open:NQ-open.dev:1": "c57bc994a4a3",
    "nq_open:NQ-open.dev:2500": "d8664b58cf11",
    "openbookqa:7-242": "00c983ec65c8",
    "openbookqa:7-57": "6e6af111ae05",
    "popqa:4222362": "f71fbd393dd8",
    "popqa:698369": "4b33e51c6171",
    "sciq:valid:1": "8ce8052fb854",
    "sciq:valid:1000": "7de8813839e3",
    "squad:5733be284776f41900661182": "a86e05b5f064",
    "squad:5733d91e4776f4190066134d": "b8fa5a5899b6",
    "triviaqa:tc_5": "fb7c0db4df41",
    "triviaqa:topics.dpr.trivia.dev:3": "425134f6b3c4",
    "webquestions:webquestions.examples.train:1": "75f3aaea6ed9",
    "webquestions:webquestions.examples.train:448": "83a4eac1e7b6",
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_published_files_are_found_and_say_what_they_say(name: str, real_data: Path) -> None:
    folder = real_data / "qa_sources"
    files = find_files(folder, name)
    listed = [row for row in COUNTS if row[0] == name]
    assert [path.relative_to(folder / name).as_posix() for path in files] == [
        file for _, file, _, _ in listed
    ]
    for path, (_, _, records, unusable) in zip(files, listed, strict=True):
        reading = read_files(name, [path])
        assert (reading.records, len(reading.left)) == (records, unusable)
        assert len(reading.candidates) == records - unusable
    reading = read_files(name, files)
    ids = [candidate.id for candidate in reading.candidates]
    assert len(set(ids)) == len(ids)
    overlap = any("#" in label for label in ids)  # the parts of TriviaQA repeat their ids
    assert overlap == (name == "triviaqa")
    digests = {
        candidate.id: digest(candidate.question, *candidate.answers)
        for candidate in reading.candidates
        if candidate.id in DIGESTS
    }
    assert len(digests) == 2
    assert digests == {key: value for key, value in DIGESTS.items() if key in digests}


def digest(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
