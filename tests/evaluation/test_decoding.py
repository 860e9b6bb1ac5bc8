from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.backbone import Backbone
from holdfast.model.generation.decoding import CachedSteps, decode_greedily
from holdfast.model.sequences import batches_by_length

from .backbones import FAMILIES, LESSONS, TEMPLATE, shake, taught, taught_lessons

LIMITS = [0, 1, 7, 40]


@pytest.fixture(scope="module", params=FAMILIES)
def backbone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    model = taught_lessons(request.param, tmp_path_factory)
    shake(model, 0.1, seed=3)
    return model


def generated(backbone: Backbone, prefix: list[int], limit: int) -> list[int]:
    ids = torch.tensor([prefix])
    output = backbone.model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        eos_token_id=sorted(backbone.stop_tokens),
        pad_token_id=backbone.pad_token,
    )
    return output[0, len(prefix) :].tolist()


def prefixes(backbone: Backbone) -> list[list[int]]:
    """Of very different lengths: prompts, a single token, whole lessons."""
    prompts = [backbone.tokenize(TEMPLATE.prompt(item)) for item, _ in LESSONS[::2]]
    return [[5], *prompts, *(taught(backbone, index)[:-2] for index in range(0, len(LESSONS), 5))]


@pytest.fixture(scope="module")
def said(backbone: Backbone) -> list[list[int]]:
    """What each prefix is continued by; less is said where the limit is lower."""
    return [generated(backbone, row, max(LIMITS)) for row in prefixes(backbone)]


@pytest.mark.parametrize("tokens_in_cache", [1, 1 << 20])
def test_equals_generate(backbone: Backbone, said: list[list[int]], tokens_in_cache: int) -> None:
    rows = prefixes(backbone)
    limits = [LIMITS[index % 4] for index in range(len(rows))]
    ours = decode_greedily(backbone, rows, limits, tokens_in_cache=tokens_in_cache)
    assert ours == [tokens[:limit] for tokens, limit in zip(said, limits, strict=True)]


def test_the_cache_holds_no_more_places_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    begin = CachedSteps.begin

    def noted(self: CachedSteps, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        rows.append(len(prompts))
        return begin(self, prompts)

    monkeypatch.setattr(CachedSteps, "begin", noted)
    model = FAMILIES["qwen3"]()
    prompts, limits = [[5, 6, number] for number in range(7, 17)], [2, 3] * 5
    decode_greedily(model, prompts, limits, tokens_in_cache=20)
    rows.pop(0)  # of the probe
    assert sum(rows) == 10 and max(rows) * 6 <= 20 + 5


def test_every_stop_token_stops(backbone: Backbone, said: list[list[int]]) -> None:
    rows, free = prefixes(backbone), [tokens[:20] for tokens in said]
    # Any token that is said may be made a stop: then the text ends with it.
    stop = free[1][3]
    backbone.stop_tokens |= {stop}
    plain = [generated(backbone, row, 20) for row in rows]
    assert decode_greedily(backbone, rows, [20] * len(rows)) == plain
    assert plain != free
    assert plain[1][-1] == stop
    backbone.stop_tokens -= {stop}


def test_a_row_that_is_finished_leaves_alone(backbone: Backbone, said: list[list[int]]) -> None:
    rows = prefixes(backbone)
    counts = [1 + index % 5 for index in range(len(rows))]
    seen: list[int] = []

    def finished(row: int, tokens: list[int]) -> bool:
        seen.append(row)
        return len(tokens) == counts[row]

    ours = decode_greedily(backbone, rows, [20] * len(rows), finished)
    assert ours == [tokens[:count] for tokens, count in zip(said, counts, strict=True)]
    assert len(seen) <= sum(counts)  # nothing is asked about a row that has left


def test_nothing_to_decode(backbone: Backbone) -> None:
    assert decode_greedily(backbone, [], []) == []
    assert decode_greedily(backbone, [[1, 2]], [0]) == [[]]


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200))
def test_batches_hold_every_row_once_and_keep_to_the_limit(lengths: list[int], limit: int) -> None:
    grouped = list(batches_by_length(lengths, limit))
    assert sorted(row for batch in grouped for row in batch) == list(range(len(lengths)))
    for batch in grouped:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= limit
    assert list(batches_by_length(lengths, limit, [])) == []  # of a process that has no row
