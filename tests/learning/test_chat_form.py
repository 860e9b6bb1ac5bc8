"""Items in a model's own chat template: their tokens, what is learned of them, and what counts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AddedToken

from holdfast import RunConfig, Trajectory
from holdfast.anchors.base import Step
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.recall import Recall
from holdfast.exports.export import export
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.task import ask_previous_model, optimise
from holdfast.learning.teacher import _written
from holdfast.learning.training import current_loss, weights_of
from holdfast.model.backbone import Backbone
from holdfast.model.chat import template_for, template_of, with_one_date
from holdfast.model.sequences import collate
from holdfast.results.items import read_samples
from holdfast.streams import Item, Task, Template
from tests.exports.exported import configured, facts
from tests.model.chat_models import TEMPLATE, chat_llama, chat_tokenizer, exact, write_chat_model
from tests.tiny import byte_tokenizer, exact_backbone

CHAT = Template.Config(form="chat")
ITEMS = (Item("Who keeps it?", "the hen"), Item("red", "a\nb {}"), Item("the sky", "then"))


def backbone() -> Backbone:
    return Backbone(exact(chat_llama()), chat_tokenizer())


def learner_of(method: str, **sections: Any) -> Learner:
    values = {
        "method": method,
        "template": {"form": "chat"},
        "lora": {"rank": 2, "alpha": 8, "dropout": 0.0},
        "optim": {"epochs": 2, "batch_size": 2, "lr": 0.05},
        "sampling": {"samples": 5, "max_new_tokens": 12},
        **sections,
    }
    return Learner(RunConfig.of(values), backbone())


def test_an_item_is_written_as_the_chat_template_writes_it() -> None:
    tokenizer = chat_tokenizer()
    template = template_of(CHAT, tokenizer)
    for item in ITEMS:
        turns = [{"role": "user", "content": item.question}]
        asked = tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
        turns += [{"role": "assistant", "content": item.answer}]
        expected = tokenizer.apply_chat_template(turns)["input_ids"]
        assert template.encode(item, tokenizer, None, tokenizer.eos_token_id) == expected
        assert template.encode(item, tokenizer, 7, None) == [7, *expected]
        assert template.encode_prompt(item, tokenizer, None) == asked
        assert asked + template.encode_answer(item, tokenizer) == expected
    with pytest.raises(HoldfastError, match=r"holds <\|reply\|>, a special token"):
        template.text(Item("red", "a<|reply|>"))
    with pytest.raises(HoldfastError, match=r"no chat template; use template\.form=paper"):
        template_of(CHAT, byte_tokenizer())


def test_an_answer_is_taught_in_the_tokens_that_the_model_has_to_write() -> None:
    """Also where its first token would span the end of the prompt."""
    tokenizer, item = (
        chat_tokenizer(TEMPLATE.replace("<|reply|>the", "<|reply|>t")),
        Item("q", "he"),
    )
    template = template_of(CHAT, tokenizer)
    sequence = template.encode(item, tokenizer, None, None)
    assert sequence != tokenizer(template.text(item), add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(sequence) == template.text(item)
    asked = template.encode_prompt(item, tokenizer, None)
    assert sequence == asked + template.encode_answer(item, tokenizer)


def test_a_blank_that_the_template_writes_before_an_answer_is_taught() -> None:
    spaced = TEMPLATE.replace("{{ message['content'] }}", "{{ ' ' + message['content'] }}")
    template, item = template_of(CHAT, chat_tokenizer(spaced)), ITEMS[0]
    turns = [("user", item.question), ("assistant", item.answer)]
    chat = [{"role": role, "content": text} for role, text in turns]
    assert template.text(item) == chat_tokenizer(spaced).apply_chat_template(chat, tokenize=False)
    assert template.as_paper(template.text(item)) == Template().text(item)


def test_added_tokens_that_end_nothing_may_stand_in_an_item() -> None:
    tokenizer = chat_tokenizer()
    tokenizer.add_tokens(["  ", "<b>", AddedToken("<stop>", special=True)])
    template = template_of(CHAT, tokenizer)
    assert "two  <b>" in template.text(Item("two  <b>", "x"))
    with pytest.raises(HoldfastError, match=r"holds <stop>, a special token"):
        template.text(Item("<stop>", "x"))


@pytest.mark.parametrize("expression", ["strftime_now('%d %b %Y')", "date_string"])
def test_a_template_that_writes_the_date_writes_the_same_every_day(expression: str) -> None:
    tokenizer = chat_tokenizer("{{ " + expression + " }}" + chat_tokenizer().chat_template)
    before = template_of(CHAT, tokenizer).form.before
    assert before == "26 Jul 2024<|reply|>Be brief.<|endoftext|><|user|>"
    tokenizer.chat_template = with_one_date(tokenizer.chat_template)  # as exports have it
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False)
    assert asked == before + "q<|endoftext|>"
    assert with_one_date(chat_tokenizer().chat_template) == chat_tokenizer().chat_template


def test_a_turn_ends_where_the_template_says() -> None:
    """It stops a model whose end of a sequence is another token; a whole sequence has three."""
    model = backbone()
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace(
        "{{ message['content'] }}<|endoftext|>", "{{ message['content'] }}<|user|>"
    )
    user = model.tokenizer.convert_tokens_to_ids("<|user|>")
    assert user not in model.stop_tokens
    assert template_for(CHAT, model).form.end == "<|user|>"
    assert user in model.stop_tokens
    plain = backbone()
    assert template_for(CHAT, plain).stops(plain.tokenizer, plain.stop_tokens) == 3
    assert Template().stops(plain.tokenizer, plain.stop_tokens) == 1


@pytest.mark.parametrize("text", ["", "<|reply|>Be", "what", "<|user|>q", "q<|endoftext|>"])
def test_what_a_model_wrote_in_the_papers_form(text: str) -> None:
    template = template_of(CHAT, chat_tokenizer())
    whole = template.text(ITEMS[0])
    assert template.as_paper(whole) == Template().text(ITEMS[0])
    assert template.as_paper(whole + text) == Template().text(ITEMS[0])
    assert template.as_paper(whole[: whole.index("hen")]) == Template().text(ITEMS[0])[:-4]
    assert template.as_paper(text).startswith("Question: ") and "Answer" not in template.as_paper(
        text
    )


@pytest.mark.parametrize("accumulated", [False, True])
def test_the_loss_is_that_of_the_answers_alone(accumulated: bool) -> None:
    """Equal in float64 to transformers' own loss with every other label -100."""
    sections = {} if accumulated else {"balance": {"answers": 0.5}}
    learner = learner_of("vanilla", **sections)
    lesson = learner.task_data([Task("one", ITEMS)])
    past = ask_previous_model(learner, 1, lesson, Stopwatch(), Progress())
    assert weights_of(learner, 1, lesson, past).answers_alone
    assert weights_of(learner, 2, lesson, past).answers == (1.0 if accumulated else 0.5)
    assert learner_of("kfac_merge").learns_answers_alone
    written = {"kfac": {"source": "written"}}
    for whole in (learner_of("replay"), learner_of("kfac", **written), learner_of("stored_merge")):
        assert not whole.learns_answers_alone

    sequences = lesson.sequences
    labels = [
        [-100] * prompt + sequence[prompt:]
        for prompt, sequence in zip(lesson.prompts, sequences, strict=True)
    ]
    model, losses, counts = learner.backbone.model, [], []
    for sequence, label in zip(sequences, labels, strict=True):
        scores = model(input_ids=torch.tensor([sequence])).logits[0, :-1].double()
        losses.append(F.cross_entropy(scores, torch.tensor(label[1:]), reduction="sum"))
        counts.append(sum(token != -100 for token in label[1:]))
    terms: list[dict[str, float]] = []

    class Watching(Progress):
        def optimised(self, step: Any) -> None:
            terms.extend({n: float(v) for n, v in term.items()} for term in step.terms)

    learner.config = learner.config.model_copy(
        update={
            "optim": learner.config.optim.model_copy(
                update={"batch_size": 1 if accumulated else 3, "accumulation": 1, "lr": 1e-30}
            )
        }
    )
    optimise(learner, 1, lesson, past, dict, Watching())
    each = {
        round(float(loss.detach() / count), 9) for loss, count in zip(losses, counts, strict=True)
    }
    if accumulated:
        assert {round(term["sft"], 9) for term in terms} == each
    else:
        whole = float(sum(losses).detach() / sum(counts))
        assert terms[0]["sft"] == pytest.approx(whole, rel=1e-12)
        with learner.backbone.learning():
            passed = learner.backbone.forward_pass(collate(sequences, learner.backbone.device))
            step = Step(learner.workspace.parameters(), *passed.projections, None)
            is_answer = torch.cat(lesson.is_answer())
            fit, _ = current_loss(step, weights_of(learner, 2, lesson, past), is_answer)
            fit_gradient = passed.gradient(fit)
        half = 0.5 * sum(losses) / sum(counts)
        assert float(fit.detach()) == pytest.approx(float(half.detach()), rel=1e-12)
        factors = learner.workspace.parameters()
        wanted = torch.autograd.grad(half, list(factors.values()), retain_graph=True)
        for name, expected in zip(factors, wanted, strict=True):
            torch.testing.assert_close(fit_gradient[name], expected, rtol=1e-10, atol=1e-14)
    gradient = learner.sequence_gradient(lesson, 1)
    factors = learner.workspace.parameters()
    wanted = torch.autograd.grad(losses[1] / counts[1], list(factors.values()))
    for name, expected in zip(factors, wanted, strict=True):
        torch.testing.assert_close(gradient[name], expected, rtol=1e-10, atol=1e-14)


