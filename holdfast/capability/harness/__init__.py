r"""The suites of mathematics and knowledge as tasks of the lm-evaluation-harness.

This package's folder is an include path for the harness. `holdfast capability` runs the same tasks,
with the replay token where it was trained, and without the examples that do not fit a short
context. The harness itself cuts long prompts on the left; ``"shots": 1`` in the metadata makes them
shorter. No special token precedes a prompt, as in Holdfast's training.

```console
lm_eval run --model hf --model_args pretrained=...,add_bos_token=False \
  --include_path "$(python -c 'from holdfast.capability import harness; print(harness.FOLDER)')" \
  --tasks holdfast_gsm8k,holdfast_math,holdfast_mgsm --metadata '{"data_root": "..."}'
```

A context of 512 tokens or fewer needs ``--gen_kwargs max_gen_toks=256``, say.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from holdfast.capability.problems import Errors, Problem, boxed, problems, strings_of_math
from holdfast.capability.prompts import few_shot
from holdfast.streams.hf_dataset import library

FOLDER = Path(__file__).parent
VERSION: float = yaml.safe_load((FOLDER / "common").read_text("utf-8"))["metadata"]["version"]
NO_ANSWER = "[invalid]"  # what the harness's filters return where they find none


def rows(
    suite: str,
    items: Sequence[Problem] | None = None,
    data_root: str | None = None,
    shots: int | None = None,
    language: str = "en",
    redux_errors: Errors = "drop",
    opening: str = "",
    fits: Callable[[str], bool] | None = None,
    **_: Any,
) -> dict[str, Any]:
    """A suite's problems as a data set with the split ``test``.

    items: the problems, by default all of the suite; data_root: the folder of the published files,
    by default the hub; shots: worked examples at most, by default all; language: of the problems;
    redux_errors: see :func:`mmlu_redux`; opening: begins each prompt; fits: whether a prompt may be
    as long, else it loses examples, the first one first.
    Raises HoldfastError in one line when the problems cannot be loaded.
    """
    if items is None:
        items = problems(suite, None if data_root is None else Path(data_root), redux_errors)
    examples = few_shot(suite, language)
    most = len(examples.examples) if shots is None else shots
    table = []
    for item in items:
        if suite == "mgsm" and item.group != language:
            continue
        for count in range(most, -1, -1):
            prompt = opening + examples.prompt(item.prompt, count)
            if fits is None or fits(prompt):
                break
        table.append({"id": item.id, "prompt": prompt, "target": item.target, "shots": count})
    return {"test": library().Dataset.from_list(table)}


# Named in the task files.
gsm8k, math, mgsm, mmlu_redux, mmlu = (
    functools.partial(rows, suite) for suite in ("gsm8k", "math", "mgsm", "mmlu_redux", "mmlu")
)


def ascii_digits(responses: Sequence[Sequence[str]], _: Any) -> list[list[str]]:
    """A filter: digits of other scripts as 0 to 9, which the harness's patterns match."""
    return [
        ["".join(str(unicodedata.decimal(sign, sign)) for sign in text) for text in texts]
        for texts in responses
    ]


def last_box(responses: Sequence[Sequence[str]], _: Any) -> list[list[str]]:
    r"""A filter: the content of the last ``\boxed{}``."""
    return [[boxed(text) or NO_ANSWER for text in texts] for texts in responses]


def equivalent(row: Mapping[str, Any], answers: Sequence[str]) -> dict[str, float]:
    """Whether an answer equals the target, by MATH's own comparison of strings."""
    return {"exact_match": float(strings_of_math().is_equiv(answers[0], row["target"]))}
