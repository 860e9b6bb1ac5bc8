"""Who leaves behind what was remembered of a model's tasks is told, once, and goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from peft import LoraConfig

from tests.integrations.test_hf_trainer import method, model_of, trainer_of
from tests.integrations.test_unusual import anchored_model, learn, plain_model
from tests.tiny import short_sequences

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def lost(caplog: pytest.LogCaptureFixture) -> int:
    """How many warnings of a past that nothing holds there were since."""
    count = sum("has learned with anchors before" in line for line in caplog.messages)
    caplog.clear()
    return count


def test_a_trainer_that_is_not_given_the_past_is_told(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It goes on, since a fresh start may be meant."""
    caplog.set_level(logging.WARNING)
    first = trainer_of(model_of(), tmp_path, method("si"), 1)
    first.train()
    second = trainer_of(first.model, tmp_path, first.anchored, 2)
    second.train()
    assert lost(caplog) == 0
    forgetful = trainer_of(first.model, tmp_path, method("si"), 3)
    forgetful.train()
    assert "(tasks: 2)" in caplog.text and "anchored=trainer.anchored" in caplog.text
    assert lost(caplog) == 1 and forgetful.anchored.completed == 1


def test_who_brings_the_past_along_is_not_warned(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING)
    anchored = anchored_model("si")
    learn(anchored, 1)
    anchored.end()
    anchored.save(tmp_path)
    model = anchored.reader.model
    again = anchored_model("si", model=model)
    again.load(tmp_path)
    again.begin(short_sequences(2, seed=2))
    model.add_adapter("second", LoraConfig(r=2, target_modules="all-linear"))
    model.set_adapter("second")
    anchored_model("si", model=model).begin(short_sequences(2, seed=2))
    plain = anchored_model(model=plain_model())  # without anchors nothing is lost
    learn(plain, 1)
    plain.end()
    anchored_model("si", model=plain.reader.model).begin(short_sequences(2, seed=2))
    assert lost(caplog) == 0
    loaded = anchored_model("si")
    loaded.load(tmp_path)  # and what was loaded is a past, too
    anchored_model("si", model=loaded.reader.model).begin(short_sequences(2, seed=2))
    assert lost(caplog) == 1
