"""A bare loop with anchors and the plain reference, in float64: the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor

from holdfast.integrations import Anchored, boundary
from holdfast.integrations.boundary import AT_ONCE, general_text, samples_before, written_by
from holdfast.integrations.method import given_beginning
from holdfast.integrations.task import Task
from holdfast.learning.config import RunConfig
from holdfast.model.chat import chat_form
from holdfast.model.sequences import pad_right
from reference import translation
from reference.learner import run_task
from reference.state import Settings, State
from reference.state import Task as ReferenceTask
from reference.translation import position_draws, uniforms
from tests.model.chat_models import chat_tokenizer
from tests.tiny import byte_tokenizer, exact_backbone, short_sequences

TARGETS = ["v_proj", "down_proj"]
ANCHORS: dict[str, dict[str, Any]] = {
    "si": {"strength": 0.7},
    "online_ewc": {"strength": 20.0, "decay": 0.9, "sequences": 3},
    "kfac": {"strength": 3.0},
    "pairs": {"strength": 3.0, "positions": 9, "general": 6},
    "sd": {"strength": 0.5},
    "general": {"strength": 0.8, "texts": 5, "temperature": 1.5},
    "replay": {"weight": 0.6},
}
RULES: dict[str, dict[str, Any]] = {
    "shared": {},
    "merge": {},
    "olora": {"overlap": 0.05, "factor_norm": 0.01},
    "osrm": {"sequences": 4, "basis": "lapack"},
}
EPOCHS, BATCH, SEED, ITEMS, GENERAL, LR = 2, 2, 5, 5, 3, 0.01
CPU = torch.device("cpu")


def peft_model(seed: int = 0, **options: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LoraConfig(r=2, lora_alpha=4, target_modules=TARGETS, **options)
        with warnings.catch_warnings():
            # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            return get_peft_model(exact_backbone().model, config)


def anchored_of(model: Any, anchors: Any, rule: str, **options: Any) -> Anchored:
    return Anchored(
        model,
        anchors={name: ANCHORS[name] for name in anchors},
        allocation={rule: RULES[rule]},
        sampling={"samples": 5, "max_new_tokens": 6, "temperature": 1.0, "general": GENERAL},
        curvature={"temperature": 1.5},
        begin_with=[7],
        batch_size=BATCH,
        seed=SEED,
        **options,
    )


def batch_of(sequences: list[list[int]]) -> dict[str, Tensor]:
    ids, mask = pad_right(sequences, 0, CPU)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, -100)}


def exact_loss(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """transformers' own loss is taken in float32."""
    given = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**given, use_cache=False).logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())


def minibatches_of(sequences: list[list[int]]) -> list[list[list[int]]]:
    return [sequences[start : start + BATCH] for start in range(0, len(sequences), BATCH)]


def windows_of(minibatches: list[Any], accumulation: int) -> list[list[Any]]:
    return [
        minibatches[start : start + accumulation]
        for start in range(0, len(minibatches), accumulation)
    ]


class Loop:
    """Somebody's training script."""

    def __init__(self, anchored: Anchored, accumulation: int = 1) -> None:
        self.anchored, self.accumulation = anchored, accumulation
        self.model = anchored.reader.model

    def epochs(self, sequences: list[list[int]], stop_after: int | None = None) -> None:
        factors = list(self.anchored.workspace.parameters().values())
        windows = windows_of(minibatches_of(sequences), self.accumulation) * EPOCHS
        self.optimizer = torch.optim.AdamW(factors, lr=LR, weight_decay=0.01)
        self.steps(windows[:stop_after])

    def steps(self, windows: list[list[list[list[int]]]]) -> None:
        factors = list(self.anchored.workspace.parameters().values())
        self.model.train()
        for window in windows:
            for minibatch in window:
                loss = self.anchored.loss(batch_of(minibatch), exact_loss, accumulation=len(window))
                (loss / len(window)).backward()
            self.anchored.adjust_gradient()
            torch.nn.utils.clip_grad_norm_(factors, 1.0)
            with self.anchored.step():
                self.optimizer.step()
            self.optimizer.zero_grad()


def settings_of(anchors: Any, rule: str, accumulation: int) -> Settings:
    values = {name: ANCHORS[name] for name in anchors} | (
        {rule: RULES[rule]} if RULES[rule] else {}
    )
    values |= {
        "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": TARGETS},
        "optim": {"lr": LR, "batch_size": BATCH, "accumulation": accumulation},
        "sampling": {"general": GENERAL},
        "curvature": {"temperature": 1.5},
    }
    config = RunConfig.of({**values, "method": "_".join((*anchors, rule))})
    return translation.settings_of(config, pad=0)


