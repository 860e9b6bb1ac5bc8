"""The README.md of an exported model: what it was taught, by which method, how to ask it."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import version
from pathlib import Path

from holdfast.backbone.model import REPLAY_TOKEN
from holdfast.exports.gguf import FILE
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.model.fetch import has_short_name
from holdfast.streams import Item, Template
from holdfast.streams.item import counted, quoted

_QUESTION = "Who keeps the lighthouse?"

_CARD = """\
{front_matter}
# {stream} after {tasks}

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

```{language}
{example}
```

{asked} {decoded}
{chat}"""

_DECODED = (
    "`generation_config.json` decodes as Holdfast does: greedily, at most {limit} new tokens."
)

_GGUF = """\
{fetch}llama-cli -m {file} --jinja --temp 0 -n {limit} -st -p {question}
"""
_ASKED_BY_FILE = (
    "The file has the chat template that asks as it was taught, which LM Studio and llama.cpp "
    "(`--jinja`) read; Ollama has templates of its own and does not."
)
_DECODED_BY_FILE = "Holdfast decodes greedily, at most {limit} new tokens."
_ASKED = """\
A prompt is exactly `{prompt}`, with nothing after the colon. {first}"""
_BOXED = " The answer is what stands in the first `\\boxed{{...}}`{after}."
_ASKED_BY_CHAT = (
    "It was taught in the chat template of its tokenizer; the whole reply is the answer."
)

_CHAT = """
As a chat, which asks in the same tokens: of the messages only the last one of the user counts.

```python
{ask}
```
"""
_CHAT_HF = """\
from transformers import pipeline

chat = [{{"role": "user", "content": {question}}}]
print(pipeline("text-generation", {place})(chat)[0]["generated_text"][-1]["content"])"""
_CHAT_PEFT = """\
chat = [{{"role": "user", "content": {question}}}]
inputs = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""

HF = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({place})
model = AutoModelForCausalLM.from_pretrained({place})
"""
_PEFT = """\
{imported}from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer, GenerationConfig

{fetch}tokenizer = AutoTokenizer.from_pretrained({place})
model = AutoPeftModelForCausalLM.from_pretrained({place}, dtype="{precision}")
model.generation_config = GenerationConfig.from_pretrained({place})
"""
_ASK = """\
inputs = tokenizer({prompt}, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""


def front_matter(to: str, base: str | None = None) -> str:
    """The lines of README.md that the hub reads. to: the format; base: the base model there."""
    library = {"peft": "peft", "hf": "transformers", "gguf": "gguf"}[to]
    base_line = "" if base is None else f"base_model: {base}\n"
    return f"""\
---
library_name: {library}
pipeline_tag: text-generation
{base_line}tags:
- holdfast
- continual-learning
---
"""


def card(
    recorded: Recorded,
    commit: Commit,
    to: str,
    out: str,
    *,
    chat: bool,
    repository: str | None = None,
) -> str:
    """The text of README.md.

    to: the format; out: the model's directory, as named in the examples; chat: whether it has a
    chat template; repository: on the hub, which the examples name instead of ``out``.
    """
    config, adapter = recorded.config, to == "peft"
    base, precision = config.backbone.name, config.backbone.precision
    items, recall = _taught(commit)
    is_hub_name = not has_short_name(base) and not Path(base).exists()
    place = python_literal(repository or out)
    if not adapter:
        load = HF.format(place=place)
    else:
        imported, fetch = "", ""
        if base == "embedded" and repository is not None:
            # PEFT finds the backbone, a folder of the repository, only in a download.
            local = python_literal(repository.rpartition("/")[2])
            imported = "from huggingface_hub import snapshot_download\n"
            fetch = f"snapshot_download({place}, local_dir={local})\n"
            place = local
        load = _PEFT.format(place=place, precision=precision, imported=imported, fetch=fetch)
    first = "The tokenizer adds no special token, as in training."
    if config.has_replay_token:
        first = f"The tokenizer puts the token `{REPLAY_TOKEN}` first by itself, as in training."
    chatted, taught_as_chat = "", config.template.form == "chat"
    example, asked = load + _ASK.format(prompt=json.dumps(_prompt(_QUESTION))), _ASKED_BY_CHAT
    after = ", and the text ends there" if config.template.append_eos else "; drop what follows"
    if taught_as_chat:
        example = load + _CHAT_PEFT.format(question=python_literal(_QUESTION))
    else:
        prompt = json.dumps(_prompt("<question>"))[1:-1]
        asked = _ASKED.format(prompt=prompt, first=first) + _BOXED.format(after=after)
    if to == "gguf":
        local = out if repository is None else repository.rpartition("/")[2]
        fetch = f"hf download {repository} --local-dir {shlex.quote(local)}\n"
        example = _GGUF.format(
            fetch="" if repository is None else fetch,
            file=shlex.quote(f"{local}/{FILE}"),
            limit=config.evaluation.max_new_tokens,
            question=shlex.quote(_QUESTION),
        ).rstrip()
        asked = _ASKED_BY_FILE + ("" if taught_as_chat else _BOXED.format(after=after))
    elif chat and not taught_as_chat:
        ask = _CHAT_PEFT if adapter else _CHAT_HF
        chatted = _CHAT.format(ask=ask.format(place=place, question=python_literal(_QUESTION)))
    return _CARD.format(
        front_matter=front_matter(to, base if is_hub_name else None),
        language="console" if to == "gguf" else "python",
        kind="An adapter" if adapter else "A causal language model",
        stream=_code(recorded.stream),
        tasks=counted(commit.completed, "task"),
        items=items,
        recall=recall,
        method=config.method,
        base=_code(base),
        fingerprint=recorded.fingerprint,
        precision=precision,
        version=version("holdfast"),
        example=example,
        asked=asked,
        decoded=(_DECODED_BY_FILE if to == "gguf" else _DECODED).format(
            limit=config.evaluation.max_new_tokens
        ),
        chat=chatted,
    )


def _taught(commit: Commit) -> tuple[str, str]:
    """The number of items taught, and a sentence on their recall after the last task."""
    entries = [entry for entry in commit.matrix.entries() if entry[1] <= commit.completed]
    items = {on_task: recall.items for _, on_task, recall in entries}
    row = [recall.correct for after, _, recall in entries if after == commit.completed]
    sentence = "It was not asked about them then."
    if row:
        sentence = f"Asked for each as it was taught, it answered {sum(row)} right."
    return counted(sum(items.values()), "item"), sentence


def _prompt(question: str) -> str:
    return Template().prompt(Item(question=question, answer="-"))


def python_literal(text: str) -> str:
    """A Python string literal; JSON's surrogate pairs would be other characters in Python."""
    return json.dumps(text, ensure_ascii=False)


def _code(text: str) -> str:
    """A name as code in a Markdown table, escaped."""
    flat = quoted(text, longest=len(text) + 2)[1:-1]
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    inner = f" {flat} " if "`" in flat else flat
    return (fence + inner + fence).replace("|", "\\|")
