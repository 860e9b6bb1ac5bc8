"""Facts of any Unicode: what is taught comes out as it went in, or is refused when it is taught.

Lessons are of two steps: the list answers what the weights do not."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from holdfast import HoldfastError, Memory
from holdfast.memory.facts import stream_from
from holdfast.serving.answers import Answered, AskedQuestion
from holdfast.serving.served_memory import ServedMemory
from holdfast.streams import Item
from holdfast.streams.batches import FACTS_FILE
from holdfast.streams.item import question_key
from tests.refused import line_of

Given = list[tuple[str, str]]

SAMPLES = [
    "Орса", "Νίκος", "白沙岛", "أحمد", "चक्की में", "สมชาย",
    "\N{FOX FACE}\N{VARIATION SELECTOR-16} \N{HEAVY CHECK MARK}",
    "$5.20", "a@b.example", "C:\\x\\y.log", "#1", "https://x.example/?a=b#c", "$\\pi r^2$",
    "f(x) { return x; }", "e\N{COMBINING ACUTE ACCENT}", "\N{RIGHT-TO-LEFT OVERRIDE}live",
    "a\nb", "}{",
]  # fmt: skip
SIGNS = "{}\\$%#@&*+-=<>|/~^_`'\"[]()?!.,;: \t\n"
TEXTS = st.one_of(
    st.sampled_from(SAMPLES),
    st.text(min_size=1, max_size=5),
    st.text(st.characters(min_codepoint=0x370, max_codepoint=0xFFFF), min_size=1, max_size=4),
    st.text(st.sampled_from(SIGNS), min_size=1, max_size=8),
)


@settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],  # what is smaller would be taught for minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(facts=[*zip(SAMPLES[::2], SAMPLES[1::2], strict=True)])
@given(facts=st.lists(st.tuples(TEXTS, TEXTS), min_size=4, max_size=4))
def test_facts_of_any_unicode_come_out_as_they_went_in(chat_directory: Path, facts: Given) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "m"
        taught = {
            question_key(item.question): item
            for item in accepted(facts, place, str(chat_directory))
        }
        if not taught:
            return
        memory = Memory(place, str(chat_directory))
        engine = memory.engine()
        engine.settings = replace(engine.settings, steps=2, visits=2)
        memory.learn([(item.question, item.answer) for item in taught.values()])
        assert [*memory.facts] == [*taught.values()]
        exported = stream_from(place / FACTS_FILE)
        assert [item for task in exported.tasks for item in task.items] == [*taught.values()]
        asked = Memory(place)
        for item, served in zip(taught.values(), answers(asked, taught.values()), strict=True):
            reply = asked.reply(item.question)
            assert (reply.text, reply.taught) == (item.answer, True)
            assert (served.content, served.values["answer"]) == (item.answer, item.answer)


def accepted(facts: Given, place: Path, model: str) -> list[Item]:
    """The facts that are valid; each other one is refused in a line, and nothing is written."""
    valid = []
    for question, answer in facts:
        try:
            valid.append(Item(question, answer))
        except HoldfastError:
            event("refused")
            line_of(Memory(place, model).learn, [(question, answer)])
            assert not place.exists()
    return valid


def answers(memory: Memory, items) -> list[Answered]:
    """What a server of the memory answers."""
    asked = [AskedQuestion(item.question) for item in items]
    events = [event for step in ServedMemory(memory).answering(asked) for event in step]
    return [answer for _, answer in events if isinstance(answer, Answered)]
