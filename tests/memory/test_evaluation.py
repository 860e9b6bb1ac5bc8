"""`holdfast evaluate` on a memory of a tiny model: what it finds, continues and shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation import measure, stages
from holdfast.memory.evaluation.asking import LONGEST, Sides
from holdfast.memory.evaluation.drift import kl_per_token
from holdfast.memory.evaluation.measure import evaluate, learned_wordings
from holdfast.memory.evaluation.probes import EverydayQuestion, Probe, probes_of
from holdfast.memory.evaluation.result import Measure, MemoryEvaluation, read_evaluation
from holdfast.memory.memory import Memory
from holdfast.model.neurons import gated_mlps
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY

PROBES = {
    MONDAY[0][0]: Probe(
        *MONDAY[0],
        wordings=("Say who it is that mends the nets of Ostra.",),
        reverse=("What does Fenwick mend?", "the nets"),
        sentence="The nets of Ostra are mended by",
        others=("Who mends the nets of Venn?",),
        untaught=("How old is Ostra?",),
    )
}


@pytest.fixture(scope="module")
def memory(two_lessons: Path, chat_cache: Path) -> Memory:
    """Loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        memory = Memory(two_lessons)
        memory.answerer()
    return memory


@pytest.fixture(scope="module")
def everyday(memory: Memory) -> list[EverydayQuestion]:
    """Two questions that the untouched model answers right, and one that it does not."""
    asked = ["What is the capital of France?", "How many legs has a spider?", "Who is Lum?"]
    texts = [answer.text for answer in memory.answerer().replies(asked, LONGEST)]
    return [
        EverydayQuestion(question, (word,))
        for question, word in zip(asked, [*texts[:2], "nobody at all"], strict=True)
    ]


@pytest.fixture(scope="module")
def whole(memory: Memory, everyday) -> MemoryEvaluation:
    return evaluate(memory, probes(memory), everyday)


def probes(memory: Memory) -> list[Probe]:
    return [PROBES.get(probe.question, probe) for probe in probes_of(memory.facts)]


def test_a_memory_of_two_lessons(memory: Memory, whole: MemoryEvaluation):
    rows = whole.rows
    assert whole.finished and whole.about["adapters"] == whole.about["lessons"] == 2
    assert rows["recalled"] == Measure(5, 1.0, 1.0, 1.0)
    assert rows["recalled_from_weights"] == Measure(5, 1.0, 1.0)
    for name in ("wordings", "reverse", "sentence", "others_accepted"):
        assert rows[name].of == 1
    assert rows["everyday_kept"] == Measure(2, 1.0, None, 1.0)
    assert rows["others_accepted"].weights is None and "kl" not in rows
    lessons = sum(path.stat().st_size for path in (memory.directory / "lessons").iterdir())
    listed = (memory.directory / "facts.jsonl").stat().st_size
    assert rows["bytes"] == Measure(None, lessons + listed, lessons, listed)
    assert rows["model_bytes"].memory > 100_000 and rows["seconds"].memory > 0


def test_one_adapter_is_measured_without_its_gate(chat_directory: Path, tmp_path: Path, everyday):
    memory = Memory(tmp_path / "m", str(chat_directory))
    memory.learn(MONDAY)
    rows = evaluate(memory, probes(memory), everyday).rows
    engine, answerer = memory.engine(), memory.answerer()
    sides = Sides(engine, answerer)
    questions = [row.question for row in everyday]
    replies = sides.weights(questions, [0] * 3, lambda *_: None)
    right = sum(row.answers[0] == text for row, text in zip(everyday[:2], replies, strict=False))
    assert rows["everyday_kept"].weights == right / 2
    untouched = sides.untouched(questions)
    kl = rows["kl"].weights
    assert rows["kl"].of == 3 and rows["bits_per_byte"].weights > 0
    sides.memory([MONDAY[0][0]], lambda *_: None)  # whose answer is not the untouched model's
    assert sides.untouched([MONDAY[0][0]]) != [MONDAY[0][1]]
    assert kl == pytest.approx(plain_kl(engine, answerer, questions, untouched), rel=1e-4)
    silent = {
        f"{name}.{part}": torch.zeros(1, 64)
        for name in gated_mlps(engine.bare_model())
        for part in ("gate", "up", "down")
    }
    assert kl > 0.1 > kl_per_token(Sides(engine, answerer, silent), questions, untouched)


@torch.no_grad()
def plain_kl(engine, answerer, questions, replies) -> float:
    """One question after another, with plain passes over the answer behind the prompt's cache."""
    total, tokens = 0.0, 0
    for question, reply in zip(questions, replies, strict=True):
        form, model = engine.form, engine.reader.model
        prompt = [*form.prefix, *form.question(question)]
        behind = [*form.invocation, *form.answer(reply)[:-1]]
        rows = []
        for acts in (False, True):
            cache = model(torch.tensor([prompt]), use_cache=True).past_key_values
            ids = torch.tensor([behind])
            if acts:
                with engine.using(answerer.adapter(0)):
                    logits = model(ids, past_key_values=cache).logits[0]
            else:
                logits = model(ids, past_key_values=cache).logits[0]
            rows.append(F.log_softmax(logits[len(form.invocation) - 1 :].double(), 1))
        total += float(F.kl_div(rows[1], rows[0], reduction="sum", log_target=True))
        tokens += len(rows[0])
    return total / tokens


