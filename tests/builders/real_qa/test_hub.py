"""The ten sources from the hub, by stand-ins on disk that the real `datasets` library loads."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from holdfast.builders.real_qa.sources import SOURCES, Hub, read_files, read_hub
from holdfast.core.errors import HoldfastError

from .invented import (
    MEDMCQA,
    NAMES,
    NQ_OPEN,
    POPQA,
    POPQA_COLUMNS,
    PUBLISHED,
    SAID,
    SCIQ,
    SQUAD_QUESTIONS,
    TRAIN_ARC,
    TRIVIAQA,
    WEBQUESTIONS,
    reasons,
    refusal,
    said,
)

TEXT = Value("string")


def arc_rows(stem: str) -> list[dict[str, Any]]:
    rows = []
    for record in TRAIN_ARC:
        question: Any = record["question"]
        choices = question["choices"]
        rows.append(
            {
                "id": record["id"],
                stem: question["stem"],
                "choices": {key: [choice[key] for choice in choices] for key in ("text", "label")},
                "answerKey": record["answerKey"],
            }
        )
    return rows


def squad_rows() -> list[dict[str, Any]]:
    rows = []
    for record in SQUAD_QUESTIONS:
        answers: Any = record["answers"]
        columns = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
        rows.append(record | {"title": "Ula", "context": "On it.", "answers": columns})
    return rows


def triviaqa_rows() -> list[dict[str, Any]]:
    rows = []
    for record in TRIVIAQA:
        answer: Any = record["Answer"]
        rows.append(
            {
                "question": record["Question"],
                "question_id": record["QuestionId"],
                "answer": {
                    "value": answer["Value"],
                    "aliases": answer["Aliases"],
                    "normalized_aliases": answer["NormalizedAliases"],
                },
            }
        )
    return rows


# The rows as the hub has them: MedMCQA counts from 0 there, lists of objects are objects of lists.
ROWS: dict[str, list[dict[str, Any]]] = {
    "arc_challenge": arc_rows("question"),
    "arc_easy": arc_rows("question"),
    "medmcqa": [record | {"cop": int(str(record["cop"])) - 1} for record in MEDMCQA],
    "nq_open": NQ_OPEN,
    "openbookqa": arc_rows("question_stem"),
    "popqa": [dict(zip(POPQA_COLUMNS, [int(row[0]), *row[1:]], strict=True)) for row in POPQA],
    "sciq": SCIQ,
    "squad": squad_rows(),
    "triviaqa": triviaqa_rows(),
    "webquestions": [
        {"url": record["url"], "question": record["utterance"], "answers": answers}
        for record, answers in zip(WEBQUESTIONS, [["Old Harbour", "Quay"], ["1912"]], strict=True)
    ],
}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the home directory."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    monkeypatch.setattr("datasets.config.HF_MODULES_CACHE", str(cache))


def stand_in(
    folder: Path, name: str, rows: list[dict[str, Any]], features: Features | None = None
) -> Hub:
    """A dataset on disk as the hub keeps it: Parquet files, and a card that names its configs."""
    config = SOURCES[name].hub.config or "default"
    split = SOURCES[name].hub.split
    Dataset.from_list(rows, features=features).to_parquet(str(folder / f"{split}-0.parquet"))
    files = [{"split": split, "path": f"{split}-*"}]
    card = json.dumps({"configs": [{"config_name": config, "data_files": files}]})
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    return Hub(str(folder), SOURCES[name].hub.config, split)


@pytest.mark.parametrize("name", NAMES)
def test_published_files_and_the_hub_say_the_same(name: str, tmp_path: Path) -> None:
    hub = stand_in(tmp_path, name, ROWS[name])
    reading = read_hub(name, hub)
    file, content = PUBLISHED[name]
    (tmp_path / file).write_bytes(content)
    assert said(reading) == said(read_files(name, [tmp_path / file])) == SAID[name]
    assert reading.left == ()


def test_each_source_names_its_dataset() -> None:
    assert {name: str(source.hub) for name, source in SOURCES.items()} == {
        "arc_challenge": "allenai/ai2_arc ARC-Challenge train",
        "arc_easy": "allenai/ai2_arc ARC-Easy train",
        "medmcqa": "openlifescienceai/medmcqa train",
        "nq_open": "google-research-datasets/nq_open train",
        "openbookqa": "allenai/openbookqa main train",
        "popqa": "akariasai/PopQA test",
        "sciq": "allenai/sciq train",
        "squad": "rajpurkar/squad train",
        "triviaqa": "mandarjoshi/trivia_qa rc.nocontext train",
        "webquestions": "Stanford/web_questions train",
    }


def test_ids_are_the_rows_own_or_their_number(tmp_path: Path) -> None:
    (tmp_path / "popqa").mkdir()
    (tmp_path / "nq").mkdir()
    popqa = read_hub("popqa", stand_in(tmp_path / "popqa", "popqa", ROWS["popqa"]))
    assert [candidate.id for candidate in popqa.candidates] == ["popqa:17", "popqa:18"]
    nq = read_hub("nq_open", stand_in(tmp_path / "nq", "nq_open", ROWS["nq_open"]))
    assert [candidate.id for candidate in nq.candidates] == ["nq_open:train:1", "nq_open:train:2"]


def test_medmcqa_counts_its_options_from_zero_on_the_hub(tmp_path: Path) -> None:
    texts = ("id", "question", "opa", "opb", "opc", "opd")
    rows = [
        {key: MEDMCQA[0][key] for key in texts} | {"id": str(cop), "cop": cop}
        for cop in (0, 1, 2, 3, -1)
    ]
    features = Features(
        {**dict.fromkeys(texts, TEXT), "cop": ClassLabel(names=["a", "b", "c", "d"])}
    )
    reading = read_hub("medmcqa", stand_in(tmp_path, "medmcqa", rows, features))
    assert [answers[0] for _, answers in said(reading)] == ["Humerus", "Femur", "Tibia", "Ulna"]
    # The hub's test split has no answers.
    assert reasons(reading) == [(f"{tmp_path} train row 5", "no answer key")]


def test_triviaqa_leaves_out_the_unknown_answers_of_the_test_split(tmp_path: Path) -> None:
    unknown = {"value": "<unk>", "aliases": [], "normalized_aliases": []}
    rows = [*ROWS["triviaqa"], ROWS["triviaqa"][0] | {"answer": unknown}]
    reading = read_hub("triviaqa", stand_in(tmp_path, "triviaqa", rows))
    assert said(reading) == SAID["triviaqa"]
    assert reasons(reading) == [(f"{tmp_path} rc.nocontext train row 2", "no answer")]


def test_squad_two_without_answers_is_left_out(tmp_path: Path) -> None:
    rows = [*ROWS["squad"], ROWS["squad"][0] | {"answers": {"text": [], "answer_start": []}}]
    features = Features(
        {
            **dict.fromkeys(("id", "title", "context", "question"), TEXT),
            "answers": {"text": List(TEXT), "answer_start": List(Value("int32"))},
        }
    )
    reading = read_hub("squad", stand_in(tmp_path, "squad", rows, features))
    assert said(reading) == SAID["squad"]
    assert reasons(reading) == [(f"{tmp_path} train row 3", "no answer")]


def test_choices_that_do_not_fit_their_labels_are_left_out(tmp_path: Path) -> None:
    uneven = ROWS["arc_easy"][0] | {"choices": {"text": ["a"], "label": ["A", "B"]}}
    reading = read_hub("arc_easy", stand_in(tmp_path, "arc_easy", [uneven]))
    assert [left.reason for left in reading.left] == ["as many labels as choices are needed"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_refused(name: str, tmp_path: Path) -> None:
    hub = stand_in(tmp_path, name, [{"title": "x"}])
    message = refusal(lambda: read_hub(name, hub), tmp_path)
    assert message.startswith(f"dataset {tmp_path} ")
    assert ' row 1: "' in message
    assert " is missing; " in message
    assert message.endswith("and give their folder with --data-root")


def test_a_dataset_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    hub = stand_in(tmp_path, "arc_easy", ROWS["arc_easy"])
    empty = tmp_path / "empty"
    empty.mkdir()
    calls: list[Callable[[], object]] = [
        lambda: read_hub("sciq"),  # offline, as every test is
        lambda: read_hub("sciq", Hub("nobody/nothing", None, "train")),
        lambda: read_hub("sciq", Hub(str(tmp_path / "gone"), None, "train")),
        lambda: read_hub("sciq", Hub(str(empty), None, "train")),
        lambda: read_hub("arc_easy", Hub(hub.path, "ARC-Hard", "train")),
        lambda: read_hub("arc_easy", Hub(hub.path, hub.config, "tran")),
    ]
    for call in calls:
        message = refusal(call, tmp_path)
        assert message.startswith("dataset ")
        assert "cannot be loaded (" in message
        assert "check its name and the network, or download the published files of " in message


READING = """
import time
from holdfast.core.errors import HoldfastError
from holdfast.builders.real_qa.sources import read_hub
began = time.monotonic()
try:
    read_hub("sciq")
except HoldfastError as error:
    print(error)
assert time.monotonic() - began < 10
"""


def test_a_hub_out_of_reach_is_soon_said_in_one_line(tmp_path: Path) -> None:
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")
    unreachable = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", READING],
        capture_output=True,
        text=True,
        env=os.environ | unreachable | dict.fromkeys(proxies, "") | {"HF_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "dataset allenai/sciq train: cannot be loaded (not in the hub's cache, and the hub does "
        "not answer); check its name and the network, or download the published files of sciq ("
    )
    assert done.stdout.count("\n") == 1


def test_a_damaged_dataset_is_refused(tmp_path: Path) -> None:
    hub = stand_in(tmp_path, "nq_open", ROWS["nq_open"])
    (tmp_path / "train-0.parquet").write_bytes(b"no parquet")
    assert "cannot be loaded (" in refusal(lambda: read_hub("nq_open", hub), tmp_path)


def test_an_unknown_source_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(HoldfastError, match="mean sciq"):
        read_hub("sci")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = builtins.__import__

    def without_datasets(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "datasets":
            raise ImportError(name)
        return known(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_datasets)
    message = refusal(lambda: read_hub("sciq"), tmp_path)
    assert message.endswith('pip install "holdfast[hub]"')
