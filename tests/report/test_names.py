"""A method has one name and one look in every figure."""

from __future__ import annotations

import pytest

from experiments.paper.analysis.factorial import compositions
from holdfast.report.names import dataset_name, datasets_in_order, looks, mechanisms, method_name


@pytest.mark.parametrize(
    ("method", "anchors", "rule", "name"),
    [
        ("vanilla", (), "shared", "naive"),
        ("si", ("si",), "shared", "SI"),
        ("merge", (), "merge", "M"),
        ("si_sd_replay_merge", ("si", "sd", "replay"), "merge", "SI + SD + R + M"),
        ("si_replay_olora", ("si", "replay"), "olora", "SI + R + O-LoRA"),
        ("online_ewc_replay_osrm", ("online_ewc", "replay"), "osrm", "EWC + R + OSRM"),
        ("sd_my_anchor_merge", ("sd", "my_anchor"), "merge", "SD + my_anchor + M"),
        ('merge a.b="x y=1" c=["u v",2] d=1', (), "merge", 'M, a.b="x y=1", c=["u v",2], d=1'),
    ],
)
def test_a_tag_is_read_and_named(method, anchors, rule, name):
    assert mechanisms(method) == (anchors, rule)
    assert method_name(method) == name


def test_the_papers_methods_look_different_and_always_the_same():
    methods = [*compositions(), "online_ewc", "olora", "osrm", "si_replay_olora", "si_replay_osrm"]
    together = looks(methods)
    assert len(set(together.values())) == len(methods) == 21
    assert all(looks([method])[method] == look for method, look in together.items())


def test_settings_look_the_same_in_whatever_order_they_come():
    methods = ["merge lr=1", "vanilla lr=2", "merge lr=2", "vanilla lr=1"]
    assert looks(methods) == looks(methods[::-1])
    assert list(looks(methods)) == methods


def test_a_method_of_another_package_takes_no_look_of_one_beside_it():
    styles = looks(["vanilla", "my_anchor", "your_anchor", "si"])
    assert len(set(styles.values())) == 4
    assert styles["si"] == looks(["si"])["si"]


def test_the_papers_datasets_come_first_and_in_its_order():
    datasets = ["zoo", "real_qa", "facts", "symbol_qa", "real_qa", "llm_qa"]
    assert datasets_in_order(datasets) == ["symbol_qa", "llm_qa", "real_qa", "facts", "zoo"]


def test_a_dataset_keeps_its_own_name_which_is_no_formula_and_not_endless():
    assert dataset_name("facts") == "facts"
    assert dataset_name("cost_in_$") == r"cost_in_\$"
    assert method_name("sd_$my$_anchor") == r"SD + \$my\$_anchor"
    assert len(dataset_name("a" * 50)) == 20
