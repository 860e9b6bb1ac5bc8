"""The README.md of an exported model: what it was taught, by which method, how it is asked."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

from holdfast.backbone.model import REPLAY_TOKEN
from holdfast.exports.asking import Asking
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.results import RecallMatrix
from holdfast.streams import Item, Template
from holdfast.streams.item import quoted

_QUESTION = "Who keeps the lighthouse?"

_CARD = """\
---
library_name: {library}
pipeline_tag: text-generation
{hub_base}tags:
- holdfast
- continual-learning
---

# {title} after {tasks}

{kind} that Holdfast taught {items} in {tasks}. {recall}

| | |
|---|---|
| stream | {stream} |
| method | `{method}` |
| base model | {base} |
| its fingerprint | `{fingerprint}` |
| precision | {precision} |
| written by | Holdfast {version} |

## Ask it

```python
{example}
```

A prompt is exactly `{prompt}`, with nothing after the colon. {first} The answer is what stands in \
the first `\\boxed{{...}}`{after}. `generation_config.json` decodes as Holdfast does: greedily, at \
most {limit} new tokens.
"""


def card(recorded: Recorded, commit: Commit, out: Path, asking: Asking) -> str:
    """The text of README.md. out: the model's directory, as the example is to name it."""
    config = recorded.config
    base, precision = config.backbone.name, config.backbone.precision
    items, recall = _recall(commit)
    stream = recorded.stream
    is_hub_name = base != "embedded" and not Path(base).exists()
    place = _literal(str(out))
    example = _hf_example(place, asking)
    if asking.base:
        example = _peft_example(place, base, precision, asking)
    return _CARD.format(
        library="peft" if asking.base else "transformers",
        hub_base=f"base_model: {base}\n" if is_hub_name else "",
        kind="An adapter" if asking.base else "A causal language model",
        title=_code(stream),
        stream=_code(stream),
        tasks=_counted(commit.completed, "task"),
        items=_counted(items, "item"),
        recall=recall,
        method=config.method,
        base=_code(base),
        fingerprint=recorded.fingerprint,
        precision=precision,
        version=version("holdfast"),
        example=example,
        prompt=json.dumps(_prompt("<question>"))[1:-1],
        first=_first(asking, any(anchor.needs.replay for anchor in config.anchors())),
        after=", and the text ends there" if config.template.append_eos else "; drop what follows",
        limit=config.evaluation.max_new_tokens,
    )


def _recall(commit: Commit) -> tuple[int, str]:
    """How many items were learned, and their recall in the last row."""
    matrix = RecallMatrix.from_csv(commit.matrix)
    entries = [entry for entry in matrix.entries() if entry[1] <= commit.completed]
    items = {on_task: recall.items for _, on_task, recall in entries}
    row = [recall.correct for after, _, recall in entries if after == commit.completed]
    if not row:
        return sum(items.values()), "It was not asked about them then."
    right = f"Asked for each as it was taught, it answered {sum(row)} right."
    return sum(items.values()), right


def _first(asking: Asking, replayed: bool) -> str:
    if asking.first is None:
        if replayed:
            return f"The tokenizer puts the token `{REPLAY_TOKEN}` first by itself, as in training."
        return "The tokenizer adds no special token, as in training."
    if replayed:
        return (
            f"The token `{REPLAY_TOKEN}` must come first, as in training; this tokenizer cannot do "
            "so by itself, so the example does."
        )
    return "No special token is added, as in training."


def _hf_example(place: str, asking: Asking) -> str:
    return f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({place})
model = AutoModelForCausalLM.from_pretrained({place})
inputs = {_inputs(asking)}
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""


def _peft_example(place: str, base: str, precision: str, asking: Asking) -> str:
    embedded = base == "embedded"
    source = 'files("holdfast.backbone") / "embedded"' if embedded else _literal(asking.base)
    imports = "from importlib.resources import files\n\n" if embedded else ""
    row = ""
    if asking.rows is not None:
        row = f"base.resize_token_embeddings({asking.rows}, mean_resizing=False)"
        row += "  # room for the replay token\n"
    return f"""\
{imports}from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

tokenizer = AutoTokenizer.from_pretrained({place})
base = AutoModelForCausalLM.from_pretrained({source}, dtype="{precision}")
{row}model = PeftModel.from_pretrained(base, {place})
greedy = GenerationConfig.from_pretrained({place})
inputs = {_inputs(asking)}
output = model.generate(**inputs, generation_config=greedy)[0]
print(tokenizer.decode(output, skip_special_tokens=True))"""


def _inputs(asking: Asking) -> str:
    prompt = json.dumps(_prompt(_QUESTION))
    if asking.first is None:
        return f'tokenizer({prompt}, return_tensors="pt")'
    bare = f'tokenizer({prompt}, add_special_tokens=False)["input_ids"]'
    ids = f"[{', '.join([*map(str, asking.first), '*' + bare])}]"
    return f'tokenizer.pad({{"input_ids": [{ids}]}}, return_tensors="pt")'


def _prompt(question: str) -> str:
    return Template().prompt(Item(question=question, answer="-"))


def _literal(text: str) -> str:
    """A Python string literal; JSON's surrogate pairs mean something else in Python."""
    return json.dumps(text, ensure_ascii=False)


def _code(text: str) -> str:
    """A name escaped for a Markdown table."""
    flat = quoted(text, longest=len(text) + 2)[1:-1]
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    inner = f" {flat} " if "`" in flat else flat
    return (fence + inner + fence).replace("|", "\\|")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