def reference_task(anchored: Anchored, sequences: list[list[int]], general: Any) -> ReferenceTask:
    """The same task as the loop's, whose draws are the loop's."""
    task = anchored.task
    assert task is not None
    minibatches = minibatches_of(sequences) * EPOCHS
    texts = "general" in anchored.anchors
    twin = Task(anchored, task.number, task.start, task.replay, task.fingerprint)
    partners = [
        [task.replay[index] for index in twin.next_replay()] if task.replay else []
        for _ in minibatches
    ]
    layers = anchored.workspace.layers
    text = anchored.anchors["general"].text(anchored.states["general"]) if texts else None
    twin.text = text
    return ReferenceTask(
        sequences=sequences,
        minibatches=minibatches,
        minibatches_per_epoch=len(minibatches) // EPOCHS,
        replay_minibatches=partners if task.replay else None,
        general_minibatches=[
            [text.sequences[index] for index in twin.next_text()] for _ in minibatches
        ]
        if text is not None
        else [],
        written=general,
        uniforms=uniforms(SEED, "curvature labels", task.number, general),
        own_uniforms=uniforms(SEED, "own curvature labels", task.number, sequences),
        position_draws={
            "own": position_draws(SEED, "own positions labels", task.number, sequences),
            "general": position_draws(SEED, "positions labels", task.number, general),
        },
        past_items=anchored.past_items,
        initial_factors={
            name: (task.start[f"{name}.lora_A"], task.start[f"{name}.lora_B"]) for name in layers
        },
    )


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-8, atol=1e-9)


def assert_same(anchored: Anchored, trained: dict[str, Tensor], state: State, result: Any) -> None:
    for name, (lora_A, lora_B) in result.factors.items():
        assert_close(trained[f"{name}.lora_A"], lora_A)
        assert_close(trained[f"{name}.lora_B"], lora_B)
    for name, layer in anchored.workspace.layers.items():
        dense = layer.weight + layer.scale * layer.lora_B @ layer.lora_A
        assert_close(dense.detach(), result.dense[name])
    theirs = {
        ("si", "importance"): state.importance,
        ("si", "reference"): state.reference,
        ("online_ewc", "fisher"): state.fisher,
    }
    for (anchor, part), expected in theirs.items():
        if anchor in anchored.anchors:
            assert expected is not None
            for name, tensor in anchored.states[anchor][part].items():
                assert_close(tensor, expected[name.replace(".lora_", ".")])


def both(anchors: Any, rule: str, tasks: int, accumulation: int = 1) -> None:
    anchored = anchored_of(peft_model(), anchors, rule)
    loop = Loop(anchored, accumulation)
    state, settings = State(exact_backbone().model), settings_of(anchors, rule, accumulation)
    for number in range(1, tasks + 1):
        sequences = short_sequences(ITEMS, seed=number)
        general = samples_before(anchored, number)[1]
        reads = number == 1 and bool({"kfac", "pairs"} & set(anchors))
        assert len(general) == (GENERAL if reads else 0)
        anchored.begin(sequences)
        assert anchored.past_items == (number - 1) * ITEMS
        given = reference_task(anchored, sequences, general)
        loop.epochs(sequences)
        trained = anchored.workspace.copied()
        terms = {name: float(term) for name, term in anchored.terms.items()}
        anchored.end()
        result = run_task(state, settings, given)
        assert_same(anchored, trained, state, result)
        if number > 1:
            assert all(terms[name] > 0 for name in anchors)
            if accumulation == 1:
                last = result.steps[-1]
                names = {"sd": "function", "online_ewc": "ewc"}
                for name in anchors:
                    assert terms[name] == pytest.approx(last[names.get(name, name)], rel=1e-7)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("anchors", [(), *((name,) for name in ANCHORS), tuple(ANCHORS)])
def test_every_anchor_with_every_rule(anchors: tuple[str, ...], rule: str) -> None:
    both(anchors, rule, tasks=3 if len(anchors) > 1 else 2)


def test_general_text_begins_as_one_says() -> None:
    """With what every conversation of a chat model begins with, say; then comes a random token."""
    anchored = anchored_of(peft_model(), ["general"], "shared")
    chats = general_text(anchored, 1, 6)
    assert {chat[0] for chat in chats} == {7} and len({chat[1] for chat in chats}) > 2
    anchored.given_begin = []
    assert [chat[0] for chat in general_text(anchored, 1, 6)] == [chat[1] for chat in chats]


