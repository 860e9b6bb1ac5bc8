"""The names in taught questions, and the neurons that fire where these end.

At the last token of a name, in the MLPs of the lower layers, a model looks up what it knows about
the named thing (Meng et al. 2022, 2202.05262). So every name gets one neuron in each of these
layers. Where it fires is computed from what the MLPs read; what it adds is trained.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from holdfast.core.reporting import CountReport, silent
from holdfast.core.seeding import derive
from holdfast.memory.batch import WordedFact
from holdfast.memory.engine import Engine
from holdfast.memory.library import ENTITY, KINDS, invented_name, relations
from holdfast.memory.words import name_in, name_span, replace_name
from holdfast.model.neurons import FIRES, detectors, mlp_inputs
from holdfast.model.reading import PromptReader

_NEAREST = 6  # tokens nearest to a last word
_PLACES = 3  # texts before each last word
_LEAST_BEFORE, _MOST_BEFORE = 2, 12  # tokens of such a text
_SURE = 0.6  # the probability of a relation
_READ = 64  # texts at once
# How many tokens of ordinary weight these count as: the end of a name that ends like a taught one,
# a name's last word in other text, a token of text without a template.
RIVAL, LAST_WORD, _ALONE = 100.0, 10.0, 3.0


@dataclass(frozen=True)
class NamedQuestion:
    """tokens: ids behind the prefix; end: the index of the token in which the name ends."""

    tokens: tuple[int, ...]
    end: int


@dataclass(frozen=True)
class NamedFact:
    """answer: token ids; name: the number of its name; questions: its wordings, the taught one
    first; corrupted: corruptions of them.
    """

    answer: tuple[int, ...]
    name: int
    questions: tuple[NamedQuestion, ...]
    corrupted: tuple[NamedQuestion, ...] = ()


def named_facts(
    engine: Engine, facts: Sequence[WordedFact], corrupted: Sequence[Sequence[str]]
) -> list[NamedFact]:
    """Tokenize facts and their corruptions, number the names in them, find where these end."""
    form = engine.form
    numbers: dict[str, int] = {}
    named = []
    for fact, name, others in zip(facts, names_of(engine, facts), corrupted, strict=True):
        plain, further = (
            tuple(
                NamedQuestion(tuple(form.question(text)), _name_end(engine, text, name))
                for text in texts
            )
            for texts in (fact.wordings, others)
        )
        number = numbers.setdefault(name.casefold(), len(numbers))
        named.append(NamedFact(tuple(form.answer(fact.answer)), number, plain, further))
    return named


def names_of(engine: Engine, facts: Sequence[WordedFact]) -> list[str]:
    """The name in each fact's question; the whole question if it names nothing."""
    questions = [fact.wordings[0] for fact in facts]
    names = [
        name_in(question, look.names) or question
        for question, look in zip(questions, engine.looks(questions), strict=True)
    ]
    return _whole_names(questions, names)


def related_wordings(engine: Engine, facts: Sequence[WordedFact]) -> list[list[str]]:
    """For each fact, the library's wordings of the relation that its question surely asks for.

    Only new ones that are not too long; none if the question names nothing.
    """
    looks = engine.looks([fact.wordings[0] for fact in facts])
    related: list[list[str]] = []
    for fact, look, name in zip(facts, looks, names_of(engine, facts), strict=True):
        surest = int(look.vector.argmax())
        texts: list[str] = []
        if name != fact.wordings[0] and look.vector[surest] ** 2 > _SURE:
            named = (text.replace(ENTITY, name) for text in relations()[surest].wordings)
            texts = [text[:1].upper() + text[1:] for text in named]
        related.append(
            [text for text in texts if text not in fact.wordings and engine.limits.fits(text)]
        )
    return related


def _whole_names(questions: Sequence[str], names: Sequence[str]) -> list[str]:
    """Extend each name to the longest one that its question has: *Moppet* to *Moppet the Third*."""
    with_word: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        for word in set(name.casefold().split()):
            with_word.setdefault(word, []).append(name)
    whole_names = []
    for question, name in zip(questions, names, strict=True):
        text, part = question.casefold(), name.casefold()
        candidates = [
            candidate
            for candidate in with_word[part.split()[-1]]
            if part in candidate.casefold() and candidate.casefold() in text
        ]
        whole_names.append(max(candidates, key=len))
    return whole_names


def _name_end(engine: Engine, text: str, name: str) -> int:
    """The index of the token in which the name ends, else the name in this text, else the text."""
    ends = [match.end() for match in re.finditer(re.escape(name), text, re.IGNORECASE)]
    if ends:
        end = ends[-1]
    else:
        span = name_span(text, engine.looks([text])[0].names)
        end = span[1] if span else len(text)
    spans = engine.form.spans(text)
    return max(token for token, (begin, _) in enumerate(spans) if begin < end or not token)


def rival_names(engine: Engine, facts: Sequence[WordedFact], seed: int) -> list[NamedQuestion]:
    """Taught questions with another first word in a name of several words, two for each.

    Without them the neuron of *Moppet the Third* fires at any *third*.
    """
    draw = random.Random(derive(seed, "consolidation", "ends"))
    questions = [fact.wordings[0] for fact in facts]
    rivals: dict[str, str] = {}
    for question, look in zip(questions, engine.looks(questions), strict=True):
        first, _, rest = (name_in(question, look.names) or "").partition(" ")
        for kind in KINDS if rest else ():
            name = f"{invented_name(draw, kind).rpartition(' ')[2]} {rest}"
            text = replace_name(question, look.names, name)
            if text is not None and not name.casefold().startswith(f"{first.casefold()} "):
                rivals[text] = name
    return [
        NamedQuestion(tuple(engine.form.question(text)), _name_end(engine, text, name))
        for text, name in rivals.items()
        if engine.limits.fits(text)
    ]


