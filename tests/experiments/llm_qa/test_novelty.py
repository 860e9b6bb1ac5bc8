"""The optional novelty filter: what the backbone knows, or may know, is no item."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.paper.llm_qa import LLMQASettings, generate
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.streams import Item
from tests.experiments.llm_qa.writers import Scripted, Writer, record

ONE = LLMQASettings(tasks=1, items=2, per_prompt=3)
SCRIPT = {
    # Two are taken for judging, as many as the task has room for.
    (1, 1): [record("Al"), record("Bo"), record("Cy")],
    (1, 2): [record("Al", "Who owns Al?"), record("Di"), record("Ed")],
    (1, 3): [record("Flo")],
}


class Filter:
    def __init__(self, verdicts: dict[str, bool | Failure]) -> None:
        self.verdicts = verdicts
        self.asked: list[str] = []

    def __call__(self, items: list[Item]) -> list[bool | Failure]:
        entities = [item.details["entity"] for item in items]
        self.asked += entities
        return [self.verdicts.get(entity, False) for entity in entities]


def test_known_and_undecided_items_are_rejected_and_stay_registered(tmp_path: Path) -> None:
    known = Filter({"Al": True, "Di": Failure("timed out")})
    stream = generate(Scripted(SCRIPT), tmp_path, ONE, known=known)
    assert [item.details["entity"] for item in stream.tasks[0].items] == ["Bo", "Flo"]
    assert known.asked == ["Al", "Bo", "Di", "Flo"]
    assert stream.about["rejected"] == {
        "known to the backbone": 1,
        "novelty not decided": 1,
        "repeated entity": 1,
        "task is full": 2,
    }
    assert stream.about["novel_to"] == "a backbone"


def test_a_verdict_is_asked_for_once(tmp_path: Path) -> None:
    known = Filter({"Al": True, "Di": Failure("timed out")})
    stream = generate(Scripted(SCRIPT), tmp_path, ONE, known=known)
    silent = Filter({})
    again = generate(Writer(), tmp_path, ONE, known=silent)
    assert silent.asked == []
    assert (again, again.about) == (stream, stream.about)


def test_without_the_filter_the_same_replies_are_all_taken(tmp_path: Path) -> None:
    stream = generate(Scripted(SCRIPT), tmp_path, ONE)
    assert [item.details["entity"] for item in stream.tasks[0].items] == ["Al", "Bo"]


@pytest.mark.parametrize(
    ("known", "novel_to", "difference"),
    [(None, "tiny", '"tiny" -> null'), (Filter({}), "large", '"tiny" -> "large"')],
)
def test_the_filter_of_a_directory_stays(
    tmp_path: Path, known: Filter | None, novel_to: str, difference: str
) -> None:
    generate(Scripted(SCRIPT), tmp_path, ONE, known=Filter({}), novel_to="tiny")
    with pytest.raises(HoldfastError, match=f"novel_to: {difference}"):
        generate(Scripted(SCRIPT), tmp_path, ONE, known=known, novel_to=novel_to)
