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

from pathlib import Path

FOLDER = Path(__file__).parent
