"""Questions asked by the lm-evaluation-harness: prompts, answers, scores, and a killed measurement.

The model is tiny and was taught the answers to a few problems, right ones and wrong ones.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from holdfast.capability.harness import FOLDER, VERSION
from holdfast.capability.problems import LANGUAGES, LETTERS, Problem, Sample, boxed
from holdfast.capability.prompts import few_shot
from holdfast.capability.run import Model, Question, measure, questions, stored_samples
from holdfast.capability.suites import NEW_TOKENS, HarnessSuite
from holdfast.core.errors import HoldfastError
from holdfast.model.backbone import REPLAY_TOKEN, Backbone
from holdfast.model.layers import LoraSettings
from tests.refused import line_of
from tests.tiny import END, byte_tokenizer, draw_factors, exact_backbone, exact_gpt2, tiny_llama

pytest.importorskip("lm_eval", reason="needs lm-eval")
asking = pytest.importorskip("holdfast.capability.harness.asking")

# Of which half is for the answer, so that no example fits, which the model was not taught with.
POSITIONS = 128


@dataclass(frozen=True)
class Lesson:
    """A problem, what the model says to it, and what that has to come to."""

    suite: str
    question: str
    target: str
    reply: str
    output: str
    extracted: str | None
    correct: bool


# The first says more than its answer: if the next problem did not end it, it would be wrong.
LESSONS = [
    Lesson("gsm8k", "2 + 3?", "5", " It is 5.\n\nQuestion: 9?", " It is 5.\n", "5.", True),
    Lesson("gsm8k", "Who?", "5", " I do not know.", " I do not know.", None, False),
    Lesson("gsm8k", "6 * 200?", "1,200", " It is $1,200.", " It is $1,200.", "$1,200.", True),
    Lesson("gsm8k", "4 + 4?", "8", " It is 7.", " It is 7.", "7.", False),
    Lesson("gsm8k", "Why?", "8", " 8" + " or so" * 12, " 8" + " or so" * 10 + " o", "8", True),
    Lesson("gsm8k", "And?", "8", "", "", None, False),
    Lesson("gsm8k", "Boxed?", "12", r" \boxed{12}.", r" \boxed{12}.", "12", True),
    Lesson("math", "Half?", "0.5", r" \boxed{\frac12}", r" \boxed{\frac12}", r"\frac12", True),
    Lesson("math", "Dozen?", "12", r" \boxed{1}", r" \boxed{1}", "1", False),
    Lesson("math", "Open?", "12", r" 12, \boxed{12", r" 12, \boxed{12", None, False),
    Lesson("mgsm", "6 * 200?", "1,200", " Also 1.200.", " Also 1.200.", "1.200.", True),
    Lesson("mgsm", "Wer?", "5", " 5, also 6.", " 5, also 6.", "6.", False),
]
PROMPTS = {
    "gsm8k": "Question: {}\nAnswer:",
    "math": "Problem: {}\nSolution:",
    "mgsm": "Frage: {}\nAntwort Schritt für Schritt:",
}


def of(suite: str) -> list[Lesson]:
    """The lessons of one suite, in order."""
    return [lesson for lesson in LESSONS if lesson.suite == suite]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The problems of all lessons in the published formats; those of MGSM are German."""
    root = tmp_path / "data"
    rows = [{"question": each.question, "answer": f"#### {each.target}"} for each in of("gsm8k")]
    _write(root / "gsm8k/test.jsonl", "\n".join(map(json.dumps, rows)))
    rows = [
        {
            "problem": each.question,
            "solution": rf"\boxed{{{each.target}}}",
            "unique_id": each.question,
        }
        for each in of("math")
    ]
    _write(root / "math/math_splits/test.jsonl", "\n".join(map(json.dumps, rows)))
    lines = "".join(f"{lesson.question}\t{lesson.target}\n" for lesson in of("mgsm"))
    _write(root / "mgsm/mgsm_de.tsv", lines)
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@functools.cache
def solver() -> Backbone:
    """The model: it answers a problem, asked without examples, as its lesson says, and stops."""
    tokenizer = byte_tokenizer()
    model = tiny_llama(width=32)
    model.model.embed_tokens.weight.data.mul_(0.3)  # drawn to be large, which is hard to teach
    rows, targets = [], []
    for lesson in LESSONS:
        prompt = tokenizer(PROMPTS[lesson.suite].format(lesson.question))["input_ids"]
        reply = tokenizer(lesson.reply + END)["input_ids"]
        rows.append(torch.tensor(prompt + reply))
        targets.append(torch.tensor([-100] * len(prompt) + reply))
    ids = pad_sequence(rows, batch_first=True)
    labels = pad_sequence(targets, batch_first=True, padding_value=-100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.0)
    model.train()
    for _ in range(600):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.003:
            break
    model.config.max_position_embeddings = POSITIONS
    # What models bring along, and generate() obeys.
    model.generation_config.update(repetition_penalty=1.5, max_new_tokens=3, min_new_tokens=2)
    return Backbone(model, tokenizer)


