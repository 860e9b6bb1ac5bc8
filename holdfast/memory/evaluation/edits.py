"""Published sets of edits: read them, and measure a memory as editors of models are measured.

A case's fields tell the format: CounterFact (Meng et al. 2022, 2202.05262), zsRE as MEND and ROME
evaluate it (Mitchell et al. 2022, 2110.11309), MQuAKE (Zhong et al. 2023, 2305.14795), or KnowEdit
(Zhang et al. 2024, 2401.01286). A folder is ParaRel's (Elazar et al. 2021, 2102.01017).

Efficacy: the edit's question gets its answer; generality: other wordings do, without those that a
lesson trained on; locality: neighbours and the subjects' other relations get the untouched model's
answers, to the letter; portability: questions that need the edit get an accepted answer; fluency:
how varied the words are that continue a text. All by the answers that the memory really gives,
which token accuracy under teacher forcing does not tell (Yang et al. 2025, 2502.11177).
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import CountReport, WorkReport, silent
from holdfast.memory.evaluation import stages
from holdfast.memory.evaluation.asking import Sides
from holdfast.memory.evaluation.measure import learned_wordings, measured
from holdfast.memory.evaluation.pararel import COMPLETE, draw_edits
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.evaluation.result import VERSION, Measure, MemoryEvaluation
from holdfast.memory.memory import Memory
from holdfast.memory.words import loose_key
from holdfast.streams import Item, Stream, Task
from holdfast.streams.item import counted, question_key, quoted

logger = logging.getLogger(__name__)

_A_LESSON = 10  # edits in a lesson
_DRAWN = 200  # edits from ParaRel by default
_VERSION = (VERSION, 3)  # of the measures
#: The rows of the table: measure, label, unit.
LABELS = (
    ("efficacy", "efficacy: the edit is answered", "share"),
    ("efficacy_from_weights", "  from the weights", "share"),
    ("generality", "generality: in other words", "share"),
    ("generality_from_weights", "  from the weights", "share"),
    ("neighbours_unchanged", "locality: neighbours as before", "share"),
    ("neighbours_accepted", "  taken for an edit", "share"),
    ("relations_unchanged", "locality: other relations as before", "share"),
    ("relations_accepted", "  taken for an edit", "share"),
    ("portability", "portability: questions that need it", "share"),
    ("fluency", "fluency: entropy of n-grams, bits", "number"),
    ("fluency_untouched", "  of the untouched model", "number"),
    ("everyday_kept", "everyday questions kept", "share"),
    ("everyday_accepted", "  taken for an edit", "share"),
)
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Edit:
    """A fact to teach, and what to ask once it is taught.

    wordings: the question in other words; neighbours, relations: questions about other subjects,
    or about other relations of this one, whose answers must not change; portability: questions that
    need the fact, with accepted answers; generation: texts to continue.
    """

    question: str
    answer: str
    wordings: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    portability: tuple[tuple[str, tuple[str, ...]], ...] = ()
    generation: tuple[str, ...] = ()


@dataclass(frozen=True)
class EditSet:
    """The edits of a source. name: of its format; edits: in order, no question twice."""

    name: str
    edits: tuple[Edit, ...]

    def stream(self) -> Stream:
        """The facts as a stream, ten in a task."""
        items = [Item(edit.question, edit.answer) for edit in self.edits]
        groups = [items[begin : begin + _A_LESSON] for begin in range(0, len(items), _A_LESSON)]
        tasks = (Task(str(number), tuple(group)) for number, group in enumerate(groups, start=1))
        return Stream(tuple(tasks), self.name)


def read_edits(path: Path, limit: int | None = None, seed: int | None = None) -> EditSet:
    """Read the edits of a file, or draw edits from ParaRel's folder.

    limit: read so many cases of a file, None for all; draw so many edits, 200 by default; seed: of
    the draw, None for 0. Raises HoldfastError for a path that is missing or of no known format, for
    a case that is invalid, naming it, and for a seed with a file.
    """
    if path.is_dir():
        try:
            drawn = draw_edits(path, limit or _DRAWN, seed or 0)
        except (ValueError, OSError, KeyError) as error:
            raise HoldfastError(f"{path}: is no folder of ParaRel ({error})") from error
        return EditSet("ParaRel", _once(path, map(_pararel, drawn)))
    cases = _cases(path)[:limit]
    if seed is not None:
        raise HoldfastError(f"{path}: a file is read from its first case, not drawn; omit --seed")
    name, read = _format_of(path, cases[0])
    edits: list[Edit] = []
    for number, case in enumerate(cases, start=1):
        try:
            edits += read(case)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise HoldfastError(f"{path} case {number}: is no case of {name} ({reason})") from error
    return EditSet(name, _once(path, edits))


def _cases(path: Path) -> list[Values]:
    """The records of a JSON list, or of JSON lines."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give a set of edits") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: cannot be read ({error})") from error
    try:
        if text.lstrip().startswith("["):
            values = json.loads(text)
        else:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise HoldfastError(f"{path}: is no JSON ({error})") from None
    if not values or not all(isinstance(case, dict) for case in values):
        raise HoldfastError(f"{path}: holds no list of cases")
    return list(values)


