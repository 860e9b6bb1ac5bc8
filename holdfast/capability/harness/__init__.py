r"""The generated suites as tasks of the lm-evaluation-harness.

This package's folder is an include path for the harness. The tasks use the prompts, extraction,
targets and comparison of :mod:`holdfast.capability.generation`. In a short context the harness cuts
prompts from the left; ``"shots": 2`` in the metadata makes them shorter. No special token precedes
a prompt, as in Holdfast's training.

`holdfast capability` asks and scores the same without the harness, whose model wrapper cuts long
questions, and computes logits at every position, although a letter needs only the last.

```console
lm_eval run --model hf --model_args pretrained=...,add_bos_token=False \
  --include_path "$(python -c 'from holdfast.capability import harness; print(harness.FOLDER)')" \
  --tasks holdfast_gsm8k,holdfast_math,holdfast_mgsm --metadata '{"data_root": "..."}'
```
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.capability.answers import Checker, Kind, extract
from holdfast.capability.generation import GSM8K, MATH, MGSM, GeneratedSuite, few_shot
from holdfast.streams.hf_dataset import library

FOLDER = Path(__file__).parent


def rows(
    suite: GeneratedSuite,
    data_root: str | None = None,
    shots: int | None = None,
    language: str = "en",
    **_: Any,
) -> dict[str, Any]:
    """A suite's problems as a data set with the split ``test``.

    data_root: the folder of the published files, by default the hub; shots: worked examples, which
    the harness cannot drop in a short context; language: of the problems.
    Raises HoldfastError in one line when the problems cannot be loaded.
    """
    examples = few_shot(suite.name, language)
    table = [
        {
            "id": item.id,
            "prompt": examples.prompt(item.prompt, suite.shots if shots is None else shots),
            "target": item.target,
            "language": language,
        }
        for item in suite.items(None if data_root is None else Path(data_root))
        if suite.language(item) == language
    ]
    return {"test": library().Dataset.from_list(table)}


gsm8k, math, mgsm = (functools.partial(rows, suite) for suite in (GSM8K, MATH, MGSM))


def results(kind: Kind, row: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, float]:
    """The results of one row."""
    extracted = extract(outputs[0], kind, row["language"])
    correct = checker().correct(extracted, row["target"])
    return {"correct": float(correct), "extracted": float(extracted is not None)}


number, expression = functools.partial(results, "number"), functools.partial(results, "expression")


@functools.cache
def checker() -> Checker:
    """The checker of this process, closed at exit because the harness has no closing hook."""
    opened = Checker()
    atexit.register(opened.close)
    return opened