def test_general_text_begins_with_no_stop_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,000 draws from 257 tokens; unless a transformers tokenizer names the stop token 0.

    Nor with a token that the model's table has no row for.
    """
    monkeypatch.setattr(boundary, "samples", lambda _, begins, *__: begins)
    bytes_apart = byte_tokenizer()
    for tokenizer, tokens in (
        (None, 257),
        (bytes_apart.backend_tokenizer, 257),
        (bytes_apart, 256),
        (byte_tokenizer(merges=[("a", "b")]), 256),
    ):
        anchored = anchored_of(peft_model(), ["general"], "shared", tokenizer=tokenizer)
        drawn = {token for _, token in general_text(anchored, 1, 3000)}
        assert len(drawn) == tokens and (0 in drawn) == (tokens == 257) and max(drawn) == 256


def test_chats_begin_as_the_template_says() -> None:
    tokenizer = chat_tokenizer()
    assert given_beginning("chat", tokenizer, 257) == list(chat_form(tokenizer).prefix) != []
    assert given_beginning(None, tokenizer, 9) == []
    assert given_beginning((3, 4), None, 9) == [3, 4]


def test_accumulation_with_a_short_last_window() -> None:
    """Of a rule that has a penalty of its own."""
    both(tuple(ANCHORS), "olora", tasks=2, accumulation=2)


@pytest.mark.parametrize("rule", RULES)
def test_saved_and_loaded_it_goes_on_to_the_same_bits(rule: str, tmp_path: Path) -> None:
    """Stopped within the second task; the loop keeps its optimiser's state."""
    stop = 3
    tasks = [short_sequences(3, seed=number) for number in (1, 2, 3)]

    def learned(anchored: Anchored, number: int) -> None:
        anchored.begin(tasks[number])
        Loop(anchored).epochs(tasks[number])
        anchored.end()

    straight = anchored_of(peft_model(), ANCHORS, rule)
    for number in range(3):
        learned(straight, number)

    first = anchored_of(peft_model(), ANCHORS, rule)
    learned(first, 0)
    first.begin(tasks[1])
    loop = Loop(first)
    loop.epochs(tasks[1], stop_after=stop)
    first.save(tmp_path)

    again = anchored_of(peft_model(seed=3), ANCHORS, rule)
    again.load(tmp_path)
    again.begin(tasks[1])
    other = Loop(again)
    factors = list(again.workspace.parameters().values())
    other.optimizer = torch.optim.AdamW(factors, lr=LR, weight_decay=0.01)
    other.optimizer.load_state_dict(loop.optimizer.state_dict())
    other.steps((windows_of(minibatches_of(tasks[1]), 1) * EPOCHS)[stop:])
    again.end()
    learned(again, 2)

    for name, tensor in straight.workspace.copied().items():
        assert torch.equal(again.workspace.copied()[name], tensor)
    for name, tensor in straight.workspace.dense().items():
        assert torch.equal(again.workspace.dense()[name], tensor)
    for name, anchor in straight.anchors.items():
        ours, theirs = anchor.pack(again.states[name]), anchor.pack(straight.states[name])
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_samples_are_named_by_task_and_batch() -> None:
    """More than are drawn at once are not the first ones again, nor those before another task."""
    sampling = {"samples": 2 * AT_ONCE, "max_new_tokens": 4}
    anchored = Anchored(peft_model(), anchors=["replay"], sampling=sampling, begin_with=[7])
    anchored.stop_tokens = set()
    second, third = (samples_before(anchored, task)[0] for task in (2, 3))
    assert samples_before(anchored, 2)[0] == second != third
    assert second[:AT_ONCE] != second[AT_ONCE:]


def test_curvature_on_what_the_model_wrote_needs_no_replay() -> None:
    anchored = Anchored(
        peft_model(),
        anchors={"kfac": {"source": "written"}},
        sampling={"samples": 3, "max_new_tokens": 4},
        begin_with=[7],
    )
    for number in (1, 2):
        anchored.begin(short_sequences(2))
        assert ("penalty" in anchored.states["kfac"]) == (number > 1)
        anchored.end()


def test_orders_of_replay_are_named_by_task_and_pass() -> None:
    anchored: Any = SimpleNamespace(seed=SEED, batch_size=20)
    second, third = (Task(anchored, number, {}, [[1, 2]] * 20, "") for number in (2, 3))
    orders = [task.next_replay() for task in (second, second, third)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({str(order) for order in orders}) == 3


def test_no_token_that_was_given_is_one_that_the_model_wrote() -> None:
    """Of general text that is what one begins with and the random token."""
    anchored = anchored_of(peft_model(), ("kfac",), "shared")
    assert anchored.begin_with == anchored.given_begin == [7]
    written = written_by(anchored, [[7, 5, 6]], [[7, 3, 4, 5]])
    assert written.labels == [[-100, 5, 6], [-100, -100, 4, 5]]