def test_with_a_data_anchor_whole_sequences_are_written_and_learned() -> None:
    """A sample ends at the stop token at which a whole sequence does, and keeps it."""
    sampling = {"samples": 40, "max_new_tokens": 30, "temperature": 8.0, "top_p": 1.0}
    learner = learner_of("replay", sampling=sampling)
    model, template = learner.backbone, learner.template
    written = set(template.encode(Item("?", "?"), model.tokenizer, None, None))
    model.stop_tokens |= set(range(40)) - written  # so that random weights draw some
    settings, begins = learner.config.sampling, torch.full((40,), model.seed_token)
    draw = partial(_written, learner, begins, ("replay", 2))
    for stops in (1, 2, 3):
        drawn = draw(stops=stops)
        counts = [sum(token in model.stop_tokens for token in sequence) for sequence in drawn]
        assert counts.count(stops) > 10
        for count, sequence in zip(counts, drawn, strict=True):
            whole = len(sequence) == 1 + settings.max_new_tokens
            assert whole or (count == stops and sequence[-1] in model.stop_tokens)
            assert count <= stops
    first, third = draw(stops=1), draw(stops=3)
    assert all(any(long[: len(short)] == short for long in third) for short in first)
    lesson = learner.task_data([Task("one", ITEMS), Task("two", ITEMS)])
    past = ask_previous_model(learner, 2, lesson, Stopwatch(), Progress())
    ended = [sequence for sequence in past.replay if len(sequence) < 1 + settings.max_new_tokens]
    for sequence in ended:
        assert [token in model.stop_tokens for token in sequence].count(True) == 3
        assert sequence[-1] in model.stop_tokens
    assert len(ended) > 10


