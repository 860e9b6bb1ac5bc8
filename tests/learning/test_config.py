"""The configuration of a trajectory: its identity, and what is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.anchors.replay import GenerativeReplay
from holdfast.core import plugins
from holdfast.core.config import Config, differences, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.identity import Identity
from holdfast.learning.method import anchor_kinds, known_allocations
from holdfast.learning.trajectory import Trajectory
from holdfast.streams import Item, Stream, Task
from tests.refused import line_of

SECTION = {
    "si": "si.strength=3",
    "online_ewc": "online_ewc.decay=0.5",
    "sd": "sd.temperature=2",
    "replay": "sampling.top_p=0.8",
    "kfac": "kfac.strength=5",
    "pairs": "pairs.positions=5",
    "general": "general.texts=5",
    "stored": "stored.items=5",
    "olora": "olora.overlap=0.1",
    "osrm": "osrm.sequences=3",
}
OF: Any = RunConfig.of
RUN: Any = Trajectory
EVERYTHING = ("si", "online_ewc", "sd", "replay")


def changed(method: str, override: str) -> list[str]:
    """The numbers that an override changes."""
    before = RunConfig.of({"method": method})
    after = RunConfig.of({"method": method}, [override])
    assert before != after
    return differences(before.numbers(), after.numbers())


def without(mechanism: str) -> str:
    return "_".join(name for name in EVERYTHING if name != mechanism)


@pytest.mark.parametrize(
    ("method", "override", "counts"),
    [
        # Settings count when their mechanism is used, and for no other one.
        *((mechanism, override, True) for mechanism, override in SECTION.items()),
        *((without(mechanism), override, False) for mechanism, override in SECTION.items()),
        # How text is sampled counts for what reads it.
        *((name, "sampling.top_p=0.8", True) for name in ("replay", "kfac", "pairs", "general")),
        ("si", "sampling.top_p=0.8", False),
        # What pairs reads of the curvature; left out at its defaults, as runs of before had it.
        ("pairs", "curvature.temperature=2", True),
        ("si", "curvature.temperature=2", False),
        *(
            ("vanilla", override, True)
            for override in (
                "seed=7", "lora.rank=4", "lora.merge_precision=model", "lora.targets=[q_proj]",
                "lora.layers=[1]", "optim.lr=0.1", "optim.accumulation=2", "optim.cooldown=2",
                "template.append_eos=true", "evaluation.rows=horizon", "evaluation.match=exact",
                "evaluation.max_new_tokens=25", "backbone.precision=float64",
                "backbone.deterministic=true", "backbone.attention=eager",
            )
        ),
        # The stream and the weights have fingerprints of their own; the rest is speed and disk.
        *(
            ("_".join(EVERYTHING), override, False)
            for override in (
                "stream.tasks=7", "backbone.name=elsewhere", "backbone.device=cpu",
                "backbone.checkpointing=true", "backbone.revision=v1", "sampling.batch=3",
                "keep.factors=true", "keep.snapshot_every=2", "sampling.keep=true",
            )
        ),
    ],
)  # fmt: skip
def test_what_changes_the_numbers(method: str, override: str, counts: bool) -> None:
    lines = changed(method, override)
    name = override.partition("=")[0].rpartition(".")[2]
    assert (len(lines), any(name in line for line in lines)) == (
        (1, True) if counts else (0, False)
    )


def test_what_earlier_versions_had_not_is_left_out_at_its_default() -> None:
    numbers = RunConfig.of({"method": "pairs"}).numbers()
    assert "curvature" not in numbers
    assert "cooldown" not in numbers["optim"] and "layers" not in numbers["lora"]


def test_a_deterministic_run_is_sampled_in_one_batch_size() -> None:
    """Products of other shapes round otherwise."""
    values = {"method": "replay", "backbone": {"deterministic": True}}
    large, small = (
        RunConfig.of(values | {"sampling": {"batch": batch}}).numbers() for batch in (64, 3)
    )
    assert differences(large, small) == ["sampling.batch: 64 -> 3"]


def test_every_mechanism_with_settings_has_a_section() -> None:
    """Shared and merged have none; every other one is in the table above."""
    assert set(SECTION) == {*anchor_kinds(), *known_allocations()} - {"shared", "merge", "joint"}


class Rehearsal(GenerativeReplay):
    """A data anchor as another package brings it."""

    class Config(Config):
        weight: float = 0.5


def test_what_an_installed_mechanism_works_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(name="rehearsal", value="elsewhere", load=lambda: Rehearsal)
    monkeypatch.setattr(
        plugins, "installed", lambda group: (entry,) if group.endswith("anchors") else ()
    )
    assert [line.split(":")[0] for line in changed("rehearsal", "sampling.samples=9")] == [
        "sampling.samples"
    ]
    assert changed("rehearsal", "plugins.rehearsal.weight=0.25") != []
    # However its settings are written, or if they are not.
    for given in ("plugins.rehearsal.weight=0.5", "plugins.rehearsal={}", "rehearsal.weight=0.5"):
        assert changed("rehearsal", given) == []
    # A section of its own name, as the mechanisms of this package have.
    config = RunConfig.of({"method": "rehearsal", "rehearsal": {"weight": 0.25}})
    assert config.plugins == {"rehearsal": {"weight": 0.25}}
    with pytest.raises(HoldfastError, match="unknown key rehearsals"):
        RunConfig.of({"method": "rehearsal", "rehearsals": {"weight": 0.25}})
    integer_config, float_config = (
        RunConfig.of({"method": "rehearsal", "plugins": {"rehearsal": {"weight": weight}}})
        for weight in (1, 1.0)
    )
    assert sha256_of(integer_config.numbers()) == sha256_of(float_config.numbers())


def test_aliases_and_orders_have_one_identity() -> None:
    alias, default = RunConfig.of({"method": "merged_replay_si"}), RunConfig.of({})
    assert alias.method == "si_replay_merge"
    assert alias.numbers() == RunConfig.of({"method": "si_replay_merge"}).numbers()
    assert alias.numbers() != default.numbers()


def test_mechanisms_get_their_sections() -> None:
    values = {
        "method": "_".join((*EVERYTHING, "olora")),
        "si": {"strength": 3},
        "replay": {"weight": 0.75},
    }
    config = RunConfig.of({**values, "olora": {"overlap": 0.1}})
    assert [anchor.strength({}) for anchor in config.anchors()] == [3, 1000, 1, 0.75]
    rule: Any = config.allocation()
    assert rule.config.overlap == 0.1
    assert config.anchors()[0] is not config.anchors()[0]


def test_the_defaults_are_the_papers() -> None:
    """tab:implementation-hparams."""
    config = RunConfig()
    assert (config.optim.epochs, config.optim.batch_size, config.optim.accumulation) == (10, 8, 1)
    assert (config.optim.lr, config.optim.weight_decay) == (5e-4, 0.01)
    assert (config.optim.clip, config.optim.warmup) == (1.0, 0.05)
    assert (config.lora.rank, config.lora.alpha, config.lora.dropout) == (32, 64, 0.05)
    assert config.template.max_length == config.sampling.max_new_tokens == 384
    assert (config.sampling.samples, config.sampling.top_p, config.replay.temperature) == (
        300,
        0.9,
        2.0,
    )
    assert (config.sampling.temperature, config.sampling.top_k) == (1.5, None)
    assert (config.sd.strength, config.sd.temperature) == (1.0, 5.0)
    assert config.sd.divergence == config.replay.divergence == "forward_kl"
    assert (config.si.strength, config.si.damping) == (1.0, 0.1)
    ewc = config.online_ewc
    assert (ewc.strength, ewc.decay, ewc.sequences, ewc.normalise) == (1000.0, 1.0, 1000, True)
    assert (config.olora.overlap, config.olora.factor_norm) == (0.5, 0.0)
    assert config.osrm.sequences == 64


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optim.learning_rate=1", "unknown key optim.learning_rate; did you mean optim.lr?"),
        ("gradient_checkpointing=true", "; did you mean backbone.checkpointing?"),
        ("lora_alpha=8", "unknown key lora_alpha; did you mean lora.alpha?"),
        ("weight_decay=0.1", "unknown key weight_decay; did you mean optim.weight_decay?"),
        ("max_new_tokens=8", "mean sampling.max_new_tokens or evaluation.max_new_tokens?"),
        ("lora=true", "lora = true: is a section of settings; known: lora.rank, lora.alpha"),
        ("methud=si", "unknown key methud; did you mean method?"),
        ("optim.lr=0", "optim.lr = 0: "),
        ("optim.lr=nan", "optim.lr = NaN: "),
        ("optim.lr=fast", 'optim.lr = "fast": '),
        ("method=si_bogus", '"bogus" is no mechanism'),
        ("lora.rank", '"lora.rank" is no KEY=VALUE'),
        ("seed.lr=1", "seed"),
        ("lora.layers=[]", "lora.layers"),
        ("stream.name=[a]", 'stream.name = ["a"]: '),
        ("stream.name={a: b}", 'stream.name = {"a": "b"}: '),
    ],
)
def test_what_is_refused_in_one_line(override: str, message: str) -> None:
    assert message in line_of(RunConfig.of, {"seed": 1}, [override])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"method": "replay", "replay": {"loss": "cross_entropy", "vocabulary": 9}},
            "one of the two",
        ),
        ({"method": "si", "plugins": {"tether": {}}}, "there is no such plug-in"),
    ],
)
def test_nonsense_combinations(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HoldfastError, match=message):
        RunConfig.of(values)
    # The same settings are idle, and harmless, where the method does not use them.
    if "plugins" not in values:
        RunConfig.of({**values, "method": "vanilla"})


def test_a_stream_that_is_no_section_is_refused_with_and_without_a_name() -> None:
    for overrides in ([], ["stream.name=facts.jsonl"]):
        with pytest.raises(HoldfastError, match="stream"):
            RunConfig.of({"stream": "symbol_qa"}, overrides)
    with pytest.raises(HoldfastError, match=r"stream\.name = \["):
        RunConfig.of({"stream": {"name": ["symbol_qa"]}}, ["seed=1"])
    with pytest.raises(HoldfastError, match=r"stream\.tasks"):
        RunConfig.of({"stream": {"tasks": "all"}}, ["stream.seed=1"])


def test_a_stored_stream_may_be_named_by_a_number() -> None:
    config = RunConfig.of({"stream": {"name": "symbol_qa", "tasks": 10}}, ["stream.name=2024"])
    assert (config.stream.name, config.stream.tasks) == ("2024", None)


def test_a_run_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path) -> None:
    identity = Identity(tmp_path, RunConfig.of({}), exact_case=True)
    stream = Stream((Task("1", (Item("a?", "b"),)),), "x")
    identity.write(stream, "0" * 64)
    values = json.loads((tmp_path / "config.json").read_text())
    identity.check("0" * 64)
    for file_format, message in ((None, "commit 31412b6 reads it"), (3, "take a newer")):
        (tmp_path / "config.json").write_text(json.dumps({**values, "format": file_format}))
        with pytest.raises(HoldfastError, match=message) as refused:
            identity.check("0" * 64)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda place: OF("lasting"), "'lasting' is no configuration; give nested"),
        (lambda place: OF({}, {"seed": 3}), "is no list of overrides; give texts"),
        (lambda place: OF({}, "seed=3"), "'seed=3' is no list of overrides"),
        (lambda place: RUN("lasting", place), "is no configuration; give a RunConfig"),
        (lambda place: RUN(RunConfig(), place, stream=[("Q", "a")]), "give what load_stream"),
        (lambda place: RUN(RunConfig(), place).advance(1.5), "horizon 1.5 is not within"),
        (lambda place: RUN(RunConfig(), place).advance("1"), "horizon 1 is not within"),
    ],
)
def test_arguments_of_another_type_are_told(
    made: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(HoldfastError, match=message):
        made(tmp_path / "run")