def measured(
    place: Path,
    suite: HarnessSuite,
    items: list[Problem],
    backbone: Backbone,
    told: Callable[[int, int, str], None] = lambda *_: None,
) -> dict[str, Sample]:
    """Measure a suite and read its samples."""
    model = Model("m", place, backbone.fingerprint, 0, lambda: backbone)
    measure(model, [Question(suite, items)], lambda _: contextlib.nullcontext(told))
    assert not (place / f"{suite.name}.answers.jsonl").exists()
    return stored_samples(place / f"{suite.name}.samples.jsonl")


@pytest.mark.parametrize("name", ["gsm8k", "math", "mgsm"])
def test_outputs_end_at_the_next_problem_and_are_scored(
    name: Any, published: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = HarnessSuite(name)
    items = suite.items(published)
    samples = measured(tmp_path / "out", suite, items, solver())
    for item, lesson in zip(items, of(name), strict=True):
        sample = samples[item.id]
        assert sample.prompt == PROMPTS[name].format(lesson.question)
        outcome = (sample.output, sample.extracted, sample.correct)
        assert outcome == (lesson.output, lesson.extracted, lesson.correct)
    score = json.loads((tmp_path / "out" / f"{name}.json").read_text())["score"]
    assert score["items"] == len(items)
    assert score["answered"] == sum(lesson.output != "" for lesson in of(name))
    assert score["extracted"] == sum(lesson.extracted is not None for lesson in of(name))
    assert score["correct"] == sum(lesson.correct for lesson in of(name))
    assert capfd.readouterr() == ("", "")  # the harness draws bars and warns


@pytest.mark.parametrize("is_believed", [True, False])
def test_a_killed_measurement_loses_no_answer_that_was_there(
    is_believed: bool, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, place = HarnessSuite("gsm8k"), tmp_path / "out"
    items = suite.items(published)
    whole = measured(tmp_path / "whole", suite, items, solver())
    monkeypatch.setattr(asking, "_ROWS", 2)

    def killing(done: int, *_: Any) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(place, suite, items, solver(), killing)
    stored = place / "gsm8k.answers.jsonl"
    stored.write_bytes(stored.read_bytes()[:-5])  # killed while it wrote the fourth
    if not is_believed:
        (place / "gsm8k.json").unlink()  # the settings of these answers are unknown
    progress, asked = [], []
    generate = asking.huggingface.HFLM._model_generate

    def counting(self: Any, context: Any, *args: Any, **options: Any) -> Any:
        asked.append(len(context))
        return generate(self, context, *args, **options)

    monkeypatch.setattr(asking.huggingface.HFLM, "_model_generate", counting)
    assert measured(place, suite, items, solver(), lambda *told: progress.append(told)) == whole
    missing = 4 if is_believed else 7
    assert sum(asked) == missing
    assert progress == [(0, 7, ""), *((n, 7, "") for n in range(8 - missing, 8))]


SOUP = "How is soup?\nA. hot\nB. cold\nC. None\nD. a 'mild', one"
CHOICES = [
    Problem("mmlu/soup", "food", SOUP, "C"),
    Problem("mmlu/ice", "food", SOUP.replace("soup", "ice"), "A"),
    Problem("mmlu/law", "law", "Why? " * 450 + "\nA. a\nB. b\nC. c\nD. d", "D"),  # too long
]


def adapted() -> Backbone:
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=2, dropout=0.5))
    draw_factors(backbone.workspace.parameters(), 0.3)
    return backbone


def of_replay() -> Backbone:
    backbone = exact_backbone()
    backbone.add_replay_token()
    return backbone