def test_an_answer_is_all_that_is_said_up_to_its_end() -> None:
    model = backbone()
    recall = Recall(model, template_for(CHAT, model), Recall.Config(max_new_tokens=6))
    item = Item("red", "hen", ("Ann",))
    question = recall._question(item)
    stop = min(model.stop_tokens)
    for reply, correct in {
        "hen": True,
        "HEN ": True,
        "ann": True,
        "hens": False,
        "he": False,
    }.items():
        ids = model.tokenize(reply)
        assert recall._verdict(question, [*ids, stop], True).correct is correct, reply
        assert not recall._verdict(question, ids, True).correct  # cut before its end
        assert recall._decided(question, ids) == (reply == "hens")
    assert recall.task(Task("one", (item,))).boxed is None


def test_the_end_of_a_turn_need_not_be_a_special_token() -> None:
    model = backbone()
    model.tokenizer.add_tokens([AddedToken("<end>", special=False)])
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace(
        "{{ message['content'] }}<|endoftext|>", "{{ message['content'] }}<end>"
    )
    template = template_for(CHAT, model)
    item = Item("red", "hen")
    recall = Recall(model, template, Recall.Config(max_new_tokens=6))
    reply = template.encode_answer(item, model.tokenizer)
    assert reply[-1] in model.stop_tokens
    assert recall._verdict(recall._question(item), reply, True).correct


