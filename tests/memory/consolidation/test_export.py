"""What a consolidated memory exports is loaded by PEFT and transformers alone, and answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError
from holdfast.exports import memory as module
from holdfast.exports.memory import export_memory
from holdfast.memory.batch import WordedFact
from holdfast.memory.consolidation import rehearsal, run
from holdfast.memory.consolidation.consolidate import ConsolidationOutcome, consolidate
from holdfast.memory.consolidation.names import NamedFact, NamedQuestion
from holdfast.memory.consolidation.rehearsal import NeuronSettings
from holdfast.memory.engine import Engine
from holdfast.memory.evaluation.asking import Sides
from holdfast.memory.evaluation.measure import evaluate
from holdfast.memory.evaluation.probes import EverydayQuestion, Probe
from holdfast.memory.lesson import LessonSettings
from holdfast.memory.memory import Memory
from holdfast.memory.record import write_record
from holdfast.model.chat import chat_form
from holdfast.model.load import load_model
from holdfast.model.neurons import PARTS, gated_mlps
from holdfast.model.quiet import quiet
from holdfast.streams.batches import fact_key
from holdfast.streams.item import question_key
from tests.cli.conftest import Outcome
from tests.exports.test_gguf import run_by_llama_cpp
from tests.made_once import made_once
from tests.memory.consolidation.conftest import FACTS, OWN_TEXTS, Done
from tests.memory.consolidation.test_consolidate import adapters, answers
from tests.memory.memories import MONDAY, WEDNESDAY
from tests.model.chat_models import plain_reply

# A model of random weights needs a large rate, and neurons in every layer; it learns some facts.
NEURONS = NeuronSettings(begin=0.0, end=1.0, lr=6.0, varied=0.0, least=300, facts=5, own=OWN_TEXTS)


def apart(engine: Engine, facts: Sequence[WordedFact], _: object) -> list[NamedFact]:
    """A name for each fact, which ends where random weights can carry it on."""
    form = engine.form
    return [
        NamedFact(
            tuple(form.answer(fact.answer)),
            number,
            (NamedQuestion(tuple(form.question(fact.wordings[0])), 5 + number),),
        )
        for number, fact in enumerate(facts)
    ]


@pytest.fixture(scope="module")
def both(two_lessons: Path, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with two lessons' adapters, and neurons; never to be written."""

    def make(folder: Path) -> None:
        place = shutil.copytree(two_lessons, folder / "m")
        outcome = consolidate(Memory(place), NEURONS)
        assert outcome == ConsolidationOutcome(5, outcome.answered, 2, 0) and outcome.answered > 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        patch.setattr(run, "named_facts", apart)
        # Tokens are bytes, so what ends a name is in every other text.
        patch.setattr(run, "rival_names", lambda *_: [])
        patch.setattr(run, "last_words", lambda *_: [])
        patch.setattr(run, "_as_plain_text", lambda *_: [1])
        return made_once(tmp_path_factory, "both", make) / "m"


@pytest.fixture
def whole(done: Done) -> Path:
    """A memory whose lessons one adapter answers; never to be written."""
    return done.place


