"""The ten sources from the hub, by stand-ins on disk that the real `datasets` library loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from experiments.paper.real_qa.records import read_files, read_hub
from experiments.paper.real_qa.sources import SOURCES

from .invented import (
    MEDMCQA,
    NAMES,
    NQ_OPEN,
    PAIRS,
    POPQA,
    POPQA_COLUMNS,
    PUBLISHED,
    SCIQ,
    SQUAD_QUESTIONS,
    TRAIN_ARC,
    TRIVIAQA,
    WEBQUESTIONS,
    pairs,
    reasons,
    refusal,
)

TEXT = Value("string")


def columns(objects: Any, *keys: str) -> dict[str, list[Any]]:
    """A list of objects as an object of lists."""
    return {key: [each[key] for each in objects] for key in keys}


def arc_rows(stem: str) -> list[dict[str, Any]]:
    rows = []
    for record in TRAIN_ARC:
        question = record["question"]
        choices = columns(question["choices"], "text", "label")
        asked = {"id": record["id"], stem: question["stem"], "choices": choices}
        rows.append(asked | {"answerKey": record["answerKey"]})
    return rows


def squad_row(record: dict[str, Any]) -> dict[str, Any]:
    answers = columns(record["answers"], "text", "answer_start")
    return record | {"title": "Ula", "context": "On it.", "answers": answers}


def triviaqa_row(record: dict[str, Any]) -> dict[str, Any]:
    keys = {"value": "Value", "aliases": "Aliases", "normalized_aliases": "NormalizedAliases"}
    answer = {ours: record["Answer"][theirs] for ours, theirs in keys.items()}
    return {"question": record["Question"], "question_id": record["QuestionId"], "answer": answer}


# The rows as the hub has them: MedMCQA counts from 0 there, lists of objects are objects of lists.
ROWS: dict[str, list[dict[str, Any]]] = {
    "arc_challenge": arc_rows("question"),
    "arc_easy": arc_rows("question"),
    "medmcqa": [record | {"cop": int(str(record["cop"])) - 1} for record in MEDMCQA],
    "nq_open": NQ_OPEN,
    "openbookqa": arc_rows("question_stem"),
    "popqa": [dict(zip(POPQA_COLUMNS, [int(row[0]), *row[1:]], strict=True)) for row in POPQA],
    "sciq": SCIQ,
    "squad": list(map(squad_row, SQUAD_QUESTIONS)),
    "triviaqa": list(map(triviaqa_row, TRIVIAQA)),
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
) -> tuple[str, str | None, str]:
    """A dataset on disk as the hub keeps it: Parquet files, and a card that names its configs."""
    _, named, split = SOURCES[name].hub
    config = named or "default"
    Dataset.from_list(rows, features=features).to_parquet(str(folder / f"{split}-0.parquet"))
    files = [{"split": split, "path": f"{split}-*"}]
    card = json.dumps({"configs": [{"config_name": config, "data_files": files}]})
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    return str(folder), named, split


@pytest.mark.parametrize("name", NAMES)
def test_published_files_and_the_hub_say_the_same(name: str, tmp_path: Path) -> None:
    hub = stand_in(tmp_path, name, ROWS[name])
    reading = read_hub(name, hub)
    file, content = PUBLISHED[name]
    (tmp_path / file).write_bytes(content)
    assert pairs(reading) == pairs(read_files(name, [tmp_path / file])) == PAIRS[name]
    assert reading.left == ()


def test_medmcqa_counts_its_options_from_zero_on_the_hub(tmp_path: Path) -> None:
    texts = dict.fromkeys(("id", "question", "opa", "opb", "opc", "opd"), TEXT)
    first = {key: MEDMCQA[0][key] for key in texts}
    rows = [first | {"id": str(cop), "cop": cop} for cop in (0, 1, 2, 3, -1)]
    features = Features({**texts, "cop": ClassLabel(names=["a", "b", "c", "d"])})
    reading = read_hub("medmcqa", stand_in(tmp_path, "medmcqa", rows, features))
    assert [answers[0] for _, answers in pairs(reading)] == ["Humerus", "Femur", "Tibia", "Ulna"]
    # The hub's test split has no answers.
    assert reasons(reading) == [(f"{tmp_path.name} train row 5", "no answer key")]


def test_triviaqa_leaves_out_the_unknown_answers_of_the_test_split(tmp_path: Path) -> None:
    unknown = {"value": "<unk>", "aliases": [], "normalized_aliases": []}
    rows = [*ROWS["triviaqa"], ROWS["triviaqa"][0] | {"answer": unknown}]
    reading = read_hub("triviaqa", stand_in(tmp_path, "triviaqa", rows))
    assert pairs(reading) == PAIRS["triviaqa"]
    assert reasons(reading) == [(f"{tmp_path.name} rc.nocontext train row 2", "no answer")]


def test_a_dataset_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    hub = stand_in(tmp_path, "arc_easy", ROWS["arc_easy"])
    empty = tmp_path / "empty"
    empty.mkdir()
    calls: list[Callable[[], object]] = [
        lambda: read_hub("sciq"),  # offline, as every test is
        lambda: read_hub("sciq", ("nobody/nothing", None, "train")),
        lambda: read_hub("sciq", (str(tmp_path / "gone"), None, "train")),
        lambda: read_hub("sciq", (str(empty), None, "train")),
        lambda: read_hub("arc_easy", (hub[0], "ARC-Hard", "train")),
        lambda: read_hub("arc_easy", (hub[0], hub[1], "tran")),
    ]
    for call in calls:
        message = refusal(call, tmp_path)
        assert message.startswith("dataset ")
        assert "cannot be loaded (" in message
        assert "check its name and the network, or download the published files of " in message