def _format_of(path: Path, case: Values) -> tuple[str, Callable[[Values], Iterable[Edit]]]:
    rewrite = case.get("requested_rewrite")
    if isinstance(rewrite, dict):
        return "CounterFact", _counterfact
    if isinstance(rewrite, list):
        return "MQuAKE", _mquake
    if {"src", "rephrase", "loc"} <= case.keys():
        return "zsRE", _zsre
    if {"subject", "prompt", "target_new"} <= case.keys():
        return "KnowEdit", _knowedit
    keys = ", ".join(case)
    raise HoldfastError(
        f"{path}: its cases have {keys:.80}; CounterFact, MQuAKE, zsRE, KnowEdit and the folder of "
        "ParaRel are known"
    )


def _counterfact(case: Values) -> list[Edit]:
    rewrite = case["requested_rewrite"]
    return [
        Edit(
            _asked(rewrite["prompt"].format(rewrite["subject"])),
            _text(rewrite["target_new"]),
            _all_asked(case.get("paraphrase_prompts")),
            _all_asked(case.get("neighborhood_prompts")),
            generation=_all_asked(case.get("generation_prompts")),
        )
    ]


def _zsre(case: Values) -> list[Edit]:
    answer = _text(case["alt"]) if case.get("alt") else _texts(case["answers"])[0]
    loc = case["loc"].removeprefix("nq question: ")
    neighbour = loc if loc.endswith("?") else f"{loc}?"
    return [Edit(_asked(case["src"]), answer, _all_asked([case["rephrase"]]), (neighbour,))]


def _mquake(case: Values) -> list[Edit]:
    """An edit for each rewrite; the first one has the case's multi-hop questions."""
    accepted = (_text(case["new_answer"]), *_texts(case.get("new_answer_alias")))
    several = tuple((_asked(question), accepted) for question in case["questions"])
    return [
        Edit(
            _asked(rewrite.get("question") or rewrite["prompt"].format(rewrite["subject"])),
            _text(rewrite["target_new"]),
            _all_asked(
                [rewrite["prompt"].format(rewrite["subject"])] if rewrite.get("question") else []
            ),
            portability=() if number else several,
        )
        for number, rewrite in enumerate(case["requested_rewrite"])
    ]


def _knowedit(case: Values) -> list[Edit]:
    rephrased = case.get("rephrase") or case.get("rephrase_prompt") or []
    ported = [probe for kind in (case.get("portability") or {}).values() for probe in kind or ()]
    local = dict(case.get("locality") or {})
    relations = local.pop("Relation_Specificity", None) or ()
    neighbours = [probe for kind in local.values() for probe in kind or ()]
    return [
        Edit(
            _asked(case["prompt"]),
            _text(case["target_new"]),
            _all_asked([rephrased] if isinstance(rephrased, str) else rephrased),
            _all_asked(probe["prompt"] for probe in neighbours),
            _all_asked(probe["prompt"] for probe in relations),
            tuple((_asked(probe["prompt"]), _texts(probe["ground_truth"])) for probe in ported),
        )
    ]


def _pararel(fact: Values) -> Edit:
    details = fact["details"]
    return Edit(
        fact["question"],
        fact["answer"],
        tuple(details["held_out"]),
        tuple(details["others"]),
        tuple(details["untaught"]),
    )


def _asked(text: Any) -> str:
    """A question unchanged; any other text as a request to complete it."""
    plain = " ".join(str(text).split())
    if not plain:
        raise ValueError("an empty question")
    return plain if plain.endswith("?") else COMPLETE.format(plain)


def _all_asked(texts: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_asked(text) for text in texts or ()))


def _text(value: Any) -> str:
    """The text of a target: a string, or ``{"str": text}``."""
    text = value["str"] if isinstance(value, dict) else value
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{quoted(str(text))} is no answer")
    return text.strip()


def _texts(values: Any) -> tuple[str, ...]:
    """All texts in nested lists."""
    if isinstance(values, str):
        return (values.strip(),) if values.strip() else ()
    return tuple(text for value in values or () for text in _texts(value))