@pytest.fixture(scope="module")
def widened(both: Path, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the neurons, one more of whose facts is on record as missed."""
    place = shutil.copytree(both, tmp_path_factory.mktemp("missed") / "m")
    record, count = Memory(place).record, len(in_neurons(place)) - 1
    assert record.neurons is not None
    missed = (*record.neurons.missed, question_key(in_neurons(place)[0][0]))
    write_record(place, replace(record, neurons=replace(record.neurons, missed=missed)))
    return exported(place, place.parent / "hf", chat_cache, count)


@pytest.fixture(scope="module")
def merged(done: Done, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the adapter of all lessons merged."""
    return exported(done.place, tmp_path_factory.mktemp("merged") / "hf", chat_cache, len(FACTS))


def exported(place: Path, out: Path, chat_cache: Path, count: int) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        message = f"{count} of {count} facts are answered by what was written"
        assert export_memory(place, "hf", out) == message
    return out


def in_neurons(place: Path) -> list[tuple[str, str]]:
    """The facts that the neurons give."""
    neurons = Memory(place).record.neurons
    assert neurons is not None
    learned = Memory(place).learned
    return [
        (fact.question, fact.answer) for fact in learned if fact_key(fact) not in neurons.missed
    ]


def asked_alone(model: Any, tokenizer: Any, out: Path, facts: list[tuple[str, str]]) -> None:
    """What was written gives the facts, and its card shows how to ask it."""
    form = chat_form(tokenizer)
    ends = {"eos_token_id": sorted(form.stops), "pad_token_id": form.end}
    for question, answer in facts:
        assert plain_reply(model, tokenizer, question, 24, **ends).strip() == answer, question
    if not isinstance(model, PeftModel):  # an adapter has none of its own
        assert set(model.generation_config.eos_token_id) == form.stops
    card = (out / "README.md").read_text()
    assert json.dumps(str(out)) in card and "5 facts taught to" in card
    code = card.split("```python\n")[1].split("```")[0]
    assert f"eos_token_id={sorted(form.stops)})" in code
    names: dict[str, Any] = {}
    with quiet():
        exec(code, names)  # noqa: S102  # prints some answer
    assert names["written"].shape[0] == 1


def test_peft_alone_answers(whole: Path, chat_directory: Path, tmp_path: Path) -> None:
    """The adapter of all lessons acts at every token."""
    out = tmp_path / 'a "quoted" name'
    assert export_memory(whole, "peft", out) == "5 of 5 facts are answered by what was written"
    base: Any = AutoModelForCausalLM.from_pretrained(chat_directory)
    with quiet():  # PEFT asks transformers for what is to be removed
        model: Any = PeftModel.from_pretrained(base, out).eval()
    config = model.peft_config["default"]
    assert config.alora_invocation_tokens is None
    assert config.base_model_name_or_path == str(chat_directory)
    asked_alone(model, AutoTokenizer.from_pretrained(out), out, FACTS)


@pytest.mark.parametrize("form", ["widened", "merged"])
def test_transformers_alone_answer(form: str, request: pytest.FixtureRequest, both: Path) -> None:
    """A model with neurons, or with the adapter merged; its facts on record, and no others."""
    out: Path = request.getfixturevalue(form)
    facts = in_neurons(both)[1:] if form == "widened" else FACTS
    model = AutoModelForCausalLM.from_pretrained(out).eval()
    asked_alone(model, AutoTokenizer.from_pretrained(out), out, facts)


def test_the_merged_weights_are_the_base_and_the_update(
    whole: Path, merged: Path, chat_directory: Path
) -> None:
    """W + (alpha / r) B A in every adapted map; everything else is the base's."""
    before = load_file(chat_directory / "model.safetensors")
    after = load_file(merged / "model.safetensors")
    (file,) = adapters(whole)
    state = load_file(whole / "lessons" / file)
    assert before.keys() == after.keys()
    for name, weight in before.items():
        lora_a = state.get(f"{name.removesuffix('.weight')}.lora_A")
        if lora_a is None:
            assert torch.equal(after[name], weight)
        else:
            lora_b = state[f"{name.removesuffix('.weight')}.lora_B"]
            expected = weight.double() + LessonSettings().scale * (
                lora_b.double() @ lora_a.double()
            )
            torch.testing.assert_close(after[name].double(), expected, rtol=0, atol=1e-6)
    assert sum(name.endswith(".lora_A") for name in state) == sum(
        not torch.equal(after[name], weight) for name, weight in before.items()
    )


def test_the_widened_weights_are_the_base_and_the_neurons(
    both: Path, widened: Path, chat_directory: Path
) -> None:
    """Behind the model's own rows and columns; everything else is the base's."""
    before = load_file(chat_directory / "model.safetensors")
    after = load_file(widened / "model.safetensors")
    learned = Memory(both).record.neurons
    assert learned is not None and before.keys() == after.keys()
    neurons = load_file(both / "lessons" / learned.file)
    for name, weight in before.items():
        written = after[name]
        mlp, _, part = name.removesuffix("_proj.weight").rpartition(".")
        added = neurons.get(f"{mlp}.{part}")
        if part == "down":
            written, weight = written.t(), weight.t()
        assert torch.equal(written[: len(weight)], weight)
        assert (added is not None) == (len(written) > len(weight)) == (".mlp." in name)
        if added is not None:
            assert torch.equal(written[len(weight) :][: len(added)], added)
            assert not written[len(weight) + len(added) :].any()


def test_what_is_exported_is_measured_alone(both: Path, whole: Path) -> None:
    """The weights' column of an evaluation is the neurons', or the one adapter's."""
    probes = [Probe(question, answer) for question, answer in FACTS]
    everyday = [EverydayQuestion("What is rain?", ("water",))]
    of_neurons, of_adapter = (evaluate(Memory(place), probes, everyday) for place in (both, whole))
    assert of_neurons.about["neurons"] and not of_adapter.about["neurons"]
    assert of_neurons.rows["recalled"].weights == len(in_neurons(both)) / 5
    assert of_adapter.rows["recalled"].weights == 1.0
    assert of_adapter.rows["kl"].weights != of_neurons.rows["kl"].weights
    neurons = Memory(both).record.neurons
    assert neurons is not None
    for rows, file in (
        (of_neurons.rows, both / "lessons" / neurons.file),
        (of_adapter.rows, whole / "lessons" / adapters(whole)[0]),
    ):
        assert rows["bytes"].weights == file.stat().st_size
    assert of_adapter.identity != of_neurons.identity


@pytest.mark.parametrize("kind", ["adapter", "neurons"])
def test_weights_are_measured_as_what_is_exported_reads(
    kind: str, whole: Path, merged: Path, both: Path
) -> None:
    """They act at every token, the common prefix included; outside it is the untouched model's."""
    memory = Memory(both if kind == "neurons" else whole)
    engine, (question, answer) = memory.engine(), FACTS[0]
    form, reader = engine.form, engine.reader
    tokens = form.answer(answer)
    asked = [*form.prefix, *form.question(question), *form.invocation]

    @torch.no_grad()
    def plain(model: Any) -> torch.Tensor:
        logits: torch.Tensor = model(torch.tensor([[*asked, *tokens[:-1]]])).logits
        return logits[0, len(asked) - 1 :]

    neurons, model = None, AutoModelForCausalLM.from_pretrained(merged).eval()
    if kind == "neurons":
        drawn, model = torch.Generator().manual_seed(3), reader.model
        neurons = {
            f"{mlp}.{part}": torch.randn(2, 64, generator=drawn) / 4
            for mlp in gated_mlps(engine.bare_model())
            for part in PARTS
        }
    sides = Sides(engine, memory.learned_answerer(), neurons)
    with torch.no_grad(), sides.acting([question]) as readings:
        acting, expected = reader.answer_logits(readings, [tokens]).logits, plain(model)
    torch.testing.assert_close(acting, expected, rtol=0, atol=1e-4)
    untouched = reader.answer_logits(reader.read([form.question(question)]), [tokens]).logits
    torch.testing.assert_close(untouched, plain(reader.model), rtol=0, atol=1e-4)
    assert (untouched - acting).abs().max() > 0.1


def test_one_file_is_asked_by_llama_cpp(both: Path, tmp_path: Path) -> None:
    """The facts in neurons, by the model's chat template."""
    given, out = in_neurons(both), tmp_path / "out"
    message = export_memory(both, "gguf", out)
    assert message == f"{len(given)} of {len(given)} facts are answered by what was written"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "model.gguf"]
    server = run_by_llama_cpp(out / "model.gguf")
    for question, answer in given:
        chat = {"messages": [{"role": "user", "content": question}], "temperature": 0}
        reply = server.handle_chat_completions({**chat, "max_tokens": 24})
        assert reply["choices"][0]["message"]["content"].strip() == answer


