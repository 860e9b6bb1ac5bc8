"""The ten sources of Real-QA: where each is published, and how to read its rows.

A row of the Hugging Face hub and a record of the published files differ in form; each source has
one function that reads both. Multiple choice becomes free recall: the right option's text is the
answer, the others are dropped. Passages are dropped too, so answers must be recalled.

Source: app:data-real, tab:realqa-sources.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias

from experiments.paper.real_qa.candidate import UnusableError, accepted

# A record's own id or None, its question, and its answers, the primary one first; all unchecked.
Fields: TypeAlias = tuple[Any, Any, list[Any]]


@dataclass(frozen=True)
class Source:
    """One of the ten sources.

    hub: path, configuration and split for ``datasets.load_dataset``. patterns: match the ends of
    its published files' paths, as in ``PurePath.match``. fields: reads a row; its second argument
    is whether the row is from a published file, not from the hub. unpack: gets the records out of a
    JSON document; None if the files are tables or have one record per line.
    """

    kind: Literal["factoid", "mcqa"]
    hub: tuple[str, str | None, str]
    patterns: tuple[str, ...]
    fields: Callable[[Any, bool], Fields]
    unpack: Callable[[Any], list[Any]] | None = None

    def is_question_file(self, name: str) -> bool:
        """Whether a path, in a folder or an archive, is one of the source's published files."""
        path = PurePosixPath(name)
        # Archives made on a Mac hold an extra "._name" for every file; some of TriviaQA's evidence
        # passages have names like its question files.
        hidden = path.name.startswith(".") or "evidence" in path.parts
        return not hidden and any(path.match(pattern) for pattern in self.patterns)


def _listed(values: Any) -> list[Any]:
    """A list, empty for null; TypeError for anything else."""
    if values is not None and not isinstance(values, list):
        raise TypeError(f"a list is expected, not {values!r:.40}")
    return values or []


def _right(choices: Iterable[tuple[Any, Any]], key: Any) -> Any:
    """The text of the choice (label, text) labelled ``key``; UnusableError unless there is one."""
    if key is None or key in ("", -1):
        raise UnusableError("no answer key")
    texts = [text for label, text in choices if label == key]
    if len(texts) != 1:
        raise UnusableError(
            f"{len(texts) or 'none'} of the choices have the label of the answer key"
        )
    return texts[0]


def _arc(row: Any, published: bool) -> Fields:
    """ARC and OpenBookQA; label and key are a letter, in some questions a digit."""
    if published:
        question = row["question"]["stem"]
        choices = [(choice["label"], choice["text"]) for choice in row["question"]["choices"]]
    else:
        question = row["question"] if "question" in row else row["question_stem"]
        labels, texts = row["choices"]["label"], row["choices"]["text"]
        choices = list(zip(labels, texts, strict=True))
    return row["id"], question, [_right(choices, row["answerKey"])]


def _medmcqa(row: Any, published: bool) -> Fields:
    """The key counts from 1 in files (the test split has no keys), and from 0 on the hub."""
    options = enumerate((row[f"op{letter}"] for letter in "abcd"), start=1 if published else 0)
    return row["id"], row["question"], [_right(options, row.get("cop"))]


def _nq_open(row: Any, _: bool) -> Fields:
    return None, row["question"], [*accepted(_listed(row["answer"]))]


def _popqa(row: Any, _: bool) -> Fields:
    """The aliases are JSON within a cell."""
    try:
        aliases = _listed(json.loads(row["possible_answers"]))
    except (ValueError, TypeError, RecursionError):
        raise UnusableError('"possible_answers" is no JSON list') from None
    return row["id"], row["question"], [row["obj"], *aliases]


def _sciq(row: Any, _: bool) -> Fields:
    return None, row["question"], [row["correct_answer"]]


def _squad(row: Any, published: bool) -> Fields:
    """Version 2 marks questions that cannot be answered."""
    answers = row["answers"]
    texts = [answer["text"] for answer in answers] if published else answers["text"]
    return row["id"], row["question"], [] if row.get("is_impossible") else [*accepted(texts)]


