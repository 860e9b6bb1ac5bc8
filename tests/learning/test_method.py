"""Tags: the paper's, in any order, and what is refused."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
from torch import Tensor

from holdfast import allocation
from holdfast.allocation import ALLOCATIONS
from holdfast.anchors import ANCHORS, REFERENCE_POINTS, Anchor, Config, State, Step, register
from holdfast.core import plugins
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import MECHANISMS
from holdfast.learning.config import RunConfig
from holdfast.learning.method import Method, known_allocations, known_anchors, parse_method


def test_the_table_of_mechanisms_is_what_is_built() -> None:
    """Every mechanism with its class and the section of its settings, in the order of tags."""
    built = {**ANCHORS, **REFERENCE_POINTS, **ALLOCATIONS}
    assert list(built) == [mechanism.tag for mechanism in MECHANISMS]
    kinds = {"anchor": ANCHORS, "reference point": REFERENCE_POINTS, "allocation": ALLOCATIONS}
    for mechanism in MECHANISMS:
        assert mechanism.tag in kinds[mechanism.kind]
        settings = built[mechanism.tag].Config.model_fields
        assert bool(settings) == (mechanism.tag in RunConfig.model_fields)
        if settings:
            assert RunConfig.model_fields[mechanism.tag].annotation is built[mechanism.tag].Config
    for label in ("title", "short"):
        assert len({getattr(mechanism, label) for mechanism in MECHANISMS}) == len(MECHANISMS)


def test_every_composition_has_one_tag() -> None:
    """Written forwards and backwards, so that every name comes before and after every other."""
    tags = set()
    for rule in known_allocations():
        for size in range(len(known_anchors()) + 1):
            for anchors in combinations(known_anchors(), size):
                for names in ((*anchors, rule), (rule, *anchors[::-1])):
                    method = parse_method("_".join(names))
                    assert set(method.anchors) == set(anchors)
                    assert parse_method(method.tag) == method
                    tags.add(method.tag)
    assert len(tags) == 2 ** len(known_anchors()) * len(known_allocations())


def test_other_names() -> None:
    assert parse_method("ewc_merged").tag == "online_ewc_merge"
    assert parse_method("merge_stored") == Method(("stored",), "merge")
    assert parse_method("joint").tag == "joint"


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("si_reply", '"reply" is no mechanism; did you mean replay?'),
        ("vanilla_si", '"vanilla" is no mechanism'),
        ("vanila", '"vanila" is no mechanism; did you mean vanilla?'),
        ("si__merge", '"" is no mechanism'),
        ("si_si", "si is named twice"),
        ("ewc_online_ewc", "online_ewc is named twice"),
        ("merge_olora", "merge and olora are both allocation rules; choose one"),
        ("si_osrm_replay_shared", "osrm and shared are both allocation rules"),
        ("", "method is empty; write vanilla"),
        ("joint_kfac", "joint keeps examples, which makes it a reference point; name it alone"),
        ("replay_stored_merge", "stored keeps examples"),
        ("stored_joint", "stored keeps examples"),
    ],
)
def test_what_is_refused(tag: str, message: str) -> None:
    with pytest.raises(HoldfastError, match=re.escape(message)) as caught:
        parse_method(tag)
    assert "\n" not in str(caught.value)


class Entry:
    """An entry point of another package."""

    dist = None

    def __init__(self, name: str, kind: Any) -> None:
        self.name, self.value, self._kind = name, f"elsewhere:{name}", kind

    def load(self) -> Any:
        return self._kind


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {"holdfast.anchors": [], "holdfast.allocations": []}
    monkeypatch.setattr(plugins, "installed", entries.__getitem__)
    return entries


def test_anchors_of_other_packages(installed: dict[str, list[Entry]]) -> None:
    installed["holdfast.anchors"].append(Entry("tether", known_anchors()["si"]))
    assert parse_method("merge_tether_si").tag == "si_tether_merge"
    installed["holdfast.anchors"].append(Entry("other_replay", known_anchors()["replay"]))
    with pytest.raises(HoldfastError, match="other_replay and replay are both data anchors"):
        parse_method("other_replay_replay")


def test_a_package_that_cannot_be_loaded_is_named(installed: dict[str, list[Entry]]) -> None:
    class Broken(Entry):
        def load(self) -> Any:
            raise SyntaxError("invalid syntax")

    installed["holdfast.anchors"].append(Broken("tether", None))
    with pytest.raises(HoldfastError, match=r"elsewhere:tether cannot be loaded \(SyntaxError: "):
        RunConfig.of({"method": "si_tether"})
    # It stops nothing else.
    config = RunConfig.of({"method": "si_olora"})
    assert [type(anchor) for anchor in config.anchors()] == [known_anchors()["si"]]
    assert config.numbers()


def test_a_package_may_not_hide_ours(installed: dict[str, list[Entry]]) -> None:
    installed["holdfast.allocations"].append(Entry("merge", object))
    with pytest.raises(HoldfastError, match="elsewhere:merge hides one of holdfast's own"):
        known_allocations()


class Held(Anchor):
    """An anchor of a notebook's cell."""

    class Config(Config):
        strength: float = 0.5

    def loss(self, state: State, step: Step) -> Tensor:
        return step.zero()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_registered", {})


@pytest.mark.usefixtures("notebook")
def test_an_anchor_of_this_process_is_as_one_of_a_package() -> None:
    register("held", Held)
    values = {"method": "merge_held", "held": {"strength": 0.25}}
    config = RunConfig.of(values)
    assert config.method == "held_merge"
    (anchor,) = config.anchors()
    assert type(anchor) is Held and anchor.strength({}) == 0.25
    # Its settings are part of what identifies a run.
    assert config.numbers() != RunConfig.of(values, ["held.strength=0.5"]).numbers()
    # A method that lacks it takes them without effect, but not a misspelled one.
    idle = RunConfig.of({**values, "method": "merge"})
    assert idle.numbers() == RunConfig.of({"method": "merge"}).numbers()
    with pytest.raises(HoldfastError, match=r"unknown key power"):
        RunConfig.of({"method": "merge", "held": {"power": 1}})
    with pytest.raises(HoldfastError, match=r"plugins\.si: there is no such plug-in"):
        RunConfig.of({"method": "si", "plugins": {"si": {"strength": 1.0}}})
    again = type("Held", (Held,), {})  # the cell run again
    register("held", again)
    assert type(*RunConfig.of(values).anchors()) is again


@pytest.mark.usefixtures("notebook")
def test_what_cannot_be_registered(installed: dict[str, list[Entry]]) -> None:
    installed["holdfast.anchors"].append(Entry("tether", Held))
    allocation.register("light", ALLOCATIONS["merge"])
    for name in ("tether", "light", "ewc", "vanilla", "stored"):
        with pytest.raises(HoldfastError, match=f'"{name}" is the name of a mechanism already'):
            register(name, Held)
    for name in ("Held", "a__b", "_a", "a_", "", "a b"):
        with pytest.raises(HoldfastError, match="cannot stand in a method's tag"):
            register(name, Held)
    with pytest.raises(HoldfastError, match="is no Anchor; give a class that inherits it"):
        register("held", ALLOCATIONS["merge"])  # type: ignore[arg-type]
    assert parse_method("light").allocation == "light"
