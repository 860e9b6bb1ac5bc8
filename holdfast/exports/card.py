"""The README.md of an exported model: what it was taught, by which method, how to ask it."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

from holdfast.backbone.model import REPLAY_TOKEN
from holdfast.exports.adapter import BASE
from holdfast.exports.asking import Asking
from holdfast.exports.gguf import section
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.model.fetch import has_short_name
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
{chat}{gguf}"""

_CHAT = """
As a chat, which asks in the same tokens: of the messages only the last one of the user counts.

```python
{ask}
```
"""


def card(
    recorded: Recorded,
    commit: Commit,
    out: str,
    asking: Asking,
    repository: str | None = None,
) -> str:
    """The text of README.md.

    out: the model's directory, as named in the examples; repository: of the hub, named there
    instead.
    """
    config = recorded.config
    base, precision = config.backbone.name, config.backbone.precision
    items, recall = _taught(commit)
    replayed = config.has_replay_token
    stream = recorded.stream
    is_hub_name = not has_short_name(base) and not Path(base).exists()
    place = _literal(repository or out)
    example = _hf_example(place, asking)
    if asking.is_adapter:
        example = _peft_example(place, precision, asking, repository)
    return _CARD.format(
        library="peft" if asking.is_adapter else "transformers",
        hub_base=f"base_model: {base}\n" if is_hub_name else "",
        kind="An adapter" if asking.is_adapter else "A causal language model",
        title=_code(stream),
        stream=_code(stream),
        tasks=_counted(commit.completed, "task"),
        items=items,
        recall=recall,
        method=config.method,
        base=_code(base),
        fingerprint=recorded.fingerprint,
        precision=precision,
        version=version("holdfast"),
        example=example,
        prompt=json.dumps(_prompt("<question>"))[1:-1],
        first=_first(asking, replayed),
        after=", and the text ends there" if config.template.append_eos else "; drop what follows",
        limit=config.evaluation.max_new_tokens,
        chat=_chat(place, asking),
        gguf="" if asking.is_adapter else section(out, base, replayed, repository),
    )


def _taught(commit: Commit) -> tuple[str, str]:
    """What was learned, counted, and a sentence on its recall after the last task."""
    matrix = commit.matrix
    entries = [entry for entry in matrix.entries() if entry[1] <= commit.completed]
    items = {on_task: recall.items for _, on_task, recall in entries}
    row = [recall.correct for after, _, recall in entries if after == commit.completed]
    told = "It was not asked about them then."
    if row:
        told = f"Asked for each as it was taught, it answered {sum(row)} right."
    return _counted(sum(items.values()), "item"), told


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


def _peft_example(place: str, precision: str, asking: Asking, repository: str | None) -> str:
    source, fetched, imports = _literal(asking.base), "", ""
    if asking.beside and repository is None:
        source = _literal(f"{json.loads(place)}/{BASE}")
    elif asking.beside:
        # transformers would take an adapter's folder for the adapter, whatever subfolder is named.
        imports = "from huggingface_hub import snapshot_download\n"
        fetched = f"folder = snapshot_download({place})\n"
        place, source = "folder", f'f"{{folder}}/{BASE}"'
    if asking.revision is not None:
        source += f", revision={_literal(asking.revision)}"
    row = ""
    if asking.rows is not None:
        row = f"base.resize_token_embeddings({asking.rows}, mean_resizing=False)"
        row += "  # room for the replay token\n"
    return f"""\
{imports}from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

{fetched}tokenizer = AutoTokenizer.from_pretrained({place})
base = AutoModelForCausalLM.from_pretrained({source}, dtype="{precision}")
{row}model = PeftModel.from_pretrained(base, {place})
model.generation_config = GenerationConfig.from_pretrained({place})
inputs = {_inputs(asking)}
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""


def _chat(place: str, asking: Asking) -> str:
    """How to ask with a list of messages; empty where the tokenizer's template cannot."""
    if not asking.chat:
        return ""
    chat = f'chat = [{{"role": "user", "content": {_literal(_QUESTION)}}}]'
    if asking.is_adapter:
        ask = f"""\
{chat}
inputs = tokenizer.apply_chat_template(chat, return_dict=True, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""
    else:
        ask = f"""\
from transformers import pipeline

{chat}
print(pipeline("text-generation", {place})(chat)[0]["generated_text"][-1]["content"])"""
    return _CHAT.format(ask=ask)


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
    """A Python string literal, without JSON's surrogate pairs, which Python reads otherwise."""
    return json.dumps(text, ensure_ascii=False)


def _code(text: str) -> str:
    """A name escaped for a Markdown table."""
    flat = quoted(text, longest=len(text) + 2)[1:-1]
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    inner = f" {flat} " if "`" in flat else flat
    return (fence + inner + fence).replace("|", "\\|")


def _counted(count: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"