def _once(path: Path, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """One edit for each question, with what all its cases ask; what must not change is no edit.

    A warning counts the later ones with another answer, which are left out.
    """
    unique: dict[str, Edit] = {}
    other = []
    for edit in edits:
        key = question_key(edit.question)
        first = unique.setdefault(key, edit)
        if edit.answer == first.answer:
            unique[key] = _with_all_that_is_asked(first, edit)
        else:
            other.append(edit)
    if other:
        logger.warning(
            "%s: left out %s with another answer to an earlier one's question, %s for one",
            path,
            counted(len(other), "edit"),
            quoted(other[0].question),
        )

    def no_edits(questions: Iterable[str]) -> tuple[str, ...]:
        return tuple(text for text in questions if question_key(text) not in unique)

    return tuple(
        replace(edit, neighbours=no_edits(edit.neighbours), relations=no_edits(edit.relations))
        for edit in unique.values()
    )


def _with_all_that_is_asked(first: Edit, again: Edit) -> Edit:
    kinds = ("wordings", "neighbours", "relations", "portability", "generation")
    asked: dict[str, Any] = {
        kind: tuple(dict.fromkeys((*getattr(first, kind), *getattr(again, kind)))) for kind in kinds
    }
    return replace(first, **asked)


def evaluate_edits(
    memory: Memory,
    edited: EditSet,
    everyday: Sequence[EverydayQuestion],
    report: WorkReport = silent,
    out: Path | None = None,
) -> MemoryEvaluation:
    """Measure a memory that was taught the edits; arguments as of ``measure.evaluate``.

    Raises HoldfastError if the memory has not learned an edit, or has learned another answer.
    """
    _check_taught(memory, edited)
    edits = [asdict(edit) for edit in edited.edits]
    identity = sha256_of(
        [_VERSION, memory.fingerprint, edits, [vars(question) for question in everyday]]
    )
    about = {"facts": len(edits), "set": edited.name, "limit": None}
    stages_of = partial(_stages, memory, edited.edits, everyday)
    return measured(memory, identity, about, stages_of, report, out)


def _check_taught(memory: Memory, edited: EditSet) -> None:
    """Raise HoldfastError unless the memory has learned every edit."""
    learned = {question_key(fact.question): fact.answer for fact in memory.learned}
    for edit in edited.edits:
        if learned.get(question_key(edit.question)) != edit.answer:
            raise HoldfastError(
                f'{memory.directory}: has not learned "{edit.question:.60}" with the answer of the '
                "edit; give a new directory, and the edits are taught there"
            )


def _stages(
    memory: Memory, edits: Sequence[Edit], everyday: Sequence[EverydayQuestion], sides: Sides
) -> stages.Stages:
    learned = set(map(loose_key, learned_wordings(memory)))
    numbered = [(edit, sides.place(edit.question)) for edit in edits]
    taught = [(edit.question, [edit.answer], place) for edit, place in numbered]
    wordings = [
        (text, [edit.answer], place)
        for edit, place in numbered
        for text in edit.wordings
        if loose_key(text) not in learned
    ]
    neighbours = list(dict.fromkeys(text for edit in edits for text in edit.neighbours))
    relations = list(dict.fromkeys(text for edit in edits for text in edit.relations))
    ported = [(*asked, place) for edit, place in numbered for asked in edit.portability]
    generation = list(dict.fromkeys(text for edit in edits for text in edit.generation))
    return {
        "efficacy": partial(stages.exactly, sides, "efficacy", taught),
        "generality": partial(stages.exactly, sides, "generality", wordings),
        "neighbours": partial(stages.unknown, sides, "neighbours", neighbours),
        "relations": partial(stages.unknown, sides, "relations", relations),
        "portability": partial(stages.generated, sides, "portability", ported),
        "fluency": partial(_fluency, sides, generation),
        "everyday": partial(stages.kept, sides, everyday),
    }


def _fluency(sides: Sides, prompts: Sequence[str], report: CountReport) -> stages.StageResult:
    """Mean n-gram entropy of the memory's continuations of texts, and of the untouched model's."""
    if not prompts:
        return {}, []
    answers = sides.memory(prompts, report)
    replies = {"fluency": stages.texts(answers), "fluency_untouched": sides.untouched(prompts)}
    return {
        name: Measure(len(prompts), sum(map(n_gram_entropy, side)) / len(side))
        for name, side in replies.items()
    }, []


def n_gram_entropy(text: str) -> float:
    """Mean entropy in bits of a text's pairs of words (weight 2/3) and triples (weight 4/3).

    Source: 1809.05972, with the weights of 2202.05262.
    """
    words = text.split()
    return sum(weight * _entropy(words, size) for size, weight in ((2, 2 / 3), (3, 4 / 3))) / 2


def _entropy(words: Sequence[str], size: int) -> float:
    counts = Counter(zip(*(words[start:] for start in range(size)), strict=False))
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values())
