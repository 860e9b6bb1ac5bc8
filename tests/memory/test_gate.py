"""The gate finds names that it has not seen, and the fact that a comparison with all finds."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import torch

from holdfast.memory import gate as module
from holdfast.memory.gate import (
    Gate,
    GateTuning,
    Match,
    NameProbe,
    QuestionLook,
    Span,
    Vectors,
    hints_of,
    tokens_of_words,
)
from holdfast.memory.gate_tuning import fit_probe
from holdfast.memory.library import invented_name, library_questions, pairs_of, relations
from holdfast.memory.words import agreement, plain_words, words
from holdfast.model.chat import chat_form
from tests.model.chat_models import chat_tokenizer

WIDTH = 32
PROBE = NameProbe(*[torch.zeros(1)] * 3)
# Likeness, words covered, words too many, 1: as they come out on a model, and a threshold.
TUNING = GateTuning("", (1,), PROBE, *[torch.zeros(1)] * 3, (12.0, 8.0, -6.0, -13.0))


def look(question: str, vector: Vectors) -> QuestionLook:
    """As a probe would see it: words that the library does not ask with name something."""
    keys = [word.key for word in words(question) if word.key not in plain_words()]
    return QuestionLook({key: 1.0 + len(key) // 4 for key in keys}, vector)


def unit(drawn: np.random.Generator, count: int) -> Vectors:
    vectors = drawn.normal(size=(count, WIDTH)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def near(vector: Vectors, drawn: np.random.Generator, noise: float) -> Vectors:
    other = vector + noise * unit(drawn, 1)[0]
    return np.asarray(other / np.linalg.norm(other))


def brute_force(looks: list[QuestionLook], owners: list[int], asked: QuestionLook) -> Match | None:
    """The best accepted fact of all, compared one by one."""
    best: dict[int, float] = {}
    for taught, owner in zip(looks, owners, strict=True):
        covered, extra = agreement(taught.names, asked.names)
        if covered - extra >= module._LEAST_AGREED:
            score = TUNING.score(float(taught.vector @ asked.vector), covered, extra)
            best[owner] = max(best.get(owner, score), score)
    place = max(best, key=lambda owner: best[owner], default=None)
    return None if place is None or best[place] <= 0 else Match(place, best[place])


def accepted_by(gate: Gate, asked: QuestionLook) -> int | None:
    match = gate.best(asked)
    return match.place if match is not None and match.score > 0 else None


def typed(draw: random.Random, name: str) -> str:
    if len(name) < 7 or draw.random() < 0.5:
        return name.lower()
    place = draw.randrange(5, len(name) - 1)
    return name[:place] + name[place + 1] + name[place] + name[place + 2 :]


def test_thousands_of_facts_are_answered_as_by_a_comparison_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taught ones in other spellings, and untaught ones; the work is bounded."""
    draw, drawn = random.Random(0), np.random.default_rng(0)
    asking = ("What is the home of {}?", "Who is the boss of {}?", "What is {} made of?")
    names = [invented_name(draw, draw.choice(("person", "thing"))) for _ in range(1000)]
    questions = [draw.choice(asking).format(draw.choice(names)) for _ in range(2500)]
    owners = [owner for owner in range(2500) for _ in range(2)]
    vectors = unit(drawn, len(owners))
    texts = [questions[owner] for owner in owners]
    looks = [look(text, vector) for text, vector in zip(texts, vectors, strict=True)]
    gate = Gate(TUNING, looks, owners)
    compared: list[int] = []
    real = Gate._match

    def counted(self: Gate, place: int, *more: object) -> Match | None:
        compared.append(place)
        return real(self, place, *more)

    monkeypatch.setattr(Gate, "_match", counted)
    accepted = 0
    for number in range(18):
        row = draw.randrange(len(owners))
        question = questions[owners[row]]
        asked = question if number % 2 else typed(draw, question)
        vector = near(vectors[row], drawn, 0.8) if number % 3 else unit(drawn, 1)[0]
        compared.clear()
        place = accepted_by(gate, look(asked, vector))
        assert len(compared) <= module._CANDIDATES
        expected = brute_force(looks, owners, look(asked, vector))
        assert place == (expected and expected.place), asked
        accepted += expected is not None
    assert 9 <= accepted < 18


@pytest.mark.parametrize("asking", ["What is the {} of Ostra?", "What is it?"])
def test_one_thing_may_have_many_facts(asking: str) -> None:
    """More than are compared: those whose vectors are most like the question's are taken."""
    drawn = np.random.default_rng(1)
    questions = [asking.replace("{}", "colour") for _ in range(500)]
    vectors = unit(drawn, 500)
    looks = [look(text, vector) for text, vector in zip(questions, vectors, strict=True)]
    gate = Gate(TUNING, looks, range(500))
    for place in (0, 100, 499):
        asked = look(questions[place], near(vectors[place], drawn, 0.3))
        match = gate.best(asked)
        assert match is not None and match.place == place
        assert len(gate._candidates(asked)) == module._CANDIDATES


