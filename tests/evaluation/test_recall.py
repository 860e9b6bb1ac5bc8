from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.boxed import OPENING, Match
from holdfast.evaluation.recall import Recall, Verdict
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone
from holdfast.streams import Item, Task, symbol_qa
from reference import recall as reference

from .backbones import (
    BLANK,
    END,
    FAMILIES,
    LESSONS,
    TEMPLATE,
    llama,
    qwen3,
    shake,
    taught,
    taught_lessons,
    teach,
)

ITEMS = [item for item, _ in LESSONS]
STEPS, LIMIT = 100, 64


@pytest.fixture(scope="module", params=FAMILIES)
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """A backbone that says after every prompt what its lesson says."""
    return taught_lessons(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def texts(good: Backbone) -> list[str]:
    """What the good backbone says on each item."""
    return generated(good, ITEMS, LIMIT)


def generated(backbone: Backbone, items: list[Item], limit: int) -> list[str]:
    """Plain generation, one item at a time."""
    return [
        reference.continuation(
            backbone.model, backbone.tokenizer, item.question, backbone.seed_token, limit
        )
        for item in items
    ]


def scored(items: list[Item], texts: list[str], match: Match) -> list[tuple[bool, bool]]:
    """Correct and boxed, by the reference."""
    scores = []
    for item, text in zip(items, texts, strict=True):
        aliases = () if match == "released" else item.aliases
        content = reference.first_box(text)
        correct = reference.is_correct(content, item.answer, aliases, match != "exact")
        scores.append((correct, OPENING in text))
    return scores


def verdicts(backbone: Backbone, items: list[Item], **settings: Any) -> list[Verdict]:
    return Recall(backbone, TEMPLATE, Recall.Config(**settings)).verdicts(items)


def check(backbone: Backbone, limit: int, items: list[Item] = ITEMS) -> None:
    ours = verdicts(backbone, items, max_new_tokens=limit)
    plain = scored(items, generated(backbone, items, limit), "ignore_case")
    assert [verdict[:2] for verdict in ours] == plain


@pytest.mark.parametrize("match", ["exact", "ignore_case", "released"])
def test_a_good_model_scores_as_if_generated(
    good: Backbone, texts: list[str], match: Match
) -> None:
    ours = verdicts(good, ITEMS, match=match, max_new_tokens=LIMIT)
    assert [verdict[:2] for verdict in ours] == scored(ITEMS, texts, match)
    paths = Counter((verdict.correct, verdict.decoded) for verdict in ours)
    # Verified, certainly wrong, decoded and right, decoded and wrong: each is taken.
    assert set(paths) == {(True, False), (False, False), (True, True), (False, True)}
    assert min(paths.values()) >= 2
    assert {verdict.boxed for verdict in ours} == {True, False}


def test_the_lessons_are_said(good: Backbone, texts: list[str]) -> None:
    """What the equalities compare is rich: each kind of deviation occurs."""
    for text, (_, reply) in zip(texts, LESSONS, strict=True):
        assert text.lstrip().startswith(reply.split(END)[0].replace(BLANK, "").lstrip())
    exact, released, ignore_case = (
        sum(correct for correct, _ in scored(ITEMS, texts, match))
        for match in ("exact", "released", "ignore_case")
    )
    assert max(exact, released) < ignore_case
    # In the third family a prompt's tokens need not open the whole, nor a brace stand alone.
    backbone = FAMILIES["gpt2"]()
    whole = [backbone.tokenize(TEMPLATE.text(item)) for item in ITEMS]
    prompts = [backbone.tokenize(TEMPLATE.prompt(item)) for item in ITEMS]
    assert any(w[: len(p)] != p for w, p in zip(whole, prompts, strict=True))
    assert any(backbone.decode(tokens[-1:]) != "}" for tokens in whole)


def test_a_ruined_model_scores_as_if_generated(good: Backbone) -> None:
    check(good, 4)  # an answer ends at the limit
    whole = {name: weight.clone() for name, weight in good.model.state_dict().items()}
    shake(good, 0.2, seed=0)
    check(good, 24)
    good.model.load_state_dict(whole)


def test_the_embedded_backbone_scores_as_if_generated() -> None:
    backbone = load_backbone(Backbone.Config(name="embedded", precision="float32", device="cpu"))
    teach(backbone, 15, [taught(backbone, index) for index in range(8)], learning_rate=1e-3)
    symbols = symbol_qa(tasks=1, items=4).tasks[0].items
    check(backbone, 24, [*ITEMS[:8], *symbols])


def test_256_tokens_by_default(good: Backbone) -> None:
    items = [item for item in ITEMS if item.question in {"code", "twice", "no brace"}]
    assert Recall.Config().max_new_tokens == 256
    check(good, 256, items)


def test_the_batch_does_not_matter(good: Backbone) -> None:
    at_once = verdicts(good, ITEMS)
    assert verdicts(good, ITEMS, tokens_per_batch=1, tokens_in_cache=1) == at_once
    backwards = verdicts(good, ITEMS[::-1], tokens_per_batch=100, tokens_in_cache=700)
    assert backwards == at_once[::-1]


def test_a_row_counts_each_task(good: Backbone) -> None:
    tasks = [Task("one", tuple(ITEMS[:5])), Task("two", tuple(ITEMS[5:])), Task("3", (ITEMS[0],))]
    recall = Recall(good, TEMPLATE)
    row = recall.row(tasks)
    assert row == [recall.task(task) for task in tasks]
    assert [count.items for count in row] == [5, len(ITEMS) - 5, 1]
    sums = [sum(values) for values in zip(*recall.verdicts(ITEMS[:5]), strict=True)]
    assert [row[0].correct, row[0].boxed, row[0].decoded] == sums
    assert recall.row([]) == []


def test_the_model_keeps_its_mode(good: Backbone) -> None:
    part = next(good.model.children())
    good.model.train()
    part.eval()
    before = [module.training for module in good.model.modules()]
    verdicts(good, ITEMS[:3])
    assert [module.training for module in good.model.modules()] == before
    assert set(before) == {True, False}
    good.model.eval()


def test_dropout_is_off_and_nothing_is_generated_for_a_known_answer() -> None:
    backbone = qwen3()
    items = [Item("key aB3", "Xy9"), Item("capital of Spain", "Madrid")]
    teach(backbone, STEPS, [backbone.tokenize(TEMPLATE.text(item)) for item in items])
    calls = []
    backbone.model.register_forward_hook(lambda *_: calls.append(1))
    (count,) = Recall(backbone, TEMPLATE).row([Task("t", tuple(items))])
    assert count == (2, 2, 2, 0, (True, True))
    assert calls == []  # the pass runs the body alone; decoding would run the whole model


def test_the_replay_token_stands_before_the_prompt() -> None:
    """A model that was taught one answer behind the token, and another one without it."""
    backbone = qwen3()
    seed = backbone.add_replay_token()
    behind, without = Item("key aB3", "Xy9"), Item("key aB3", "Madrid")
    texts = [backbone.tokenize(TEMPLATE.text(item)) for item in (behind, without)]
    teach(backbone, STEPS, [[seed, *texts[0]], texts[1]])
    check(backbone, 32, [behind, without])
    scores = verdicts(backbone, [behind, without], max_new_tokens=32)
    assert [verdict.correct for verdict in scores] == [True, False]


@pytest.mark.parametrize(
    ("bytes_said", "right"), [(["<0x7D>"], True), (["<0x7D>", "<0xE2>"], False)]
)
def test_a_later_byte_can_take_a_closing_brace_back(bytes_said: list[str], right: bool) -> None:
    """A byte decoder shows a whole run of bytes as U+FFFD when it is no text in the end."""
    backbone = llama()
    item = Item("key aB3", "Xy")
    reply = backbone.tokenizer.convert_tokens_to_ids([*bytes_said, END])
    start = backbone.tokenize(TEMPLATE.prompt(item)) + backbone.tokenize(r"\boxed{Xy")
    teach(backbone, STEPS, [start + reply])
    (text,) = generated(backbone, [item], 32)
    assert scored([item], [text], "exact") == [(right, True)]
    assert verdicts(backbone, [item], max_new_tokens=32) == [(right, True, True)]


def test_a_tokenizer_that_normalises_can_still_be_right() -> None:
    backbone = qwen3()
    item = Item("unicode", "cafe\u0301")
    teach(backbone, STEPS, [backbone.tokenize(TEMPLATE.text(item))])
    (text,) = generated(backbone, [item], 32)
    assert reference.first_box(text) == "caf\u00e9"
    assert verdicts(backbone, [item], match="exact") == [(True, True, False)]


@pytest.mark.parametrize(
    ("match", "exact_case", "meant"),
    [
        ("auto", True, "exact"),
        ("auto", False, "ignore_case"),
        ("released", True, "released"),
        ("ignore_case", True, "ignore_case"),
        ("exact", False, "exact"),
    ],
)
def test_auto_follows_the_stream(match: Any, exact_case: bool, meant: Match) -> None:
    recall = Recall(qwen3(), TEMPLATE, Recall.Config(match=match), exact_case=exact_case)
    assert recall.match == meant
    with pytest.raises(HoldfastError, match="max_new_tokens"):
        build(Recall.Config, {"max_new_tokens": 0}, source="run.yaml")
