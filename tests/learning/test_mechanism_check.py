"""`holdfast check-plugin` on mechanisms that keep the contract, and on some that do not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors import Anchor, State, Step, TaskEnd, Tree
from holdfast.core import plugins
from holdfast.core.config import Config
from tests.cli.conftest import holdfast

__all__ = ["holdfast"]
KEPT = ["kept    stopped between", "kept    without a past", "kept    with a past"]


class Tether(Anchor):
    """Keeps its contract."""

    class Config(Config):
        strength: float = Field(0.1, ge=0)

    def loss(self, state: State, step: Step) -> Tensor:
        if not state:
            return step.zero()
        return quadratic(step.parameters, state["reference"])

    def end(self, state: State, end: TaskEnd) -> State:
        return {"reference": {name: tensor.clone() for name, tensor in end.parameters.items()}}


def quadratic(parameters: Tree, reference: Tree) -> Tensor:
    terms = [(at - reference[name]).square().sum() for name, at in parameters.items()]
    return sum(terms[1:], terms[0])


class Forgetful(Tether):
    def pack(self, state: State) -> dict[str, Tensor]:
        return {}


class Miscounting(Tether):
    """What it forgets has not shown in what it learned."""

    tasks = 0

    def end(self, state: State, end: TaskEnd) -> State:
        self.tasks += 1  # of an instance, not of the state
        return {**super().end(state, end), "tasks": torch.tensor(self.tasks)}


class Hasty(Tether):
    def loss(self, state: State, step: Step) -> Tensor:
        return quadratic(step.parameters, dict.fromkeys(step.parameters, 0.0))


class Idle(Tether):
    def loss(self, state: State, step: Step) -> Tensor:
        return super().loss(state, step).detach()


class Torn(Tether):
    def end(self, state: State, end: TaskEnd) -> State:
        torch.ones(2) + torch.ones(3)


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plug(kind: type[Anchor]) -> str:
        entry = SimpleNamespace(
            name="strange", value="strange:It", module=__name__, load=lambda: kind
        )
        entries = {"holdfast.anchors": (entry,)}
        monkeypatch.setattr(plugins, "installed", lambda group: entries.get(group, ()))
        return "strange"

    return plug


@pytest.fixture
def small(backbone_directory: Path) -> list[str]:
    """Settings of a check that takes a fraction of a second."""
    changes = "optim.epochs=2 optim.lr=0.03 sampling.max_new_tokens=4"
    return [f"backbone.name={backbone_directory}", *changes.split()]


@pytest.mark.usefixtures("quick")
def test_on_the_embedded_model_it_is_kept(holdfast: Any, plugged: Any) -> None:
    done = holdfast("check-plugin", plugged(Tether))
    assert (done.status, done.err) == (0, ""), done.out
    lines = done.out.splitlines()
    assert [line[: len(kept)] for line, kept in zip(lines, KEPT, strict=True)] == KEPT


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("kind", "broken"), [(Forgetful, 0), (Miscounting, 0), (Hasty, 1), (Idle, 2)]
)
def test_what_is_broken_is_named(
    holdfast: Any, plugged: Any, small: list[str], kind: type[Anchor], broken: int
) -> None:
    done = holdfast("check-plugin", plugged(kind), *small)
    lines = done.out.splitlines()
    expected = [
        line.replace("kept  ", "BROKEN") if place == broken else line
        for place, line in enumerate(KEPT)
    ]
    assert len(lines) == 3, done.err
    assert [line[: len(KEPT[i])] for i, line in enumerate(lines)] == expected
    assert done.status == 1


@pytest.mark.usefixtures("quick")
def test_an_error_names_package_file_and_line(
    holdfast: Any, plugged: Any, small: list[str]
) -> None:
    done = holdfast("check-plugin", plugged(Torn), *small)
    assert done.status == 1
    assert f"the fault of the plug-in tests ({__file__} line " in done.err


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["replay", "general", "merge"])
def test_our_own_keep_it(holdfast: Any, small: list[str], name: str) -> None:
    done = holdfast("check-plugin", name, "general.texts=8", *small)
    assert (done.status, done.err) == (0, ""), done.out
    assert "BROKEN" not in done.out


def test_no_such_mechanism(holdfast: Any) -> None:
    done = holdfast("check-plugin", "tetherr")
    assert done.status == 2 and "is no mechanism" in done.err
