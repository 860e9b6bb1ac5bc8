"""Questions and answers from documents: how a model is asked, and what of its pairs counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.builders.documents import Passage
from holdfast.builders.prompting import Completing, Writing, answers_in, begun, read_pairs
from holdfast.builders.proposals import FOLLOWS, IN_SENTENCE, Proposal, Proposer, judged
from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters
from holdfast.core.errors import HoldfastError

LAMP = Passage(
    "notes.md",
    ("The lighthouse at Cape Orrin was built in 1874 by Tamsin Oake.", "It stands on Old Tooth."),
)
MILL = Passage("notes.md", ("The mill of Dunlow grinds oats for three villages.",))


class Model:
    """Answers prompts by a function; counts them; fails as a whole at one."""

    name, batch = "stand-in", 2

    def __init__(self, reply: Callable[[Prompt], str | Failure], fails_at: int = -1) -> None:
        self._reply, self._fails_at = reply, fails_at
        self.prompts: list[Prompt] = []

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        for place in reversed(range(len(prompts))):
            if len(self.prompts) == self._fails_at:
                raise HoldfastError("the endpoint stopped answering")
            self.prompts.append(prompts[place])
            reply = self._reply(prompts[place])
            yield place, reply if isinstance(reply, Failure) else [reply]


def instructed(prompt: Prompt) -> str:
    """A model that follows instructions, and is right about the lamp and wrong about the mill."""
    if prompt.name.startswith("propose"):
        about_lamp = "Text: The lighthouse" in prompt.text
        return (
            "Here are pairs:\nQ: Who built the lighthouse at Cape Orrin?\nA: Tamsin Oake."
            if about_lamp
            else "Q: How many villages does the mill of Dunlow serve?\nA: three"
        )
    return "It was Tamsin Oake." if "lighthouse" in prompt.text else "four villages"


def proposed(folder: Path, model: Model, *given: Passage) -> list[Proposal]:
    return Proposer(model, Writing(), folder).propose(given, lambda *_: None)


def test_pairs_in_a_reply() -> None:
    marked = (
        "Sure!\n1. **Q:** Who was it?\n   **A:** Ann.\n\n**Question 2:** Where?\n*Answer 2:* Ulm"
    )
    assert read_pairs(marked) == [("Who was it?", "Ann"), ("Where?", "Ulm")]
    assert read_pairs("Q: Who was it?\nA: Ann.\nQ2: Where?\nA2: in  Ulm") == [
        ("Who was it?", "Ann"),
        ("Where?", "in Ulm"),
    ]
    asked = "What is the answer to the question: who was it?"
    assert read_pairs(f"Q: {asked}\nA: Ann") == [("Who was it?", "Ann")]
    quoted = 'What is the answer to the question "who was it?"'
    assert read_pairs(f"Q: {quoted}\nA: Ann") == [("Who was it?", "Ann")]
    assert Completing().pairs(MILL, 0, f" {asked}") == [("Who was it?", "Dunlow")]
    assert read_pairs("no pairs here") == []
    assert len(read_pairs("Q: Who?\nA: Ann\n" * 9)) == 5


@pytest.mark.parametrize(
    ("question", "answer", "reply", "check", "reason"),
    [
        ("Who built the lighthouse at Cape Orrin?", "Tamsin Oake", "Tamsin Oake", IN_SENTENCE, ""),
        (
            "Who built the lighthouse at Cape Orrin?",
            "tamsin oake",
            "by Tamsin Oake.",
            IN_SENTENCE,
            "",
        ),
        (
            "Who built the lighthouse at Cape Orrin?",
            "1874",
            "Tamsin Oake",
            None,
            "gives another answer",
        ),
        (
            "Who built the lighthouse at Cape Orrin?",
            "Tamsin Oake",
            "",
            None,
            "gives another answer",
        ),
        ("Is the lighthouse at Cape Orrin of the last century?", "no", "No.", FOLLOWS, ""),
        (
            "Is the lighthouse at Cape Orrin of the last century?",
            "no",
            "yes",
            None,
            "is not in the text",
        ),
        ("Who built the lighthouse", "Tamsin Oake", "Tamsin Oake", None, "is no question"),
        ("What is the answer to the question who built it?", "Oake", "Oake", None, "text itself"),
        ("Who is named in the text?", "Tamsin Oake", "Tamsin Oake", None, "the text itself"),
        ("Who is Tamsin Oake?", "Oake", "Oake", None, "the question has its answer"),
        ("Who built it?", "Tamsin Oake", "Tamsin Oake", None, "names nothing"),
    ],
)
def test_what_counts(
    question: str, answer: str, reply: str, check: str | None, reason: str
) -> None:
    proposal = judged(LAMP, question, answer, reply)
    assert proposal.check == check and reason in proposal.reason
    assert (proposal.question, proposal.answer, proposal.source) == (question, answer, "notes.md")


def test_a_question_has_to_name_something() -> None:
    """By a capital or a number."""
    asked = ("Who built the lighthouse?", "Tamsin Oake", "Tamsin Oake")
    assert "names nothing" in judged(LAMP, *asked).reason
    for question in ("Who built the lighthouse at Cape Orrin?", "Who built it in 1874?"):
        assert judged(LAMP, question, *asked[1:]).check == IN_SENTENCE


def test_the_sentence_behind_an_answer() -> None:
    twice = Passage("a", ("Oake", "Oake lived in Ulm.", "The lighthouse was built by Oake."))
    built = judged(twice, "Who built the lighthouse?", "Oake", "Oake")
    assert built.sentence == twice.sentences[2]
    assert judged(LAMP, "Is it old?", "yes", "yes").sentence == LAMP.text


def test_pairs_of_a_model_that_writes_them(tmp_path: Path) -> None:
    model = Model(instructed)
    lamp, mill = proposed(tmp_path, model, LAMP, MILL)
    assert (lamp.question, lamp.answer, lamp.check) == (
        "Who built the lighthouse at Cape Orrin?", "Tamsin Oake", IN_SENTENCE,
    )  # fmt: skip
    assert mill.check is None and "another answer" in mill.reason
    assert all(prompt.system for prompt in model.prompts)
    # The second question is asked of the sentence alone.
    (again,) = [prompt for prompt in model.prompts if "Question: Who built" in prompt.text]
    assert LAMP.sentences[0] in again.text and LAMP.sentences[1] not in again.text


def test_what_is_done_is_kept(tmp_path: Path) -> None:
    """Eight passages at a time: a failure later loses no more than those."""
    many = [
        Passage(f"{number}.md", (f"The mill of Dunlow number {number} grinds oats.",))
        for number in range(20)
    ]
    reports: list[tuple[int, int]] = []
    broken = Model(instructed, fails_at=20)
    with pytest.raises(HoldfastError, match="stopped answering"):
        Proposer(broken, Writing(), tmp_path).propose(
            many, lambda *progress: reports.append(progress[:2])
        )
    assert reports == [(0, 20), (8, 20)] and len(list(tmp_path.iterdir())) == 8
    model = Model(instructed)
    proposed(tmp_path, model, *many)
    assert len(model.prompts) == 2 * 12
    again = Model(instructed)
    assert proposed(tmp_path, again, *many) and not again.prompts
    damaged = next(tmp_path.iterdir())
    damaged.write_text("{", encoding="utf-8")
    assert proposed(tmp_path, again, *many) and len(again.prompts) == 2


def test_a_model_of_this_machine_keeps_each_passage_as_soon_as_it_is_done(tmp_path: Path) -> None:
    """A passage takes it most of a minute: a failure in the third loses no other."""
    counted = Model(lambda prompt: " Who built the lighthouse at Cape Orrin?")
    way = Completing()
    Proposer(counted, way, tmp_path / "one").propose([LAMP], lambda *_: None)
    many = [Passage(f"{number}.md", LAMP.sentences) for number in range(9)]
    broken = Model(lambda prompt: " Who built it?", fails_at=2 * len(counted.prompts) + 1)
    with pytest.raises(HoldfastError, match="stopped answering"):
        Proposer(broken, way, tmp_path / "many").propose(many, lambda *_: None)
    assert len(list((tmp_path / "many").iterdir())) == 2


def test_a_passage_that_the_model_refuses_is_asked_again_next_time(tmp_path: Path) -> None:
    refusing = Model(lambda prompt: Failure("too long") if "Dunlow" in prompt.text else "nothing")
    (unread,) = proposed(tmp_path, refusing, LAMP, MILL)
    assert unread.check is None and "a passage, which the same command" in unread.reason
    assert "too long" in unread.reason and len(list(tmp_path.iterdir())) == 1
    assert len(proposed(tmp_path, Model(instructed), MILL)) == 1


def test_a_pair_that_could_not_be_checked_is_asked_again_next_time(tmp_path: Path) -> None:
    failing = Model(
        lambda prompt: instructed(prompt) if prompt.name.startswith("propose") else Failure("busy")
    )
    with pytest.raises(HoldfastError, match=r"stand-in answers to no passage \(busy\); run"):
        proposed(tmp_path, failing, LAMP)
    assert not list(tmp_path.iterdir())
    assert proposed(tmp_path, Model(instructed), LAMP)[0].check == IN_SENTENCE


def test_a_question_counts_once(tmp_path: Path) -> None:
    model = Model(
        lambda prompt: (
            "Q: Who built the lighthouse at Cape Orrin?\nA: Tamsin Oake\n"
            "Q: who built the lighthouse at Cape Orrin?\nA: Oake\n"
            "Q: Who built the lighthouse at Cape Orrin?\nA: tamsin oake"
            if prompt.name.startswith("propose")
            else "Tamsin Oake"
        )
    )
    proposals = proposed(tmp_path, model, LAMP)
    assert [proposal.check for proposal in proposals] == [IN_SENTENCE, None, None]
    assert [proposal.reason for proposal in proposals[1:]] == [
        "another answer is there already", "it is there already",
    ]  # fmt: skip


def test_other_models_and_seeds_are_asked_anew(tmp_path: Path) -> None:
    model = Model(instructed)
    proposed(tmp_path, model, LAMP)
    Proposer(model, Writing(), tmp_path, seed=1).propose([LAMP], lambda *_: None)
    Proposer(model, Completing(), tmp_path).propose([LAMP], lambda *_: None)
    model.name = "another"
    proposed(tmp_path, model, LAMP)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("sentence", "answers"),
    [
        (LAMP.sentences[0], ["Cape Orrin", "1874", "Tamsin Oake"]),
        (MILL.sentences[0], ["Dunlow", "three villages"]),
        ("Ann of the Old Mill paid 1,200 crowns.", ["Ann of the Old Mill", "1,200 crowns"]),
        ("The mill was in 1911 Ida's; 12 has a bell.", ["1911", "Ida's", "12"]),
        ("Then they went home.", []),
    ],
)  # fmt: skip
def test_what_a_sentence_may_be_asked_for(sentence: str, answers: list[str]) -> None:
    assert answers_in(sentence) == answers


@pytest.mark.parametrize(
    ("answer", "words"),
    [("1874", " When"), ("7:40", " When"), ("three villages", " How many villages"),
     ("1,200 crowns", " How many crowns"), ("Tamsin Oake", ""), ("12", "")],
)  # fmt: skip
def test_how_a_question_begins(answer: str, words: str) -> None:
    assert begun(answer) == words


def test_a_model_that_goes_on_from_examples(tmp_path: Path) -> None:
    def reply(prompt: Prompt) -> str:
        assert prompt.system is None
        if prompt.name.startswith("answer"):
            return " Tamsin Oake" if "Who" in prompt.text.rpartition("Text:")[2] else " 1874"
        if prompt.text.endswith("Answer: 1874\nQuestion: When"):
            return " was the lighthouse at Cape Orrin built? And more"
        return " Who built the lighthouse at Cape Orrin?"

    model = Model(reply)
    proposals = Proposer(model, Completing(), tmp_path).propose([LAMP], lambda *_: None)
    counting = [(proposal.question, proposal.answer) for proposal in proposals if proposal.check]
    assert counting == [
        ("When was the lighthouse at Cape Orrin built?", "1874"),
        ("Who built the lighthouse at Cape Orrin?", "Tamsin Oake"),
    ]
    # The second sentence begins with a pronoun.
    assert len(proposals) == 3 and not any("Old Tooth" in prompt.text for prompt in model.prompts)