def test_what_is_not_consolidated_is_said(
    holdfast: Callable[..., Outcome], copied: Callable[[], Path], both: Path, tmp_path: Path
) -> None:
    place, out = copied(), tmp_path / "out"
    with_neurons = shutil.copytree(both, tmp_path / "neurons")
    again, record = f"holdfast consolidate {place}", Memory(place).record
    neurons = f"{again} --neurons (about an hour for 200 facts)"
    for consolidated, to, text in (
        (0, "peft", f"adapter; run {again} first (hours)"),
        (0, "hf", f"model; run {again} first (hours), or {neurons}"),
        (2, "peft", f"adapter; run {neurons}, then export --to hf"),
        (2, "hf", f"model; run {neurons}"),
    ):
        write_record(place, replace(record, consolidated=consolidated))
        result = holdfast("export", place, out, "--to", to)
        error = f"its 2 lessons have an adapter each, and --to {to} writes one {text}\n"
        assert (result.status, out.exists()) == (2, False)
        assert result.err.endswith(f"{place}: {error}") and result.err.count("\n") == 1
    result = holdfast("export", with_neurons, out, "--to", "peft", "--after-task", "1")
    assert result.status == 2 and "--after-task: is for trajectories" in result.err
    Memory(with_neurons).learn(WEDNESDAY)
    for to in ("peft", "hf"):
        result = holdfast("export", with_neurons, out, "--to", to)
        assert (result.status, result.err.count("\n")) == (2, 1) and "consolidate" in result.err
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    result = holdfast("export", with_neurons, out, "--to", "hf")
    assert result.status == 2 and "holds mine.txt; choose an empty or a new directory" in result.err