def test_an_interrupted_evaluation_continues(
    memory: Memory, everyday, whole, monkeypatch, tmp_path: Path
):
    reported: set[str] = set()

    def run(**how) -> MemoryEvaluation:
        reported.clear()
        report = lambda label, *_: reported.add(label)  # noqa: E731
        return evaluate(memory, probes(memory), everyday, report=report, **how)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "kept", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(out=tmp_path)
    done = ("recalled", "wordings", "reverse", "sentence")
    assert read_evaluation(tmp_path, whole.identity).stages == done
    again = run(out=tmp_path)
    assert not set(done) & reported and "everyday" in reported
    assert again.stages == whole.stages
    assert {**again.rows, "seconds": None} == {**whole.rows, "seconds": None}
    other = run(limit=1)
    assert other.identity != whole.identity and other.rows["recalled"].of == 1
    monkeypatch.setattr(measure, "sides_of", None)  # what is finished loads no model
    assert run(out=tmp_path) == again and not reported


def test_the_command(holdfast, two_lessons: Path, tmp_path: Path, monkeypatch):
    asked = tmp_path / "probes.jsonl"
    asked.write_text(json.dumps({"question": MONDAY[0][0], "others": ["Who mends what of Venn?"]}))
    common = tmp_path / "everyday.jsonl"
    common.write_text('{"question": "What is the capital of France?", "answers": ["Paris"]}\n')
    command = ["evaluate", two_lessons, "--probes", asked, "--everyday", common, "--limit", "2"]
    status, out, err = holdfast(*command, "--json")
    values = json.loads(out)
    assert status == 0 and values["rows"]["recalled"] == {
        "of": 2, "memory": 1.0, "weights": 1.0, "list": 1.0
    }  # fmt: skip
    assert values["rows"]["others_unchanged"]["of"] == 1
    assert "recalled: 100 of 100" in err

    folder = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "drift", interrupted)
        status, out, err = holdfast(*command, "--out", folder)
    assert status == 130 and f"7 measures are kept in {folder}; the same command continues" in err
    (folder / "evaluation.png").mkdir()  # a picture that cannot be written hides no numbers
    status, out, err = holdfast(*command, "--out", folder)
    assert status == 2 and "taught wordings recalled" in out
    (folder / "evaluation.png").rmdir()
    status, out, err = holdfast(*command, "--out", folder)
    assert status == 0 and out.splitlines()[-1] == str(folder)
    assert "5 facts in 2 lessons, 2 adapters" in out and "at most 2 questions of each kind" in out
    assert "taught wordings recalled" in out and "100.0%" in out
    assert {path.name for path in folder.iterdir()} == {
        "answers",
        "evaluation.json",
        "evaluation.png",
        "evaluation.pdf",
    }
    assert json.loads((folder / "evaluation.json").read_text())["finished"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_no_memory(holdfast, tmp_path: Path):
    status, _, err = holdfast("evaluate", tmp_path)
    assert status == 2 and "no such memory; holdfast learn" in err
    for name in ("facts.jsonl", "config.json"):  # as a memory of a former version has
        (tmp_path / name).write_text("")
    verbs = [
        (verb, tmp_path) for verb in ("evaluate", "ask", "lessons", "learn", "serve", "consolidate")
    ]
    taught = [("learn", tmp_path, "Who?", "Ann"), ("serve", tmp_path, "--teach", "--port", "0")]
    for verb in (*verbs, *taught):
        status, _, err = holdfast(*verb)
        message = "commit 31412b6 had them on the embedded model, which asks it; to go on with its "
        assert status == 2 and message in err and err.count("\n") == 1, (verb, err)


def test_a_place_that_cannot_be_written_is_said_first(holdfast, two_lessons: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    status, _, err = holdfast("evaluate", two_lessons, "--out", tmp_path / "file" / "out")
    assert status == 2 and "cannot be written" in err and "recalled" not in err


def test_corrections_in_later_lessons_of_one_file(chat_directory: Path, tmp_path: Path):
    path = tmp_path / "facts.jsonl"
    rows = [("one", *MONDAY[0]), ("two", MONDAY[0][0], "Lum"), ("two", *WEDNESDAY[0])]
    lines = [{"task": task, "question": q, "answer": a} for task, q, a in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    memory = Memory(tmp_path / "m", str(chat_directory))
    outcome = memory.learn(path)
    assert [correction.after.answer for correction in outcome.corrected] == ["Lum"]
    assert memory.ask(MONDAY[0][0]) == "Lum"
    assert memory.answerer().adapter_names == (memory.answerer().adapter(1).name,)
    path.write_text(path.read_text().replace('"two"', '"one"'))
    with pytest.raises(HoldfastError, match="two answers for one question"):
        memory.learn(path)
    learned = learned_wordings(memory)
    assert TUESDAY[0][0] not in learned and MONDAY[0][0] in learned