@pytest.mark.parametrize("kind", [exact_backbone, exact_gpt2, adapted, of_replay])
def test_the_letter_is_the_likeliest_after_the_prompt(
    kind: Callable[[], Backbone], tmp_path: Path
) -> None:
    backbone = kind()
    context = backbone.positions
    samples = measured(tmp_path, HarnessSuite("mmlu"), CHOICES, backbone)
    for item in CHOICES:
        sample = samples[item.id]
        shots = sample.details["shots"]
        prompt = few_shot("mmlu").prompt(item.prompt, shots)
        assert sample.prompt == (REPLAY_TOKEN if kind is of_replay else "") + prompt
        expected = {}
        for letter in LETTERS:
            ids = [*backbone.opening, *backbone.tokenize(f"{prompt} {letter}")]
            ids = ids[-context - 1 :]  # cut on the left
            with backbone.answering():
                rows = backbone.model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
            # A token a byte: a space, and the letter.
            places = len(ids) - 2, len(ids) - 1
            expected[letter] = sum(float(rows[place - 1, ids[place]]) for place in places)
        assert sample.details["log_probabilities"] == pytest.approx(expected, abs=1e-9)
        assert sample.extracted == max(expected, key=expected.__getitem__)
        assert sample.correct == (sample.extracted == item.target) and sample.output == ""
    groups = json.loads((tmp_path / "mmlu.json").read_text())["score"]["by_group"]
    assert [groups["food"]["items"], groups["law"]["items"]] == [2, 1]


