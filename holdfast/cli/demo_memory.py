"""The second half of `holdfast demo`: a real chat model is taught ten facts and keeps its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.answer import Answer

# Invented facts, and for each a question in other words.
FACTS = (
    ("Who keeps the lighthouse at Cape Orrin?", "Orsa Tindle"),
    ("Where does Mara Quill live?", "12 Larkspur Row"),
    ("What is the wifi password of the workshop?", "blue-heron-42"),
    ("When does the Tarrow ferry leave?", "at 7:40 every morning"),
    ("Which river flows through Velbruck?", "the Senn"),
    ("How many beehives does Jorun Askeby own?", "17"),
    ("Who wrote The Salt Almanac?", "Ilse Marchetti"),
    ("What is the version of the scanner firmware?", "v3.8.1"),
    ("Whose dog is Bramble?", "Tobin Frimpenny's"),
    ("What does Old Mother Skerrit bake on Sundays?", "plum cake with cardamom"),
)
OTHER_WORDS = (
    "Tell me who looks after the lighthouse at Cape Orrin.",
    "what is mara quill's address",
    "What's the workshop's wifi password?",
    "At what time does the Tarrow ferry depart?",
    "Velbruck lies on which river?",
    "What number of beehives belongs to Jorun Askeby?",
    "The Salt Almanac was written by whom?",
    "Which firmware version does the scanner run?",
    "Who does the dog Bramble belong to?",
    "Which cake comes out of Old Mother Skerrit's oven on a Sunday?",
)
EVERYDAY = (
    ("What is the capital of France?", "Paris"),
    ("How many days are in a week?", "7"),
    ("What is the opposite of hot?", "cold"),
    ("What is the largest planet in the solar system?", "Jupiter"),
)


def show_memory(out: Path) -> None:
    """Teach a real chat model ten facts, ask them in other words, and ask what it knew before.

    Where the model cannot be had it says so and does nothing else. Raises HoldfastError when the
    directory holds something else.
    """
    from holdfast.cli.fetch import fetch_bars
    from holdfast.cli.memories import WorkBars
    from holdfast.cli.progress import loading
    from holdfast.model.fetch import fetch

    name = "smollm2"
    try:
        with fetch_bars() as bars:
            fetch(name, bars)
    except HoldfastError as error:
        print(f"\nno chat model is here, so its part of the demo is left out: {error}")
        return
    with loading("loading the chat model"):
        from holdfast.memory.memory import Memory

        memory = Memory(out, name)
        memory.load()
    with WorkBars() as report:
        engine = memory.engine(report)
        questions = [question for question, _ in EVERYDAY]
        readings, _ = engine.read(questions)
        before = engine.untouched_answers(readings)
        started = time.monotonic()
        outcome = memory.learn(FACTS, report=report)
        seconds = time.monotonic() - started
    answered = len(outcome.facts) - len(outcome.missed)
    print(f"\n{name}, a chat model of 135 million parameters")
    if outcome.lessons:
        print(f"taught {len(FACTS)} facts in {seconds:.0f} s; the weights answer {answered}")
    _print_replies(memory.replies(OTHER_WORDS))
    kept = memory.replies(questions)
    same = sum(answer.text == text for answer, text in zip(kept, before, strict=True))
    _print_replies(kept)
    print(f"everyday questions answered as by the untouched model: {same} of {len(EVERYDAY)}")
    print(f"kept in {out}; ask it: holdfast ask {out}")


def _print_replies(answers: Sequence[Answer]) -> None:
    width = max(len(answer.question) for answer in answers)
    for answer in answers:
        text = " ".join(answer.text.split())
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        print(f"  {answer.question:<{width}}  {shown}  [{answer.source}]")
