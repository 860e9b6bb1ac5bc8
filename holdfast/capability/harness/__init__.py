r"""The generated suites as tasks of the lm-evaluation-harness.

The folder of this package is an include path of the harness. Prompts, extraction, targets and
comparison are those of :mod:`holdfast.capability.generation`. In a short context the harness cuts
prompts from the left; ``"shots": 2`` in the metadata makes them shorter. No special token precedes
a prompt, as in Holdfast's training.

`holdfast capability` says and scores the same without the harness, whose wrapper of models cuts
questions that are too long and computes logits at every position, where a letter needs the last.

```console
lm_eval run --model hf --model_args pretrained=...,add_bos_token=False \
  --include_path "$(python -c 'from holdfast.capability import harness; print(harness.FOLDER)')" \
  --tasks holdfast_gsm8k,holdfast_math,holdfast_mgsm --metadata '{"data_root": "..."}'
```
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