def _triviaqa(row: Any, published: bool) -> Fields:
    """Fields are ``QuestionId`` in files, ``question_id`` on the hub; DPR's lists have no ids."""
    plain = {name.replace("_", "").lower(): value for name, value in row.items()}
    if "answers" in plain:
        return None, plain["question"], _dpr(plain["answers"])
    if published and "answer" not in plain:  # the test splits
        raise UnusableError("no answer")
    answer = {name.replace("_", "").lower(): value for name, value in plain["answer"].items()}
    aliases = [*_listed(answer["aliases"]), *_listed(answer["normalizedaliases"])]
    if answer["value"] == "<unk>" and not aliases:  # the hub's test split
        raise UnusableError("no answer")
    return plain["questionid"], plain["question"], [answer["value"], *aliases]


def _dpr(cell: str) -> list[Any]:
    """A Python list without a canonical answer: the first usable alias is the primary one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash that escapes nothing
            return [*accepted(_listed(ast.literal_eval(cell)))]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UnusableError("the answers are no Python list") from None


# A text may hold raw quotes and parentheses, so its closing quote is the one followed by a closing
# parenthesis and then by the next description or the end of the list.
_DESCRIPTION = re.compile(
    r'\s*\(description\s+(?:"((?:\\.|[^\\])*?)"(?=\s*\)\s*(?:\(description\s|\)\s*\Z))|([^\s()"]+))'
    r"\s*\)",
    re.DOTALL,
)


def descriptions(expression: str) -> list[str]:
    """The texts of ``(list (description "A b") (description C))``; UnusableError for others."""
    opening = re.match(r"\s*\(list(?=[\s)])", expression)
    place, texts = opening.end() if opening else 0, []
    while match := _DESCRIPTION.match(expression, place):
        quoted, word = match.groups()
        texts.append(word if quoted is None else re.sub(r"(?s)\\(.)", r"\1", quoted))
        place = match.end()
    if opening is None or expression[place:].strip() != ")":
        raise UnusableError('"targetValue" is no list of descriptions')
    return texts


def _webquestions(row: Any, published: bool) -> Fields:
    if not published:
        return None, row["question"], [*accepted(_listed(row["answers"]))]
    if not isinstance(row["targetValue"], str):
        raise UnusableError("no answer")
    return None, row["utterance"], [*accepted(descriptions(row["targetValue"]))]


def _squad_records(document: Any) -> list[Any]:
    paragraphs = (paragraph for article in document["data"] for paragraph in article["paragraphs"])
    return [question for paragraph in paragraphs for question in paragraph["qas"]]


SOURCES: dict[str, Source] = {
    "arc_challenge": Source(
        "mcqa", ("allenai/ai2_arc", "ARC-Challenge", "train"), ("ARC-Challenge-*.jsonl",), _arc
    ),
    "arc_easy": Source(
        "mcqa", ("allenai/ai2_arc", "ARC-Easy", "train"), ("ARC-Easy-*.jsonl",), _arc
    ),
    "medmcqa": Source(
        "mcqa",
        ("openlifescienceai/medmcqa", None, "train"),
        ("train.json", "dev.json", "test.json"),
        _medmcqa,
    ),
    "nq_open": Source(
        "factoid",
        ("google-research-datasets/nq_open", None, "train"),
        ("NQ-open.*.jsonl",),
        _nq_open,
    ),
    "openbookqa": Source(
        "mcqa",
        ("allenai/openbookqa", "main", "train"),
        # The release holds the same questions again, with more keys, as train_complete.jsonl.
        ("train.jsonl", "dev.jsonl", "test.jsonl"),
        _arc,
    ),
    "popqa": Source("factoid", ("akariasai/PopQA", None, "test"), ("popQA.tsv",), _popqa),
    "sciq": Source(
        "mcqa",
        ("allenai/sciq", None, "train"),
        ("train.json", "valid.json", "test.json"),
        _sciq,
        lambda document: document,
    ),
    "squad": Source(
        "factoid",
        ("rajpurkar/squad", None, "train"),
        ("train-v*.json", "dev-v*.json"),
        _squad,
        _squad_records,
    ),
    "triviaqa": Source(
        "factoid",
        ("mandarjoshi/trivia_qa", "rc.nocontext", "train"),
        (
            *("qa/*.json", "unfiltered-web-*.json", "triviaqa_sample.json"),
            *("triviaqa-*.tgz", "triviaqa-*.tar.gz", "*trivia*.txt"),
        ),
        _triviaqa,
        lambda document: document["Data"],
    ),
    "webquestions": Source(
        "factoid",
        ("Stanford/web_questions", None, "train"),
        ("webquestions.examples.*.json",),
        _webquestions,
        lambda document: document,
    ),
}