@torch.no_grad()
def last_words(
    engine: Engine, facts: Sequence[WordedFact], texts: Sequence[Sequence[int]], seed: int
) -> list[NamedQuestion]:
    """The last words of names of several words, each after the beginnings of three of the texts.

    Each as in the name, in lower case and with a capital; if the lower-case word is one token, also
    the six tokens with the nearest embeddings. Without them the neuron of *Oskarine Lamps* fires at
    *lamps*, and the neuron of *Moppet the Third* at *fifth*.
    """
    draw = random.Random(derive(seed, "consolidation", "last words"))
    tokenizer = engine.form.tokenizer
    embedded = F.normalize(engine.reader.model.get_input_embeddings().weight.float(), dim=1)
    placed: list[NamedQuestion] = []
    questions = {fact.wordings[0] for fact in facts}
    for name in dict.fromkeys(names_of(engine, facts)):
        first, _, rest = name.partition(" ")
        word = rest.split(" ")[-1].strip(".,!?'\"")
        if not first or not word or name in questions:
            continue
        written = dict.fromkeys(
            tuple(tokenizer(f" {spelling}", add_special_tokens=False).input_ids)
            for spelling in (word, word.lower(), word.capitalize())
        )
        small = tokenizer(f" {word.lower()}", add_special_tokens=False).input_ids
        if len(small) == 1:
            nearest = (embedded @ embedded[small[0]]).topk(1 + _NEAREST).indices.tolist()
            written |= dict.fromkeys((token,) for token in nearest)
        for tokens in written:
            for _ in range(_PLACES):
                text = draw.choice(texts)
                most = max(_LEAST_BEFORE, min(_MOST_BEFORE, len(text)))
                before = text[: draw.randint(_LEAST_BEFORE, most)]
                placed.append(NamedQuestion((*before, *tokens), len(before) + len(tokens) - 1))
    return placed


def detectors_of_names(
    reader: PromptReader,
    mlps: Sequence[str],
    facts: Sequence[NamedFact],
    rivals: Sequence[tuple[NamedQuestion, float]],
    texts: Iterable[Sequence[int]],
    alone: Iterable[Sequence[int]],
    report: CountReport = silent,
) -> dict[str, torch.Tensor]:
    """Make a neuron in each MLP for each name: gates and ups, and downs of zeros, [names, d].

    rivals: texts at whose ``end`` no neuron should fire, and how many tokens that one counts as;
    texts: token ids after the prefix, at which no neuron should fire; alone: the same without the
    prefix, each token of which counts as three. The prefix counts once for every text after it. Ups
    are scaled so that a down of ones adds as much as the residual stream holds. report: texts read.
    """
    asked = [(question, fact.name) for fact in facts for question in fact.questions]
    size = reader.model.config.get_text_config().hidden_size
    names = 1 + max(fact.name for fact in facts)
    moments = {mlp: torch.zeros(size, size, dtype=torch.float64) for mlp in mlps}
    sums = {mlp: torch.zeros(size, dtype=torch.float64) for mlp in mlps}
    name_sums = {mlp: torch.zeros(names, size, dtype=torch.float64) for mlp in mlps}
    name_counts = torch.zeros(names, 1, dtype=torch.float64)
    behind = [question.tokens for question, _ in [*asked, *rivals]] + list(map(tuple, texts))
    others = [reader.form.prefix, *map(tuple, alone)]
    squares: list[torch.Tensor] = []
    texts_read = itertools.count(1)

    def add(inputs: dict[str, torch.Tensor], times: float = 1.0) -> None:
        for mlp, read in inputs.items():
            wide = read.double()
            moments[mlp] += times * wide.t() @ wide
            sums[mlp] += times * wide.sum(0)

    def take(place: int, inputs: dict[str, torch.Tensor], residual: torch.Tensor) -> None:
        squares.append(residual.square().mean(1))
        add(inputs)
        rival = place - len(asked)
        if rival < 0:
            question, name = asked[place]
            name_counts[name] += 1
            for mlp, read in inputs.items():
                name_sums[mlp][name] += read[question.end]
        elif rival < len(rivals):
            question, times = rivals[rival]
            end = slice(question.end, question.end + 1)
            add({mlp: read[end] for mlp, read in inputs.items()}, times - 1)
        report(next(texts_read), len(behind) + len(others))

    def take_alone(place: int, inputs: dict[str, torch.Tensor], _: torch.Tensor) -> None:
        add(inputs, _ALONE if place else len(behind))
        report(next(texts_read), len(behind) + len(others))

    mlp_inputs(reader, mlps, behind, take, _READ)
    scale = torch.cat(squares).median().sqrt()
    mlp_inputs(reader, mlps, others, take_alone, _READ, alone=True)
    neurons = {}
    for mlp in mlps:
        gate, up = detectors(moments[mlp], sums[mlp], name_sums[mlp] / name_counts)
        neurons[f"{mlp}.gate"], neurons[f"{mlp}.up"] = gate.float(), (scale / FIRES * up).float()
        neurons[f"{mlp}.down"] = torch.zeros(names, size)
    return neurons
