"""Ten published formats, with records of our own: what is read, left out, and found."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.paper.real_qa.candidate import CandidateItem, UnusableError
from experiments.paper.real_qa.records import find_files, read_files

from .invented import (
    IDS,
    MEDMCQA,
    NAMES,
    PAIRS,
    POPQA_COLUMNS,
    PUBLISHED,
    SQUAD_QUESTIONS,
    TRIVIAQA,
    arc,
    archive,
    array,
    lines,
    pairs,
    read,
    reasons,
    tsv,
)


@pytest.mark.parametrize("name", NAMES)
def test_each_published_format_says_questions_answers_and_ids(name: str, tmp_path: Path) -> None:
    file, content = PUBLISHED[name]
    reading = read(tmp_path, name, content, file)
    assert pairs(reading) == PAIRS[name]
    assert [candidate.id for candidate in reading.candidates] == IDS[name]
    assert reading.left == ()
    content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")  # as Windows may save it
    assert pairs(read(tmp_path, name, content, file)) == PAIRS[name]


def test_answers_are_stripped_once_in_any_case_and_can_be_boxed() -> None:
    answers = (" Tin ", "tin", "", "  ", "TIN can", "a}b", "{a}", "Ti\ud800n")
    candidate = CandidateItem("sciq", "sciq:1", " q ", answers)
    assert candidate.question == "q"
    assert candidate.answers == ("Tin", "TIN can", "{a}")


@pytest.mark.parametrize(
    ("question", "answers", "reason"),
    [
        (" ", ("a",), "no question"),
        ("q", (), "no answer"),
        ("q", (" ",), "no answer"),
        ("q", ("a}b", "ab"), "the answer has unbalanced braces"),
        ("q\udc00", ("a",), "the question is no valid Unicode"),
        ("q", ("\udc00",), "the answer is no valid Unicode"),
    ],
)
def test_what_cannot_be_asked_or_scored_is_no_candidate(
    question: str, answers: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UnusableError, match=f"^{reason}$"):
        CandidateItem("sciq", "sciq:1", question, answers)


def test_left_out_records_are_counted_and_can_be_found(tmp_path: Path) -> None:
    records = [
        {"question": "q1", "answer": ["a"]},
        {"question": "", "answer": ["a"]},
        {"question": "q3", "answer": []},
        {"question": "q4", "answer": None},
        {"question": "q5", "answer": ["}", "b"]},
        {"question": "q6", "answer": ["{", "  "]},
        {"question": "\ud800", "answer": ["a"]},
    ]
    reading = read(tmp_path, "nq_open", lines(records))
    # Of a list without a canonical answer the first usable one is the primary one.
    assert pairs(reading) == [("q1", ("a",)), ("q5", ("b",))]
    assert reading.records == 7
    assert reasons(reading) == [
        ("NQ-open.dev.jsonl line 2", "no question"),
        ("NQ-open.dev.jsonl line 3", "no answer"),
        ("NQ-open.dev.jsonl line 4", "no answer"),
        ("NQ-open.dev.jsonl line 6", "no answer"),
        ("NQ-open.dev.jsonl line 7", "the question is no valid Unicode"),
    ]


def test_arc_takes_the_choice_of_the_key_whatever_labels_and_number(tmp_path: Path) -> None:
    keys = [("ABC", "C"), ("1234", "3"), ("ABCDE", "E"), ("DCBA", "A")]
    odd = [("ABCD", "E"), ("ABCD", "1"), ("", "A"), ("AB", ""), ("AB", None)]
    records = [
        arc("r", "q", {label: f"text {label}" for label in labels}, key)
        for labels, key in keys + odd
    ]
    twice = arc("r", "q", {"A": "x"}, "A")
    twice["question"]["choices"] *= 2
    reading = read(tmp_path, "arc_easy", lines([*records, twice]))
    assert [answers for _, answers in pairs(reading)] == [(f"text {key}",) for _, key in keys]
    assert [record.reason for record in reading.left] == [
        *["none of the choices have the label of the answer key"] * 3,
        *["no answer key"] * 2,
        "2 of the choices have the label of the answer key",
    ]


def test_medmcqa_counts_its_options_from_one_in_files(tmp_path: Path) -> None:
    records = [MEDMCQA[0] | {"cop": cop} for cop in (1, 2, 3, 4, 5, 0, -1, None)]
    records.append({key: value for key, value in MEDMCQA[0].items() if key != "cop"})
    reading = read(tmp_path, "medmcqa", lines(records))
    assert [answers[0] for _, answers in pairs(reading)] == ["Humerus", "Femur", "Tibia", "Ulna"]
    assert reasons(reading) == [
        ("dev.json line 5", "none of the choices have the label of the answer key"),
        ("dev.json line 6", "none of the choices have the label of the answer key"),
        ("dev.json line 7", "no answer key"),
        ("dev.json line 8", "no answer key"),
        ("dev.json line 9", "no answer key"),  # as in the published test split
    ]


def test_popqa_cells_are_quoted_and_hold_json(tmp_path: Path) -> None:
    rows = [
        ["1", "s", "p", "None", "q\tone", '["None", "caf\\u00e9"]'],
        ["2", "s", "p", "NA", "q\ntwo", "[]"],
        ["3", "s", "p", "x", "q", "['x']"],
        ["4", "s", "p", "", "q", '["x"]'],
        ["5", "s", "p", "x", "q", '["{", null, 7]'],
    ]
    reading = read(tmp_path, "popqa", tsv([POPQA_COLUMNS, *rows]))
    assert pairs(reading) == [("q\tone", ("None", "café")), ("q\ntwo", ("NA",)), ("q", ("x",))]
    # The second row takes two lines.
    assert reasons(reading) == [
        ("popQA.tsv line 5", '"possible_answers" is no JSON list'),
        ("popQA.tsv line 6", "no answer"),
    ]


@pytest.mark.parametrize(
    ("target", "texts"),
    [
        ('(list (description "A b") (description C))', ("A b", "C")),
        (
            '(list (description "He said "no" twice") (description "x"))',
            ('He said "no" twice', "x"),
        ),
        ('(list (description ""All of it...""))', ('"All of it..."',)),
        ('(list (description "a ("b") c") (description d))', ('a ("b") c', "d")),
        (r'(list (description "a \"b\" c"))', ('a "b" c',)),
        (r'(list (description "a \\ b"))', (r"a \ b",)),
        ("(list (description Zoë) (description zoë) (description O'Neill))", ("Zoë", "O'Neill")),
        ('  (list  (description   "A b" )  (description C) ) ', ("A b", "C")),
    ],
)
def test_webquestions_reads_descriptions(
    target: str, texts: tuple[str, ...], tmp_path: Path
) -> None:
    record = {"utterance": "q", "targetValue": target}
    assert pairs(read(tmp_path, "webquestions", array([record]))) == [("q", texts)]


def test_webquestions_leaves_out_other_targets(tmp_path: Path) -> None:
    empty = ["(list)", '(list (description ""))', None]
    odd = ["", "(list (description a b))", "(list (description a)", "(list (description a)) b"]
    odd += ["(list (name a))"]
    records = [{"utterance": "q", "targetValue": target} for target in empty + odd]
    reading = read(tmp_path, "webquestions", array(records))
    expected = ["no answer"] * 3 + ['"targetValue" is no list of descriptions'] * 5
    assert [record.reason for record in reading.left] == expected


def test_squad_counts_questions_over_articles_and_drops_impossible_ones(tmp_path: Path) -> None:
    impossible = SQUAD_QUESTIONS[0] | {"id": "no", "answers": [], "is_impossible": True}
    paragraphs = [{"context": "c", "qas": [SQUAD_QUESTIONS[0]]}]
    articles = [
        {"title": "t", "paragraphs": paragraphs},
        {"title": "u", "paragraphs": [{"context": "d", "qas": [impossible, SQUAD_QUESTIONS[1]]}]},
    ]
    reading = read(tmp_path, "squad", array({"data": articles, "version": "v2.0"}))
    assert [candidate.id for candidate in reading.candidates] == ["squad:5a", "squad:5b"]
    assert reasons(reading) == [("train-v1.1.json record 2", "no answer")]


def test_lists_of_dpr_are_tab_separated_python_lists(tmp_path: Path) -> None:
    rows = [
        ["Who kept it?", "['Ana Ruiz', 'Ruiz, Ana']"],
        ['Who said "no"?', str(["Ula's cat", 'the "cat"'])],
        ["Where?", r"['C:\dock', '']"],
        ["Why?", "[__import__('os')]"],
        ["How?", "'rope'"],
        ["When?", "['{', '1931']"],
    ]
    reading = read(tmp_path, "triviaqa", tsv(rows), "topics.dpr.trivia.dev.txt")
    assert pairs(reading) == [
        ("Who kept it?", ("Ana Ruiz", "Ruiz, Ana")),
        ('Who said "no"?', ("Ula's cat", 'the "cat"')),
        ("Where?", (r"C:\dock",)),
        ("When?", ("1931",)),
    ]
    assert reading.candidates[1].id == "triviaqa:topics.dpr.trivia.dev:2"
    assert reasons(reading) == [
        (f"topics.dpr.trivia.dev.txt line {line}", "the answers are no Python list")
        for line in (4, 5)
    ]


def test_archives_of_triviaqa_are_read_in_place(tmp_path: Path) -> None:
    empty = array({"Data": [TRIVIAQA[0] | {"Question": ""}]})
    members = {
        "./qa/web-dev.json": array({"Data": TRIVIAQA}),
        "qa/._web-dev.json": b"\0shadow",
        "qa/.web-dev.json.swp": b"\0editor",
        "evidence/web/1/1_2.txt": b"text",
        "triviaqa-unfiltered/unfiltered-web-dev.json": empty,
    }
    reading = read(tmp_path, "triviaqa", archive(members), "triviaqa-sample.tgz")
    assert pairs(reading) == PAIRS["triviaqa"]
    assert reasons(reading) == [("unfiltered-web-dev.json record 1", "no question")]
    assert [path.name for path in tmp_path.iterdir()] == ["triviaqa-sample.tgz"]


def test_a_repeated_id_gets_a_number(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [tmp_path / "unfiltered-web-dev.json", tmp_path / "a" / "unfiltered-web-dev.json"]
    paths[0].write_bytes(array({"Data": [TRIVIAQA[0], TRIVIAQA[0]]}))
    paths[1].write_bytes(array({"Data": [TRIVIAQA[0] | {"QuestionId": " "}]}))
    reading = read_files("triviaqa", [*paths, paths[1]])
    ids = ["iv_1", "iv_1#2", "unfiltered-web-dev:1", "unfiltered-web-dev:1#2"]
    assert [candidate.id for candidate in reading.candidates] == [
        f"triviaqa:{name}" for name in ids
    ]


def test_published_files_are_found_among_others(tmp_path: Path) -> None:
    official = {
        "arc_easy": ["ARC-V1/ARC-Easy/ARC-Easy-Dev.jsonl"],
        "openbookqa": ["OpenBookQA-V1/Data/Main/dev.jsonl"],
        "sciq": ["SciQ dataset-2 3/test.json", "SciQ dataset-2 3/train.json"],
        "triviaqa": [
            "dpr/topics.dpr.trivia.dev.txt",
            "rc/qa/web-dev.json",
            "samples/triviaqa_sample.json",
            "triviaqa-rc.tar.gz",
            "triviaqa-sample.tgz",
            "u/unfiltered-web-train.json",
        ],
        **{
            name: [PUBLISHED[name][0]]
            for name in ("medmcqa", "nq_open", "popqa", "squad", "webquestions")
        },
    }
    others = {
        "arc_easy": ["ARC-V1/ARC-Challenge/ARC-Challenge-Dev.jsonl", "ARC-V1/ARC_Corpus.txt"],
        "openbookqa": ["Data/Additional/dev_complete.jsonl", "Data/Main/dev.tsv", "LICENSE"],
        "sciq": ["SciQ dataset-2 3/license.txt", "SciQ dataset-2 3/readme.txt"],
        "triviaqa": ["rc/evidence/wikipedia/A_trivia_night.txt", "rc/README", "dpr/readme.txt"],
        "squad": ["evaluate-v1.1.py", ".train-v1.1.json"],
    }
    for name, place in (pair for files in (official, others) for pair in files.items()):
        for file in place:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    for name in NAMES:
        wanted = [tmp_path / name / place for place in official.get(name, [])]
        assert find_files(tmp_path, name) == wanted


def test_the_folder_of_a_source_is_found_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "squad" / "v1" / "train-v1.1.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    assert find_files(tmp_path, "squad") == find_files(tmp_path / "squad", "squad") == [file]
    # A folder of another name may hold anything.
    assert find_files(tmp_path / "squad", "sciq") == find_files(file.parent, "squad") == []
    monkeypatch.chdir(tmp_path / "squad")
    assert find_files(Path(), "squad") == [Path("v1/train-v1.1.json")]
    # What lies in a folder of that name below it comes first.
    (tmp_path / "squad" / "squad").mkdir()
    assert find_files(tmp_path / "squad", "squad") == []