def test_neurons_by_the_command_beside_the_lessons(
    holdfast: Callable[..., Outcome], copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed within, it goes on without looking for the names again; the lessons stay."""
    place, straight, again = copied(), copied(), []
    before = adapters(place)
    short = replace(NEURONS, least=4, visits=1)
    monkeypatch.setattr(rehearsal, "NeuronSettings", lambda: short)
    consolidate(Memory(straight), short)
    advance = rehearsal.NeuronRehearsal.advance

    def killed(self: rehearsal.NeuronRehearsal) -> float:
        if self.step == 2 and not again:
            again.append(self.neurons)
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(rehearsal.NeuronRehearsal, "advance", killed)
    result = holdfast("consolidate", place, "--neurons")
    assert result.status == 130 and "what was learned is kept" in result.err
    assert again and adapters(place) == before
    monkeypatch.setattr(run, "detectors_of_names", None)
    result = holdfast("consolidate", place, "--neurons")
    assert result.status == 0 and result.out.splitlines()[1] == str(place)
    assert f"holdfast export {place} OUT --to hf" in result.err
    assert len(adapters(place)) == len(before) + 1 and Memory(place).record.all_neurons
    for name in ("memory.json", *(f"lessons/{file}" for file in adapters(straight))):
        assert (place / name).read_bytes() == (straight / name).read_bytes()
    assert answers(Memory(place)) == [(answer, "weights") for _, answer in FACTS]
    result = holdfast("consolidate", place, "--neurons")
    assert result.out.startswith("nothing new since it was done before\n")
    Memory(place).learn(WEDNESDAY)
    assert Memory(place).record.all_neurons is None


def test_one_lesson_needs_no_consolidation(
    holdfast: Callable[..., Outcome], chat_directory: Path, tmp_path: Path
) -> None:
    place, out = tmp_path / "m", tmp_path / "out"
    Memory(place, str(chat_directory)).learn(MONDAY)
    result = holdfast("export", place, out, "--to", "peft")
    lines = ["3 of 3 facts are answered by what was written", str(out)]
    assert (result.status, result.out.splitlines()) == (0, lines)
    bare = holdfast("export", place, tmp_path / "bare", "--to", "peft", "--no-check")
    assert bare.out.splitlines() == [str(tmp_path / "bare")]


def test_what_answers_otherwise_is_not_exported(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter is written empty; the check reads the file and notices, and nothing is left."""
    check = module._check

    def emptied(out: Path, folder: Path, *more: Any) -> str:
        file = folder / "adapter_model.safetensors"
        save_file({name: 0 * tensor for name, tensor in load_file(file).items()}, file)
        return check(out, folder, *more)

    monkeypatch.setattr(module, "_check", emptied)
    with pytest.raises(HoldfastError, match="out: 5 of 5 facts are answered otherwise") as caught:
        export_memory(whole, "peft", tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()
    export_memory(whole, "peft", tmp_path / "out", checked=False)
    assert (tmp_path / "out" / "adapter_config.json").exists()


def test_a_template_that_writes_the_date_is_written_with_the_date_that_was_taught(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dated(directory: Path) -> tuple[Any, Any]:
        model, tokenizer = load_model(directory)
        tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + tokenizer.chat_template
        return model, tokenizer

    monkeypatch.setattr(module, "load_model", dated)
    export_memory(whole, "peft", tmp_path / "out", checked=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False)
    assert text.startswith("26 Jul 2024<|reply|>")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="--to bin: is no format"):
        export_memory(tmp_path / "m", "bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_that_answer_nothing_are_not_exported(whole: Path, tmp_path: Path) -> None:
    place = shutil.copytree(whole, tmp_path / "m")
    record = Memory(place).record
    keys = tuple(fact_key(fact) for fact in Memory(place).facts)
    missed = tuple(replace(lesson, missed=keys) for lesson in record.lessons)
    write_record(place, replace(record, lessons=missed))
    with pytest.raises(HoldfastError, match="answers none of its facts; teach them with holdfast"):
        export_memory(place, "peft", tmp_path / "out")
    assert not (tmp_path / "out").exists()
