"""The doctor names what is missing with the line that installs it, and fails only for that."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from packaging.specifiers import SpecifierSet

from holdfast.cli import doctor as verb
from holdfast.core import plugins
from holdfast.model.cache import write_manifest


@pytest.fixture
def requirements(monkeypatch):
    """Let holdfast require other things than it does."""

    def arrange(*texts: str) -> None:
        monkeypatch.setattr(verb, "requires", lambda name: list(texts))

    return arrange


def test_what_is_required_and_what_is_extra_comes_from_the_metadata(requirements):
    requirements(
        "torch>=2.11",
        "nothing>=1; sys_platform == 'no such system'",
        "peft>=0.18; extra == 'peft'",
        "holdfast[peft]; extra == 'dev'",
        "ruff>=0.14; extra == 'dev'",
        "rough; sys_platform == 'no such system' and extra == 'dev'",
    )
    required, extras = verb._requirements()
    assert [(one.name, one.specifier) for one in required] == [("torch", SpecifierSet(">=2.11"))]
    assert {extra: [one.name for one in members] for extra, members in extras.items()} == {
        "peft": ["peft"],
        "dev": ["ruff"],
    }


def test_a_healthy_machine_and_what_others_add(holdfast, monkeypatch):
    """A plug-in that cannot be loaded is told, and harms nothing else."""
    home = "holdfast.anchors.sd:SelfDistillation"
    entries = [
        EntryPoint(*one, plugins.ANCHORS) for one in (("copy", home), ("gone", "no_package:Gone"))
    ]
    monkeypatch.setattr(
        plugins, "installed", lambda group: entries if group == plugins.ANCHORS else []
    )
    outcome = holdfast("doctor")
    assert outcome.status == 0, outcome.err
    lines = {line.split()[0]: line for line in outcome.out.splitlines()}
    for what in (
        "holdfast",
        "torch",
        "[quantization]",
        "processor",
        "embedded",
        "bfloat16",
        "attention",
        "generation",
    ):
        assert what in lines
    assert "M parameters" in lines["embedded"]
    assert lines["copy"].endswith(f"holdfast.anchors, {home}")
    assert "BROKEN: entry point holdfast.anchors:gone of no_package:Gone cannot" in lines["gone"]


def test_whether_the_small_chat_model_is_here(holdfast, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    said = "not here; holdfast fetch smollm2 (SmolLM2-135M-Instruct, 93 MB, Apache-2.0)"
    assert f"smollm2          {said}" in holdfast("doctor").out.splitlines()
    place = tmp_path / "models" / "smollm2"
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    write_manifest(place)
    assert f"smollm2          {place}" in holdfast("doctor").out.splitlines()
    (place / "holdfast.json").write_text('{"format": 99, "files": {}}')
    assert f"BROKEN: {place}: is of format 99" in holdfast("doctor").out


def test_what_bfloat16_is_worth_on_a_processor(monkeypatch):
    monkeypatch.setattr("holdfast.backbone.load.bfloat16_time", lambda: 0.512)
    said = verb._bfloat16_on_the_processor()
    assert said.startswith("products take 0.51 of float32's time on this processor")
    assert "backbone.precision=fastest" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no-such-package>=1.5", "MISSING; pip install 'no-such-package>=1.5'"),
        ("numpy>=999", "is too old or too new; pip install 'numpy>=999'"),
    ],
)
def test_a_broken_requirement_fails_and_says_what_mends_it(text, said, requirements, holdfast):
    requirements("pydantic", text)
    outcome = holdfast("doctor")
    assert outcome.status == 1
    assert said in outcome.out


def test_a_missing_extra_is_named_and_harms_nothing(requirements, holdfast):
    requirements("no-such-package>=1; extra == 'shiny'")
    outcome = holdfast("doctor")
    assert outcome.status == 0
    assert "[shiny]" in outcome.out
    assert "pip install 'no-such-package>=1'" in outcome.out


def test_a_broken_embedded_backbone_fails(monkeypatch, holdfast):
    from holdfast.core.errors import HoldfastError

    def broken() -> None:
        raise HoldfastError("the weights are gone")

    monkeypatch.setattr("holdfast.backbone.load.load_backbone", broken)
    outcome = holdfast("doctor")
    assert outcome.status == 1
    assert "BROKEN: the weights are gone" in outcome.out
