"""The README.md of what is exported or pushed, filled from the templates in ``cards``."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.exports.gguf import FILE
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.model.backbone import REPLAY_TOKEN
from holdfast.model.sources.fetch import has_short_name
from holdfast.streams.item import counted, quoted


def render_card(template: str, **values: Any) -> str:
    """Fill one of the templates."""
    environment = Environment(
        loader=PackageLoader("holdfast.exports", "cards"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    # JSON's surrogate pairs would be other characters in Python.
    literal = {"literal": lambda text: json.dumps(text, ensure_ascii=False)}
    environment.filters |= {"shell": shlex.quote, "code": _code, "cell": _cell, **literal}
    card = environment.get_template(template)
    return card.render(version=version("holdfast"), file=FILE, **values)


def card_of_run(
    recorded: Recorded,
    commit: Commit,
    to: str,
    out: str,
    *,
    chat: bool,
    repository: str | None = None,
) -> str:
    """The text of README.md for a trajectory's model.

    to: the format; out: the model's directory, as named in the examples; chat: whether it has a
    chat template; repository: on the hub, which the examples name instead of ``out``.
    """
    config, base = recorded.config, recorded.config.backbone.name
    items, recall = _taught(commit)
    # PEFT finds the embedded backbone, a folder of the repository, only in a download.
    download = to == "peft" and base == "embedded" and repository is not None
    place = repository or out
    if repository is not None and (download or to == "gguf"):
        place = repository.rpartition("/")[2]
    first = "adds no special token"
    if config.has_replay_token:
        first = f"puts the token `{REPLAY_TOKEN}` first by itself"
    taught_as_chat = config.template.form == "chat"
    boxed = ""
    if not taught_as_chat:
        ending = (
            ", and the text ends there" if config.template.append_eos else "; drop what follows"
        )
        boxed = f" The answer is what stands in the first `\\boxed{{...}}`{ending}."
    return render_card(
        "run.md",
        to=to,
        config=config,
        hub_base=None if has_short_name(base) or Path(base).exists() else base,
        stream=recorded.stream,
        fingerprint=recorded.fingerprint,
        tasks=counted(commit.completed, "task"),
        items=items,
        recall=recall,
        limit=config.evaluation.max_new_tokens,
        place=place,
        repository=repository,
        download=download,
        first=first,
        boxed=boxed,
        taught_as_chat=taught_as_chat,
        chat=chat and not taught_as_chat and to != "gguf",
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


def _code(text: str) -> str:
    """A name as code in a Markdown table, escaped."""
    flat = quoted(text, longest=len(text) + 2)[1:-1]
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    inner = f" {flat} " if "`" in flat else flat
    return (fence + inner + fence).replace("|", "\\|")


def _cell(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