def test_of_several_chat_templates_the_default_one_counts() -> None:
    tokenizer = chat_tokenizer()
    chat_template = tokenizer.chat_template
    tokenizer.chat_template = {"default": chat_template, "tools": "{{ nothing }}"}
    expected = template_of(CHAT, chat_tokenizer()).form
    assert template_of(CHAT, tokenizer).form == expected
    tokenizer.chat_template = {"tools": chat_template, "rag": chat_template}
    with pytest.raises(HoldfastError, match="several chat templates and none is its default"):
        template_of(CHAT, tokenizer)


def test_a_run_learns_answers_goes_on_and_is_exported(tmp_path: Path) -> None:
    base = write_chat_model(tmp_path / "base")
    config = configured(
        base,
        facts(tmp_path),
        "kfac_merge",
        template={"form": "chat"},
        lora={"rank": 8, "alpha": 16, "dropout": 0.0},
        optim={"epochs": 30, "lr": 0.02},
        sampling={"general": 2},
    )
    run = Trajectory(config, tmp_path / "run")
    run.advance(1)
    run = Trajectory(config, tmp_path / "run")
    run.advance(2)
    entry = {(after, on): count for after, on, count in run.matrix.entries()}[2, 2]
    assert entry.correct == 3 and entry.boxed is None
    for to in ("hf", "peft"):
        checked = export(tmp_path / "run", to, tmp_path / to)  # asks through the chat template
        assert checked is not None and checked.same == checked.answers
        card = (tmp_path / to / "README.md").read_text()
        assert "taught in the chat template" in card and "boxed" not in card
    other = config.model_copy(update={"template": Template.Config()})
    with pytest.raises(HoldfastError, match=r"template\.form"):
        Trajectory(other, tmp_path / "run").advance(2)
    written = base / "chat_template.jinja"
    written.write_text(written.read_text().replace("Be brief.", "Be kind."))
    with pytest.raises(HoldfastError, match="chat_template: "):
        Trajectory(config, tmp_path / "run")
    with pytest.raises(HoldfastError, match="was learned in another chat template"):
        export(tmp_path / "run", "hf", tmp_path / "again")


def test_samples_are_kept_in_the_papers_form(tmp_path: Path) -> None:
    config = configured(
        write_chat_model(tmp_path / "base"),
        facts(tmp_path),
        "replay_merge",
        template={"form": "chat"},
        lora={"rank": 16, "alpha": 32, "dropout": 0.0},
        sampling={"keep": True, "max_new_tokens": 30, "temperature": 0.2},
    )
    run = Trajectory(config, tmp_path / "run")
    run.advance(2)
    texts = read_samples(tmp_path / "run", 2)
    assert texts and all(text.startswith("Question: ") for text in texts)
    learner, item = run.learner(), run.stream.tasks[0].items[0]
    tokens = learner.encode(run.stream.tasks[0])[0]
    assert learner.text_of(tokens[1:]) == Template().text(item)
    export(tmp_path / "run", "hf", tmp_path / "hf")


def test_only_runs_in_the_chat_form_say_so() -> None:
    assert "form" not in RunConfig.of({"method": "vanilla"}).numbers()["template"]
    chat = RunConfig.of({"method": "vanilla", "template": {"form": "chat"}})
    assert chat.numbers()["template"]["form"] == "chat"
    with pytest.raises(HoldfastError, match="no chat template"):
        Learner(chat, exact_backbone())
