"""The names in taught questions: where they end, and what else is asked with them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from holdfast.core.seeding import derive
from holdfast.memory.batch import WordedFact
from holdfast.memory.engine import Engine
from holdfast.memory.invented import KINDS, invented_name
from holdfast.memory.relations import ENTITY, relations
from holdfast.memory.words import name_in, name_span, replace_name

_NEAREST = 6  # tokens
_PLACES = 3  # of a last word
_LEAST_BEFORE, _MOST_BEFORE = 2, 12  # tokens
_SURE = 0.6  # the probability of a relation


@dataclass(frozen=True)
class NamedQuestion:
    """tokens: as of :meth:`ChatForm.question`; end: the number of the token where its name ends."""

    tokens: tuple[int, ...]
    end: int


@dataclass(frozen=True)
class NamedFact:
    """answer: its tokens; name: of what it is about, by a number; questions: its wordings, the
    taught one first; corrupted: corruptions of them.
    """

    answer: tuple[int, ...]
    name: int
    questions: tuple[NamedQuestion, ...]
    corrupted: tuple[NamedQuestion, ...] = ()


def named_facts(
    engine: Engine, facts: Sequence[WordedFact], corrupted: Sequence[Sequence[str]]
) -> list[NamedFact]:
    """Facts with the tokens where the names end that they are about, by numbers from 0.

    corrupted: corruptions of each fact's wordings. A question that names nothing counts as a name
    of its own, which ends with it.
    """
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
    """What each fact is about, as its question has it; all of a question that names nothing."""
    questions = [fact.wordings[0] for fact in facts]
    names = [
        name_in(question, look.names) or question
        for question, look in zip(questions, engine.looks(questions), strict=True)
    ]
    return _whole_names(questions, names)


def related_wordings(engine: Engine, facts: Sequence[WordedFact]) -> list[list[str]]:
    """The library's wordings for each fact, of the relation that its question surely asks for.

    Those that fit, in the library's order; none where no relation is surer than .6, or where the
    question names nothing.
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
    """Each question's name as long as another question has it: *Moppet* is *Moppet the Third*."""
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
    """The number of the token in which a name ends: the fact's, or what this wording names."""
    ends = [match.end() for match in re.finditer(re.escape(name), text, re.IGNORECASE)]
    if ends:
        end = ends[-1]
    else:
        span = name_span(text, engine.looks([text])[0].names)
        end = span[1] if span else len(text)
    spans = engine.form.spans(text)
    return max(token for token, (begin, _) in enumerate(spans) if begin < end or not token)


def rival_names(engine: Engine, facts: Sequence[WordedFact], seed: int) -> list[NamedQuestion]:
    """Taught questions about names that end as the taught ones of several words do, two each.

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
    """The last words of names of several words, each behind the beginnings of three of the texts.

    In the name's letters, small and with a capital, and where the small word is one token also the
    six that the model's embedding has nearest to it. Without them the neuron of *Oskarine Lamps*
    fires at *lamps*, and that of *Moppet the Third* at *fifth*.
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