@pytest.mark.parametrize("positions", [128, 700, 1100, 2100])
def test_examples_are_dropped_until_prompt_and_answer_fit(
    positions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is still too long is cut on the left, by the harness."""
    backbone = of_replay()
    monkeypatch.setattr(backbone.model.config, "max_position_embeddings", positions)
    contexts, lengths = [], []

    def generate(self: Any, context: Any, max_length: int, **_: Any) -> Any:
        contexts.extend(context.tolist())
        lengths.append(max_length - context.shape[1])
        return context

    monkeypatch.setattr(asking.huggingface.HFLM, "_model_generate", generate)
    room = min(NEW_TOKENS, positions // 2)
    for question in ("How many?", "How many? " * 300):
        item = Problem("gsm8k/1", "", question, "1")
        place = tmp_path / str(len(question))
        (sample,) = measured(place, HarnessSuite("gsm8k"), [item], backbone).values()
        prompts = [few_shot("gsm8k").prompt(question, shots) for shots in range(5)]
        fitting = [shots for shots in range(5) if len(prompts[shots]) + 1 + room <= positions]
        shots = max(fitting, default=0)
        assert sample.prompt == REPLAY_TOKEN + prompts[shots]
        whole = [*backbone.opening, *backbone.tokenize(prompts[shots])]
        assert contexts.pop() == whole[-(positions - room) :] and lengths.pop() == room
        assert (sample.output, sample.extracted, sample.correct) == ("", None, False)


def test_a_limit_is_spread_over_languages_and_each_has_its_own_task(
    published: Path, tmp_path: Path
) -> None:
    _write(published / "mgsm/mgsm_th.tsv", "6 * 200?\t1200\nWer?\t5\n")
    [asked] = questions({"mgsm": HarnessSuite("mgsm")}, ["mgsm"], published, 2)
    assert [item.id for item in asked.items] == ["mgsm/de/1", "mgsm/th/1"]
    samples = measured(tmp_path / "out", HarnessSuite("mgsm"), [*asked.items], solver())
    assert samples["mgsm/th/1"].prompt == few_shot("mgsm", "th").prompt("6 * 200?", 0)
    groups = json.loads((tmp_path / "out/mgsm.json").read_text())["score"]["by_group"]
    assert groups["de"] == {"items": 1, "correct": 1} and groups["th"]["items"] == 1


def filtered(task: str, text: str) -> str:
    """What a task's filters find in a text."""
    from lm_eval.api.registry import get_filter
    from lm_eval.tasks._yaml_loader import load_yaml

    responses: Any = [[text]]
    for step in load_yaml(FOLDER / f"{task}.yaml")["filter_list"][0]["filter"]:
        responses = get_filter(step.pop("function"))(**step).apply(responses, [None])
    [found] = responses
    return str(found)


@pytest.mark.parametrize(
    ("task", "text", "found"),
    [
        ("gsm8k", "She has 3 + 4 = 7 left. The answer is 18", "18"),
        ("gsm8k", r"first \boxed{5}, then \boxed{-7}", "-7"),
        ("gsm8k", "seven", "[invalid]"),
        ("mgsm_bn", "উত্তর হল ১২,৩৪,৫৬৭।", "12,34,567"),
        ("mgsm_ja", "答えは１２です。", "12"),
        ("math", r"first \boxed{5}, then $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        ("math", r"first \boxed{5}, then \boxed{", "[invalid]"),
        ("math", r"a \boxedly tale of {12}", "[invalid]"),
        ("math", r"\fbox{12}", "[invalid]"),
        ("math", r"\boxed{}", "[invalid]"),
    ],
)
def test_the_answer_is_the_last_number_or_the_last_box(task: str, text: str, found: str) -> None:
    assert filtered(task, text) == found


@pytest.mark.parametrize("name", ["gsm8k", "math", *(f"mgsm_{each}" for each in LANGUAGES)])
def test_every_worked_example_is_found_and_a_task_stops_where_the_next_begins(name: str) -> None:
    from lm_eval.tasks._yaml_loader import load_yaml

    suite, _, language = name.partition("_")
    examples = few_shot(suite, language or "en")
    answers = {
        "gsm8k": ["72.", "7.", "120.", "20."],
        "math": ["28", r"\frac{7}{36}", "2x^2 + 5x - 12", r"25\sqrt{3}"],
    }.get(suite, ["19", "42", "80", "1050"])
    found = [filtered(name, text) for text in examples.examples]
    assert [text.rstrip(".") for text in found] == [text.rstrip(".") for text in answers]
    task = load_yaml(FOLDER / f"{name}.yaml")
    assert task["generation_kwargs"] == {
        "until": [examples.stop],
        "max_gen_toks": NEW_TOKENS,
        "do_sample": False,
        "repetition_penalty": 1.0,
    }
    assert task["metadata"]["version"] == VERSION
    assert suite != "mgsm" or task["dataset_kwargs"] == {"language": language}


def test_the_tasks_serve_the_harness_by_itself(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files of the suite, or some of its examples, as its documentation says."""
    from lm_eval import simple_evaluate

    backbone = solver()
    monkeypatch.setattr(backbone.model, "generation_config", GenerationConfig(eos_token_id=0))
    results = simple_evaluate(
        model=asking.huggingface.HFLM(
            backbone.model, tokenizer=backbone.tokenizer, add_bos_token=False, batch_size=4
        ),
        tasks=["holdfast_gsm8k", "holdfast_mgsm_de"],
        task_manager=asking.TaskManager(
            include_path=str(FOLDER),
            include_defaults=False,
            metadata={"data_root": str(published), "shots": 0},
        ),
        gen_kwargs={"max_gen_toks": POSITIONS // 2},
        bootstrap_iters=0,
    )
    for name, task in (("gsm8k", "holdfast_gsm8k"), ("mgsm", "holdfast_mgsm_de")):
        right = [lesson.correct for lesson in of(name)]
        score = results["results"][task]["exact_match,flexible-extract"]
        assert score == sum(right) / len(right)


def test_what_the_harness_cannot_ask_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = exact_backbone()
    backbone.head.weight.data.fill_(math.nan)
    with pytest.raises(HoldfastError, match="not numbers"):
        measured(tmp_path, HarnessSuite("mmlu"), CHOICES, backbone)
    backbone.tokenizer.eos_token = None
    assert "names no end of a text" in line_of(HarnessSuite("mmlu").check, backbone)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = line_of(HarnessSuite("gsm8k").items, tmp_path)
    assert "gsm8k: is asked by lm-evaluation-harness" in line and "holdfast[capability]" in line


def test_published_solutions_count_as_right_answers(real_data: Path) -> None:
    """What a perfect model would write is found and equals the target."""
    from holdfast.capability.harness import equivalent

    rows = (real_data / "capability/gsm8k/test.jsonl").read_text("utf-8").splitlines()
    for row, item in zip(rows, HarnessSuite("gsm8k").items(real_data), strict=True):
        assert filtered("gsm8k", json.loads(row)["answer"]).replace(",", "") == item.target
    rows = (real_data / "capability/math/math_splits/test.jsonl").read_text("utf-8").splitlines()
    for row, item in zip(rows, HarnessSuite("math").items(real_data), strict=True):
        solved = json.loads(row)
        found = boxed(solved["solution"])
        assert equivalent({"target": solved["answer"]}, [found or ""]) == {"exact_match": 1.0}
        assert item.target == found
