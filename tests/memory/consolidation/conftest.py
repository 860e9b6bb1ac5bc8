"""The memory of two lessons, consolidated once, and what its one adapter came to."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.memory.batch import GATE, read_lesson
from holdfast.memory.consolidation import consolidate as module
from holdfast.memory.consolidation.consolidate import ConsolidationOutcome, consolidate
from holdfast.memory.consolidation.own_texts import OwnTextSettings
from holdfast.memory.consolidation.rehearsal import ConsolidationSettings
from holdfast.memory.memory import Memory
from holdfast.memory.record import read_record
from tests.made_once import made_once
from tests.memory.memories import MONDAY, TUESDAY

FACTS = [*MONDAY, *TUESDAY]
OWN_TEXTS = OwnTextSettings(short=24, named=4, chats=4, question=6, tokens=3, chat_tokens=4)
SETTINGS = ConsolidationSettings(
    start=0.0,
    rank=8,
    lr=2e-2,
    least=60,
    varied=0.5,
    corrupted=4,
    visits=1,
    weight=0.02,
    short=2,
    named=1,
    replaced=1,
    chats=1,
    own=OWN_TEXTS,
)


@dataclass(frozen=True)
class Done:
    """place: never to be written; state: of the adapter, which gave all facts."""

    place: Path
    outcome: ConsolidationOutcome
    state: Any


@pytest.fixture(scope="session")
def done(two_lessons: Path, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    learn = module.learn_adapter

    def learned(*arguments: Any) -> Any:
        state, given = learn(*arguments)
        assert given == [True] * len(FACTS)
        return state, given

    def make(folder: Path) -> None:
        place = shutil.copytree(two_lessons, folder / "m")
        outcome = consolidate(Memory(place), SETTINGS)
        (folder / "outcome.json").write_text(json.dumps(asdict(outcome)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        patch.setattr(module, "learn_adapter", learned)
        folder = made_once(tmp_path_factory, "consolidated", make)
    outcome = ConsolidationOutcome(**json.loads((folder / "outcome.json").read_text()))
    tensors, _ = read_lesson(folder / "m", read_record(folder / "m").lessons[0].file)
    tensors.pop(GATE)
    return Done(folder / "m", outcome, tensors)
