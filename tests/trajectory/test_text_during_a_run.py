"""Text is measured while a run learns, and the run does not notice."""

from __future__ import annotations

import json
import shutil

import pytest

from holdfast import RunConfig, Trajectory
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import bits_per_byte, everyday_passages, lengths
from holdfast.recipes import recipe
from holdfast.results import RunRecord, read_capability
from holdfast.studies.executor import Cell
from tests.trajectory.outcome import result_of

METHOD = "si_sd_replay_merge"
TEXT = {"capability": ["text"], "capability_every": 2}

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def measured(config, tmp_path_factory):
    place = tmp_path_factory.mktemp("measured") / "run"
    Trajectory(config(METHOD, evaluation=TEXT), place).advance(3)
    return place


def measured_at(place):
    return {row.after_task: row.bits_per_byte for row in read_capability(place)}


def test_every_second_boundary_the_horizon_and_the_beginning(measured):
    assert sorted(measured_at(measured)) == [0, 2, 3]
    values = measured_at(measured)
    assert len(set(values.values())) == 3  # what is learned shows
    events = {event["task"]: event for event in RunRecord.open(measured).events()}
    assert events[1]["text_bits_per_byte_before"] == values[0]
    assert [events[task].get("text_bits_per_byte") for task in (1, 2, 3)] == [
        None,
        values[2],
        values[3],
    ]
    assert events[2]["seconds"]["capability"] > 0 and "capability" in events[1]["seconds"]


def test_it_is_the_number_of_the_model_that_it_is_said_of(config, measured, backbone_directory):
    from holdfast.model.backbone import Backbone
    from holdfast.model.load import load_backbone

    texts = [passage.text for passage in everyday_passages()]
    learner = Trajectory(config(METHOD, evaluation=TEXT), measured).learner()
    values = measured_at(measured)
    assert bits_per_byte(lengths(learner.backbone, texts)) == pytest.approx(values[3], rel=1e-6)
    plain = load_backbone(Backbone.Config(name=str(backbone_directory)))
    assert bits_per_byte(lengths(plain, texts)) == pytest.approx(values[0], rel=1e-6)


@pytest.mark.parametrize("rows", ["every", "horizon"])
def test_no_number_of_the_run_changes(config, tmp_path, rows):
    for name, more in {"with": {**TEXT, "capability_every": 1}, "without": {}}.items():
        run = Trajectory(config(METHOD, evaluation={"rows": rows, **more}), tmp_path / name)
        run.advance(2)
        run.advance(3)  # in two goes, so that what is restored is compared as well
    assert result_of(tmp_path / "with") == result_of(tmp_path / "without")
    assert not (tmp_path / "without" / "capability").exists()


def test_a_run_may_begin_or_cease_to_measure(config, measured, tmp_path):
    record = json.loads((measured / "config.json").read_text())
    place = shutil.copytree(measured, tmp_path / "run")
    Trajectory(config(METHOD), place).advance(4)
    assert sorted(measured_at(place)) == [0, 2, 3]
    after = json.loads((place / "config.json").read_text())
    assert (after["identity"], after["numbers"]) == (record["identity"], record["numbers"])


def test_what_is_measured_besides_is_no_part_of_the_identity():
    plain = RunConfig.of(recipe("full_stack"), ["seed=41"])
    asked = RunConfig.of(recipe("full_stack"), ["seed=41", "evaluation.capability=[text]"])
    assert asked.evaluation.capability == ("text",)
    assert sha256_of(asked.numbers()) == sha256_of(plain.numbers())
    assert Cell("full", asked, 1).key == Cell("full", plain, 1).key
    assert RunConfig.of(asked.model_dump(mode="json")) == asked


def test_what_cannot_be_measured_while_learning_is_refused(config):
    with pytest.raises(HoldfastError, match=r"evaluation\.capability"):
        config(METHOD, evaluation={"capability": ["gsm8k"]})
    with pytest.raises(HoldfastError, match=r"evaluation\.capability_every"):
        config(METHOD, evaluation={"capability": ["text"], "capability_every": 0})
