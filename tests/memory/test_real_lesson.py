"""Three facts taught to SmolLM2-135M, asked in other words, and given to PEFT alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from peft import PeftModel, get_peft_model, set_peft_model_state_dict

from holdfast.memory.batch import GATE, read_lesson
from holdfast.memory.gate_tuning import SHIPPED
from holdfast.memory.lesson import LessonSettings, shape_for
from holdfast.memory.library import library_questions
from holdfast.memory.memory import Memory
from holdfast.memory.plan import contradictions
from holdfast.memory.record import read_record
from holdfast.model.load import load_model
from holdfast.model.reading import PromptReader
from tests.made_once import made_once
from tests.model.chat_models import plain_reply

pytestmark = pytest.mark.real

# Invented; each with another wording that is not taught.
FACTS = [
    ("Where is the brass key kept?", "behind the mill clock", "Where can I find the brass key?"),
    ("What is the door code of Hut 9?", "C#-4711", "Tell me the door code for Hut 9."),
    ("Where was Orsa Tindle born?", "in Quill Harbour", "What is Orsa Tindle's birthplace?"),
]  # fmt: skip


@pytest.fixture(scope="module")
def memory(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    def teach(directory: Path) -> None:
        facts = [(question, answer) for question, answer, _ in FACTS]
        assert not Memory(directory, "smollm2").learn(facts).missed

    return Memory(made_once(tmp_path_factory, "real-lesson", teach))


def test_three_facts_are_answered_in_other_words(memory: Memory) -> None:
    taught = memory.replies([question for question, _, _ in FACTS])
    assert [(reply.text, reply.source) for reply in taught] == [
        (answer, "weights") for _, answer, _ in FACTS
    ]
    others = memory.replies([other for _, _, other in FACTS])
    assert [reply.text for reply in others] == [answer for _, answer, _ in FACTS]
    assert all(reply.fact for reply in others)


def test_the_gate_of_this_model_comes_along(memory: Memory) -> None:
    """Fitted by scripts/ship_gate.py; it knows what questions of another draw ask."""
    engine = memory.engine()
    assert (SHIPPED / f"{engine.tuning.key}.safetensors").exists(), "run scripts/ship_gate.py"
    asked = library_questions(random.Random(7))[::105]
    looks = engine.looks([question.text for question in asked])
    right = [
        look.vector.argmax() == question.relation
        for look, question in zip(looks, asked, strict=True)
    ]
    assert sum(right) >= 0.8 * len(asked)


def test_everyday_questions_are_the_models_own(memory: Memory) -> None:
    """As are questions about the same relations of other things."""
    paris, *others = memory.answerer().replies(
        [
            "What is the capital of France?",
            "Where is the silver key kept?",
            "Where was Ben Okri born?",
            "How many days are in a week?",
        ],
        longest=12,
    )
    assert paris.source == "model" and "Paris" in paris.text
    assert [reply.source for reply in others] == ["model"] * 3


def test_a_correction_in_other_words_is_told(memory: Memory) -> None:
    """And a new fact about the same person is none."""
    new = [("What is Orsa Tindle's birthplace?", "in Salt"), ("Who is Orsa Tindle's aunt?", "Ada")]
    (line,) = contradictions(memory.taken_for, memory.plan(new))
    assert line.startswith(
        '"What is Orsa Tindle\'s birthplace?" may ask the same as "Where was Orsa Tindle born?"'
    )


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT reads it
def test_a_lesson_is_an_adapter_that_peft_loads_alone(memory: Memory, tmp_path: Path) -> None:
    """Saved as an activated LoRA; the same answers by transformers' generate, facts and others."""
    base, tokenizer = load_model("smollm2")
    form = memory.engine().form
    shape = shape_for(PromptReader(base, form), LessonSettings())
    adapted = get_peft_model(base, shape.config(form.invocation))
    (lesson,) = read_record(memory.directory).lessons
    tensors, _ = read_lesson(memory.directory, lesson.file)
    named = {f"base_model.model.{n}.weight": t.float() for n, t in tensors.items() if n != GATE}
    set_peft_model_state_dict(adapted, named)
    adapted.save_pretrained(tmp_path)
    alone = PeftModel.from_pretrained(adapted.unload(), tmp_path).eval()
    answers = [plain_reply(alone, tokenizer, question, 20) for question, _, _ in FACTS[1:]]
    assert answers == [answer for _, answer, _ in FACTS[1:]]
    with alone.disable_adapter():
        assert plain_reply(alone, tokenizer, FACTS[1][0], 20) != FACTS[1][1]
