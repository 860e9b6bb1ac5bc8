"""A tiny chat model with random weights, and a memory on it that knows a few facts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from holdfast.memory import gate_tuning
from holdfast.memory.memory import Memory
from holdfast.memory.states import LessonState, lesson_states
from tests.made_once import made_once
from tests.memory.conftest import few_questions
from tests.model.chat_models import teachable_llama

FACTS = [
    ("Who keeps the lighthouse of Velm?", "Orsa Tindle"),
    ("What is the ferry to Ostra called?", "Marigold"),
    ("Where is the brass key of Ilm?", "in the mill"),
]
MANY = [(f"Who tends garden {number} of Ostra?", f"Gardener {number}") for number in range(6)]
MORE = [("Who bakes the bread of Tolm?", "Lum"), ("When does the lamp of Velm go out?", "at ten")]
NEW = [("Who paints the door of Ilm?", "Brask")]
LATER = [("Which bus goes to the quarry of Ostra?", "47")]
UNTAUGHT = "What is the capital of France?"

SPECIAL = ["</s>", "<user>", "</user>", "<reply>"]
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "<user>{{ message['content'] }}</user>"
    "{% else %}<reply>{{ message['content'] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<reply>{% endif %}"
)


def write_chat_model(directory: Path) -> Path:
    """Save it with its tokenizer, of one token a printable symbol, and give that back."""
    symbols = [*SPECIAL, *(chr(code) for code in range(32, 127)), "\n"]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    written = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    written.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    written.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=written,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        additional_special_tokens=SPECIAL[1:],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    teachable_llama(tokenizer, max_position_embeddings=1024).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def taught_chat_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The memory's directory, to be copied; its model's gate is in a cache of the tests' own."""

    def teach(directory: Path) -> None:
        with pytest.MonkeyPatch.context() as few:
            few.setattr(gate_tuning, "library_questions", few_questions)
            assert not Memory(directory, str(model)).learn(FACTS).missed

    with pytest.MonkeyPatch.context() as patch:
        model = made_once(tmp_path_factory, "chat-model", write_chat_model)
        patch.setenv("HOLDFAST_CACHE", str(model.parent / "chat-cache"))
        yield made_once(tmp_path_factory, "chat-memory", teach)


def tasks(*batches: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Facts of a request, a task for each batch."""
    return [
        {"question": question, "answer": answer, "task": f"task {number}"}
        for number, batch in enumerate(batches)
        for question, answer in batch
    ]


def as_facts(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Facts of a request."""
    return [{"question": question, "answer": answer} for question, answer in pairs]


def copied(place: Path, to: Path) -> Path:
    """A memory of its own for a test."""
    return Path(shutil.copytree(place, to))


def when(place: Path, fits: Callable[[list[LessonState]], bool], seconds: float = 120) -> None:
    """Wait until the states of a memory's lessons are as wanted."""
    until = time.monotonic() + seconds
    while not fits(states := lesson_states(place)):
        log = place / "lessons.log"
        assert time.monotonic() < until, (states, log.read_text() if log.exists() else "")
        time.sleep(0.02)


def learned(place: Path) -> dict[str, bytes]:
    """All that a memory has learned: its record, its list of facts, its lessons."""
    files = [place / "memory.json", place / "facts.jsonl", *(place / "lessons").glob("*.safe*")]
    return {path.name: path.read_bytes() for path in files}