def test_what_names_nothing_finds_what_names_nothing() -> None:
    """A word of which the probe is not sure is no name."""
    vectors = np.eye(3, WIDTH, dtype=np.float32)
    looks = [QuestionLook({"wifi": 0.3}, vectors[0]), QuestionLook({"ostra": 3.0}, vectors[1])]
    gate = Gate(TUNING, looks, [0, 1])
    assert accepted_by(gate, QuestionLook({"code": 0.1}, vectors[0])) == 0
    assert accepted_by(gate, QuestionLook({}, vectors[1])) is None


def test_another_number_is_refused_however_much_else_is_shared() -> None:
    drawn = np.random.default_rng(3)
    vector = unit(drawn, 1)[0]
    taught = look("Who led the Marrow Regatta of Velm on 3 May 1874?", vector)
    gate = Gate(TUNING, [taught], [0])
    same = look("who led the marrow regatta of Velm on may 3 1874", vector)
    assert accepted_by(gate, same) == 0
    other = look("Who led the Marrow Regatta of Velm on 5 May 1874?", vector)
    covered, extra = agreement(taught.names, other.names)
    assert covered - extra > module._LEAST_AGREED
    assert gate.best(other) is None


def test_the_words_decide_where_the_vectors_are_alike() -> None:
    """Another entity in the same words is not accepted, a shared first name included."""
    vector = np.eye(1, WIDTH, dtype=np.float32)
    taught = "Where does Anna Berg live?"
    gate = Gate(TUNING, [look(taught, vector[0])], [0])
    for asked, accepted in {
        taught: True,
        "where does anna berg live": True,
        "Where does Anna Berg's cat live?": True,
        "Where does Anna live?": True,
        "Where does Anna Holt live?": False,
        "Where does Ben Okri live?": False,
    }.items():
        assert (accepted_by(gate, look(asked, vector[0])) == 0) is accepted, asked
    assert (
        accepted_by(gate, look(taught, -vector[0])) is None
    )  # and the vectors where the words are


def test_a_long_word_counts_once() -> None:
    """However many keys of the index it shares with a taught one."""
    vectors = unit(np.random.default_rng(4), 101)
    names = [{"harbour": 1.0}] * 100 + [{"x9": 3.0}]
    looks = [QuestionLook(name, vector) for name, vector in zip(names, vectors, strict=True)]
    gate = Gate(TUNING, looks, range(101))
    match = gate.best(QuestionLook({"harbour": 1.0, "x9": 3.0}, vectors[100]))
    assert match is not None and match.place == 100


def test_a_question_that_tells_two_facts_not_apart_asks_for_neither() -> None:
    """A shared surname; what only one of them asks, or a whole name, is no such question."""
    drawn = np.random.default_rng(3)
    birth, trade = unit(drawn, 2)
    taught = [
        ("Where was Orsa Tindle born?", birth), ("Where was Ada Tindle born?", birth),
        ("What is the trade of Ada Tindle?", trade), ("Where was Quillow born?", birth),
        ("Where was Brann Quillow born?", birth),
    ]  # fmt: skip
    looks = [look(text, vector) for text, vector in taught]
    tuning = GateTuning("", (1,), PROBE, *[torch.zeros(1)] * 3, (12.0, 4.0, -6.0, -12.0))
    gate = Gate(tuning, looks, range(len(looks)))
    assert gate.best(look("Where was Tindle born?", birth)) is None
    asked = {
        "What is the trade of Tindle?": (trade, 2), "Where was Ada Tindle born?": (birth, 1),
        "Where was Orsa Tindel born?": (birth, 0), "Where was Quillow born?": (birth, 3),
    }  # fmt: skip
    for text, (vector, place) in asked.items():
        assert accepted_by(gate, look(text, vector)) == place, text
    # Nor is one that asks what the only fact with a further name is asked.
    rest = trade - (trade @ birth) * birth
    less = np.asarray(0.8 * birth + 0.6 * rest / np.linalg.norm(rest))
    further = [look("Where was Brann Quillow born?", birth), look("Where is Quillow?", less)]
    asking = look("Where was Quillow born?", birth)
    assert accepted_by(Gate(tuning, further, range(2)), asking) == 0
    # Two wordings of one fact are no two facts, whatever they call it.
    alone = Gate(tuning, looks[:2], [0, 0])
    assert accepted_by(alone, look("Where was Tindle born?", birth)) == 0


