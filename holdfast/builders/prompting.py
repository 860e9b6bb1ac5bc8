"""How a model is asked for questions and answers about a text, and how its replies are read."""

from __future__ import annotations

import re

from holdfast.builders.documents import Passage

VERSION = 7  # of the prompts and of the parsing of replies
_ASKED = 5  # most pairs of a passage, in Writing
_ANSWERS = 3  # most answers of a sentence, in Completing
_WRITER = (
    "You write questions and answers about a text. Every question names what it asks about, so "
    "that it is understood without the text. Every answer is a few words of the text. Write each "
    "pair as two lines, the first beginning with Q: and the second with A:"
)
_READER = "You answer a question from a text, in a few words of the text."
_EXAMPLE = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr. It has two decks.\n\n"
    "Q: Who built the ferry Marigold?\nA: Ilse Marr\n"
    "Q: When was the ferry Marigold built?\nA: in 1911"
)
# Examples to continue, for a model that does not follow instructions well.
_QUESTIONS = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr.\nAnswer: Ilse Marr\n"
    "Question: Who built the ferry Marigold?\n\n"
    "Text: In Luxor the garden of Fenwick Oduya has forty fig trees.\nAnswer: forty\n"
    "Question: How many fig trees does the garden of Fenwick Oduya have?\n\n"
    "Text: The council met in Varrowby in May 1802.\nAnswer: May 1802\n"
    "Question: When did the council meet in Varrowby?\n\n"
)
_ANSWERED = (
    "Text: The ferry Marigold was built in 1911 by Ilse Marr.\n"
    "Question: When was the ferry Marigold built?\nAnswer: 1911\n\n"
    "Text: In Luxor the garden of Fenwick Oduya has forty fig trees.\n"
    "Question: Who has a garden in Luxor?\nAnswer: Fenwick Oduya\n\n"
)
_PAIR = re.compile(
    r"^[\W\d]*(?:Q|Question)\s*\d*\s*[:.)]\s*(?P<q>[^\n]+?)\s*\n"
    r"\W*(?:A|Answer)\s*\d*\s*[:.)]\s*(?P<a>[^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)
_ASKED_FOR = re.compile(r"^what is the answer to th(?:e|is) question\s*[:?\"“'‘]\W*", re.I)
# Words that name something, after a question's first word.
NAME_OR_NUMBER = re.compile(r"(?<!^)\b(?:[^\W\d_a-z]\w+|\d+)\b")
# Possible answers in a sentence: names, and numbers with what they count.
_NAME = r"[A-Z][\w'’-]+(?:\s+(?:(?:of|the|de|von|van)\s+)*[A-Z][\w'’-]+)*"
_NUMBER = (
    r"\d[\d.,:/]*\d|\d|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|"
    r"forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand)\b"
)
# Words that end in s and are nothing that is counted.
_NO_UNIT = "was|is|has|does|as|its|his|this|us|thus|plus|less|across|always|towards|perhaps"
_ANSWER = re.compile(
    rf"(?P<name>{_NAME})|(?P<number>\b(?:{_NUMBER})(?:\s+(?!(?:{_NO_UNIT})\b)[a-z][a-z]+s\b)?)"
)
_STANDS_FOR = re.compile(
    r"(?:It|He|She|They|Its|His|Her|Their|This|That|These|Those|There|Here|We|I|You|My|Our)\b"
)


class Writing:
    """For a model that follows instructions: it writes the pairs of a passage, in a chat.

    at_once: passages that are asked about, then stored, together; longest: most tokens of a reply.
    """

    at_once = 8  # one prompt each; an endpoint answers several at a time
    longest = 60 * _ASKED
    stop: tuple[str, ...] = ()

    def prompts(self, passage: Passage) -> list[tuple[str, str | None]]:
        """The prompts for a passage: (text, system message of a chat or None)."""
        asked = f"Write up to {_ASKED} pairs about this last text."
        return [(f"{_EXAMPLE}\n\nText: {passage.text}\n\n{asked}", _WRITER)]

    def pairs(self, passage: Passage, place: int, reply: str) -> list[tuple[str, str]]:
        """The (question, answer) pairs in the reply to prompt number ``place``, from 0."""
        return read_pairs(reply)

    def question(self, text: str, question: str) -> tuple[str, str | None]:
        """The prompt that asks for a question's answer from a text, as :meth:`prompts`."""
        return f"Text: {text}\n\nQuestion: {question}", _READER


class Completing:
    """For any language model: it continues examples with a question for a given answer.

    The answers are the names and numbers of a sentence. Sentences that begin with a pronoun are
    left out, since a question from such a sentence alone would name nothing.
    """

    at_once = 1  # its twenty or so prompts keep a processor busy
    longest = 40
    stop: tuple[str, ...] = ("\n",)

    def prompts(self, passage: Passage) -> list[tuple[str, str | None]]:
        return [
            (f"{_QUESTIONS}Text: {sentence}\nAnswer: {answer}\nQuestion:{begun(answer)}", None)
            for sentence, answer in self._asked(passage)
        ]

    def pairs(self, passage: Passage, place: int, reply: str) -> list[tuple[str, str]]:
        answer = self._asked(passage)[place][1]
        question, mark, _ = f"{begun(answer)}{reply.rstrip()}".strip().partition("?")
        return [(_direct(f"{question}{mark}"), answer)]

    def question(self, text: str, question: str) -> tuple[str, str | None]:
        return f"{_ANSWERED}Text: {text}\nQuestion: {question}\nAnswer:", None

    def _asked(self, passage: Passage) -> list[tuple[str, str]]:
        return [
            (sentence, answer)
            for sentence in passage.sentences
            if sentence[-1:] in ".!" and not _STANDS_FOR.match(sentence)
            for answer in answers_in(sentence)
        ]


PromptForm = Writing | Completing


def begun(answer: str) -> str:
    """How the question begins if its answer is a year, a time or a count; else empty."""
    if re.fullmatch(r"1\d{3}|20\d{2}|\d{1,2}:\d{2}", answer):
        return " When"
    counted = re.fullmatch(rf"(?:{_NUMBER})\s+([a-z]+)", answer)
    return f" How many {counted[1]}" if counted else ""


def answers_in(sentence: str) -> list[str]:
    """The last three names and numbers of a sentence, as its subject comes before what it says."""
    answers = []
    for match in _ANSWER.finditer(sentence):
        if match["name"] and match.start() == 0 and " " not in match[0]:
            continue  # a sentence's first word always has a capital
        answers.append(match[0].rstrip(".,:"))
    return list(dict.fromkeys(answers))[-_ANSWERS:]


def read_pairs(reply: str) -> list[tuple[str, str]]:
    """The (question, answer) pairs in a reply, at most five; an answer's full stop is removed."""
    pairs = [
        tuple(" ".join(match[part].split()).strip("*_` ") for part in "qa")
        for match in _PAIR.finditer(reply)
    ]
    return [(_direct(question), answer.rstrip(".")) for question, answer in pairs if answer][
        :_ASKED
    ]


def _direct(question: str) -> str:
    """A question without ``What is the answer to the question:`` before it."""
    asked = _ASKED_FOR.sub("", question)
    if asked in ("", question):
        return question
    return asked[:1].upper() + asked[1:].rstrip("\"”’'")
