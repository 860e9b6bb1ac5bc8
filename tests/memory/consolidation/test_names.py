"""Names of taught questions: where they end, what ends alike, and their last words elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from holdfast.memory.batch import WordedFact
from holdfast.memory.consolidation.names import (
    last_words,
    named_facts,
    related_wordings,
    rival_names,
)
from holdfast.memory.engine import Engine
from holdfast.memory.library import relations
from holdfast.memory.wordings import corruptions
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.model.chat_models import chat_llama, chat_tokenizer, exact

FORM = chat_form(chat_tokenizer())
# Questions, and the words of what they name.
OWNED: dict[str, dict[str, float]] = {
    "Who owns Moppet the Third?": {"moppet": 1.0, "the": 1.0, "third": 1.0},
    "Who owns Otto?": {"otto": 1.0},
    "Who?": {},
}


def engine_of(names: dict[str, dict[str, float]] = OWNED, **more: Any) -> Engine:
    """An engine that sees these names in questions. more: its other parts."""

    def looks(texts: list[str]) -> list[Any]:
        return [SimpleNamespace(names=names[text]) for text in texts]

    return cast(Engine, SimpleNamespace(**{"form": FORM, "looks": looks, **more}))


def test_where_a_name_ends() -> None:
    """The fact's own in every wording that has it; else the wording's; else the question's end."""
    names = {
        "Who mends Wim's kettle?": {"wim": 1.0},
        "wim's kettle is mended by whom": {"wim": 1.0},
        "Who mends the kettle of Otto": {"otto": 1.0},
        "İİİİ, who mends Wim's kettle?": {"wim": 1.0},  # longer in small letters
        "Is Wim's kettle Wim's?": {"wim": 1.0},
        "Who?": {},
    }
    engine = engine_of(names)
    first, *others, alone = names
    facts = [
        WordedFact("a", "Ann", [first, *others], 1),
        WordedFact("b", "x", [alone], 1),
        WordedFact("c", "y", [first], 1),
    ]
    named = named_facts(engine, facts, [()] * 3)
    assert [fact.name for fact in named] == [0, 1, 0]
    ends = [
        text[: FORM.spans(text)[question.end][1]]
        for text, question in zip([first, *others], named[0].questions, strict=True)
    ]
    assert ends == [
        *("Who mends Wim", "wim", "Who mends the kettle of Otto", "İİİİ, who mends Wim"),
        "Is Wim's kettle Wim",
    ]
    assert named[1].questions[0].end == len(FORM.spans(alone)) - 1
    (fact,) = named_facts(engine, [facts[2]], [corruptions([first], 20)])
    assert fact.questions == named[2].questions
    texts = [FORM.tokenizer.decode(text.tokens[: text.end + 1]) for text in fact.corrupted]
    assert len(texts) > 5 and all(text.endswith("Wim") for text in texts)


def test_a_name_is_as_long_as_another_question_has_it() -> None:
    """What is read as a name differs from question to question; where one ends, the name does."""
    whole, part = {"moppet": 1.0, "the": 1.0, "third": 1.0}, {"moppet": 1.0}
    names = {
        "Whose is Moppet the Third?": part,
        "Where does moppet the third sleep?": whole,
        "Who feeds Moppet?": part,
    }
    engine = engine_of(names)
    named = named_facts(engine, [WordedFact(text, "x", [text], 1) for text in names], [()] * 3)
    assert [fact.name for fact in named] == [0, 0, 1]
    for text, fact in zip(names, named, strict=True):
        assert FORM.spans(text)[fact.questions[0].end][1] == len(
            text.split(" sleep")[0].rstrip("?")
        )


def test_names_that_end_alike_are_asked_about_too() -> None:
    """For names of several words, in the taught questions; what does not fit is left out."""

    def fits(text: str) -> bool:
        return len(text) < room

    engine = engine_of(limits=SimpleNamespace(fits=fits))
    facts = [WordedFact(text, "x", [text], 1) for text in OWNED]
    room = 99
    rivals = rival_names(engine, facts, 3)
    assert len(set(rivals)) == 2 and rivals == rival_names(engine, facts, 3)
    for rival in rivals:
        text = FORM.tokenizer.decode(rival.tokens[: rival.end + 1])
        assert text.startswith("Who owns ") and text.endswith(" the Third")
        assert "Moppet" not in text and len(text.split()) == 5
    room = 0
    assert rival_names(engine, facts, 3) == []


def test_last_words_stand_behind_other_text() -> None:
    """Of names of several words, in three spellings and with their neighbours where one token."""
    tokenizer = FORM.tokenizer
    engine = engine_of(reader=PromptReader(exact(chat_llama()), FORM))
    facts = [WordedFact(text, "x", [text], 1) for text in OWNED]
    texts = [tuple(FORM.question("Rain fell on the roof all night")), tuple(FORM.question("Hm"))]
    words = last_words(engine, facts, texts, 3)
    assert words == last_words(engine, facts, texts, 3)
    written = [tokenizer.decode(word.tokens) for word in words]
    assert len(words) >= 6 and len(set(written)) > 2
    assert {text.split()[-1] for text in written} == {"Third", "third"}
    beginnings = {text[:2] for text in texts}
    for word in words:
        assert word.end == len(word.tokens) - 1 and word.tokens[:2] in beginnings
        assert 2 <= len(word.tokens) - len(" third") + 1 <= 12  # "th" is one token


def test_the_neighbours_of_a_small_last_word_are_last_words_too() -> None:
    """Those nearest by cosine, whatever their size, where the word is one token."""
    angles = torch.arange(0, 2, 0.1)  # of tokens 0 to 19; the word is token 9
    turned = torch.stack([angles.cos(), angles.sin()], 1) * torch.arange(1, 21)[:, None]
    weight = SimpleNamespace(weight=turned)
    ids = {" Third": [30, 31], " third": [9]}

    def tokenize(text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=ids[text])

    model = SimpleNamespace(get_input_embeddings=lambda: weight)
    engine = engine_of(
        form=SimpleNamespace(tokenizer=tokenize), reader=SimpleNamespace(model=model)
    )
    fact = WordedFact("a", "x", ["Who owns Moppet the Third?"], 1)
    placed = last_words(engine, [fact], [(1, 2, 3)], 3)
    behind = [word.tokens[word.tokens.index(2) + 1 :] for word in placed]
    words = [tokens[1:] if tokens[:1] == (3,) else tokens for tokens in behind]
    assert sorted(set(words)) == [*((token,) for token in range(6, 13)), (30, 31)]
    assert all(words.count(word) == 3 for word in words)


def test_the_library_words_what_is_surely_asked() -> None:
    """Of the surest relation, with the fact's name; what is known or does not fit is left out."""
    wanted = [text.replace("{x}", "Moppet the Third") for text in relations()[3].wordings]
    wanted = [text[:1].upper() + text[1:] for text in wanted]

    def looks(texts: list[str]) -> list[Any]:
        shares = dict(zip(OWNED, (0.61, 0.59, 0.61), strict=True))
        vectors = [np.full(len(relations()), 1e-3) for _ in texts]
        for vector, text in zip(vectors, texts, strict=True):
            vector[3] = shares[text] ** 0.5
        rows = zip(texts, vectors, strict=True)
        return [SimpleNamespace(names=OWNED[text], vector=vector) for text, vector in rows]

    def fits(text: str) -> bool:
        return text != wanted[-1]

    engine = engine_of(looks=looks, limits=SimpleNamespace(fits=fits))
    facts = [WordedFact(text, "x", [text, wanted[0]], 1) for text in OWNED]
    assert related_wordings(engine, facts) == [wanted[1:-1], [], []]