def test_a_name_on_file_is_no_typing_error_of_another() -> None:
    drawn = np.random.default_rng(4)
    home = unit(drawn, 1)[0]
    questions = ["Where does Karin live?", "Where does Karen live?"]
    both = Gate(TUNING, [look(text, home) for text in questions], range(2))
    for place, text in enumerate(questions):
        # The other's vector is the likelier one.
        assert accepted_by(both, look(text, near(home, drawn, 0.3))) == place
    alone = Gate(TUNING, [look(questions[0], home)], [0])
    assert accepted_by(alone, look(questions[1], home)) == 0


def spans_of(text: str) -> list[Span]:
    """A token for each word, punctuation at its end a token of its own."""
    spans = []
    for word in words(text):
        last = word.begin + text[word.begin : word.end].rindex(word.text) + len(word.text)
        spans += [(word.begin, last)] + ([(last, word.end)] if last < word.end else [])
    return spans


def states_of(spans: list[Span], name: Span, drawn: torch.Generator) -> torch.Tensor:
    """Noise, and one direction at the tokens of the name."""
    states = torch.randn(len(spans), WIDTH, generator=drawn)
    states[:, 0] = torch.tensor([4.0 * (b < name[1] and e > name[0]) for b, e in spans])
    return states


@pytest.mark.parametrize("by_states", [True, False])
def test_names_that_it_has_not_seen_are_found(by_states: bool) -> None:
    """Where the states tell nothing, those with capitals."""
    asked = library_questions(random.Random(0))[:1400]
    drawn = torch.Generator().manual_seed(0)
    spans = [spans_of(question.text) for question in asked]
    states = [
        states_of(parts, question.name if by_states else (0, 0), drawn)
        for parts, question in zip(spans, asked, strict=True)
    ]
    seen = [question.group % 2 == 0 for question in asked]
    train, test = (
        [row for row in range(len(asked)) if seen[row] is side] for side in (True, False)
    )
    probe = fit_probe(
        [asked[row].text for row in train],
        [spans[row] for row in train],
        [states[row] for row in train],
        [asked[row].name for row in train],
    )
    right = []
    for row in test:
        question = asked[row]
        probabilities = probe.probabilities(question.text, spans[row], states[row])
        names = probe.names(question.text, spans[row], probabilities)
        keys = {key for key, weight in names.items() if weight >= 0.5}
        name = words(question.text[slice(*question.name)])
        if by_states or any(word.is_marked for word in name):
            right.append(keys == {word.key for word in name})
    assert len(right) > 300 and sum(right) / len(right) > (0.98 if by_states else 0.5)


def test_the_tokens_of_a_word_are_those_that_hold_letters_of_it() -> None:
    form = chat_form(chat_tokenizer())
    text = "Where does Orsa Tindle's cat, B-7, sleep?"
    spans = form.spans(text)
    assert len(spans) == len(form.question(text)) - len(form.user_end)
    for word, rows in tokens_of_words(text, spans):
        read = "".join(text[slice(*spans[row])] for row in rows)
        assert word.text.replace("-", "") in read.replace(" ", "").replace("-", "")
    every = [row for _, rows in tokens_of_words(text, spans) for row in rows]
    assert len(every) == len(set(every))


def test_a_capital_is_a_hint_in_every_word_but_the_first() -> None:
    text = "Ada met Ann, 47"
    assert hints_of(text, spans_of(text))[:, 0].tolist() == [0, 0, 1, 0, 1]


def test_pairs_differ_in_what_they_say() -> None:
    asked = library_questions(random.Random(1))
    assert len(asked) == 7 * len(relations())
    differences = set()
    for first, second, difference in pairs_of(asked, 500, random.Random(1)):
        taught, other = asked[first], asked[second]
        assert taught.group == other.group and first != second
        assert (taught.relation != other.relation) == (difference == "relation")
        assert (taught.about != other.about) == (difference == "entity")
        differences.add(difference)
    assert differences == {"same", "relation", "entity"}
    for row in asked:
        name = row.text[slice(*row.name)]
        assert name and not name.startswith("the ")


def test_where_nothing_reads_as_a_name_the_words_that_are_not_asked_with_stand_for_it() -> None:
    text = "Complete: waterboarding is a kind of"
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    probe = NameProbe(torch.zeros(2), torch.ones(2), torch.zeros(5))
    nothing = dict.fromkeys(("complete", "waterboarding", "is", "a", "kind", "of"), 0.0)
    stand_in = {"complete": 1.0, "waterboarding": 1.0}
    assert probe.names(text, spans, torch.zeros(len(spans))) == nothing | stand_in
    certain = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    assert probe.names(text, spans, certain) == nothing | {"kind": 1.0}
    twice = [(0, 3), (4, 7)]  # the surest of a word counts
    assert probe.names("Ada ada", twice, torch.tensor([0.75, 0.0])) == {"ada": 0.75}
