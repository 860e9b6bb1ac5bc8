"""The topics are 100, each its own, in the form that prompts and the grammar rely on."""

from __future__ import annotations

import re
from itertools import pairwise

from experiments.paper.llm_qa import topics
from experiments.paper.llm_qa.frames import FRAMES


def test_there_are_a_hundred_topics_each_its_own() -> None:
    phrases = [topic.phrase for topic in topics()]
    nouns = [topic.noun for topic in topics()]
    assert len(phrases) == len(set(phrases)) == len(set(nouns)) == 100


def test_topics_name_nothing_that_exists() -> None:
    # Proper names would begin with a capital letter.
    for topic in topics():
        assert re.fullmatch(r"fictional [a-z]+(?:[ -][a-z]+)* and [a-z]+(?: [a-z]+)*", topic.phrase)
        assert re.fullmatch(r"[a-z]+(?:[ -][a-z]+)*", topic.noun)


def test_related_topics_stand_together() -> None:
    families = [topic.family for topic in topics()]
    boundaries = sum(old != new for old, new in pairwise(families))
    assert boundaries == len(set(families)) - 1
    assert set(families) == set(FRAMES)
