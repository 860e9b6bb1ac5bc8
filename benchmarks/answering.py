"""Four ways of asking a model by generation, and the verdicts that they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from holdfast.streams import Item
from reference.recall import first_box, is_correct
from reference.sequences import prompt, tokenise

NO_TOKEN = 1 << 30  # as the end of a sequence: it never comes


class AfterBox(StoppingCriteria):
    """Ends a generation of one sequence once its first box is closed."""

    def __init__(self, tokenizer: Any, start: int) -> None:
        self._tokenizer = tokenizer
        self._start = start

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        text = self._tokenizer.decode(input_ids[0, self._start :])
        return torch.tensor([first_box(text) is not None])


@torch.no_grad()
def one_by_one(
    model: Any,
    tokenizer: Any,
    questions: Sequence[Item],
    seed: int | None,
    *,
    ending: str,
    new_tokens: int,
) -> list[bool]:
    """Whether each item is answered, generated alone.

    ending: ``never`` (all ``new_tokens``), ``eos`` (the plain reference) or ``box``.
    """
    verdicts = []
    for item in questions:
        ids = torch.tensor([tokenise(tokenizer, prompt(item.question), seed)])
        stop: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id}
        if ending == "never":
            stop = {"eos_token_id": NO_TOKEN}
        if ending == "box":
            stop["stopping_criteria"] = StoppingCriteriaList([AfterBox(tokenizer, ids.shape[1])])
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new_tokens,
            pad_token_id=tokenizer.pad_token_id,
            **stop,
        )
        verdicts.append(_verdict(output[0, ids.shape[1] :].tolist(), tokenizer, item))
    return verdicts


@torch.no_grad()
def in_batches(
    model: Any,
    tokenizer: Any,
    questions: Sequence[Item],
    seed: int | None,
    *,
    size: int,
    new_tokens: int,
) -> list[bool]:
    """Whether each item is answered, ``size`` generated side by side until all have stopped."""
    verdicts = []
    for start in range(0, len(questions), size):
        chosen = questions[start : start + size]
        prompts = [tokenise(tokenizer, prompt(item.question), seed) for item in chosen]
        longest = max(map(len, prompts))
        pads = [longest - len(ids) for ids in prompts]
        fill = tokenizer.pad_token_id
        output = model.generate(
            input_ids=torch.tensor(
                [[fill] * n + ids for n, ids in zip(pads, prompts, strict=True)]
            ),
            attention_mask=torch.tensor([[0] * n + [1] * (longest - n) for n in pads]),
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=fill,
        )
        verdicts += [
            _verdict(row, tokenizer, item)
            for row, item in zip(output[:, longest:].tolist(), chosen, strict=True)
        ]
    return verdicts


def _verdict(tokens: list[int], tokenizer: Any, item: Item) -> bool:
    """What follows the end of the sequence is no answer, whoever generated past it."""
    end = tokens.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in tokens else len(tokens)
    text = tokenizer.decode(
        tokens[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return is_correct(first_box(text), item.answer, item.aliases)
