"""Find the facts that a model knows before training: search five samples for the answer.

Source: app:data-real, "Per-model contamination filter".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters, TextModel
from holdfast.streams.item import Item

# "At most 64 new tokens, stopping at a newline or a new question."
SAMPLING = SamplingParameters(
    samples=5,
    temperature=0.7,
    top_p=0.95,
    max_new_tokens=64,
    stop=("\n", "Question:", "Q:"),
)
# The rule by which a completion contains an answer.
Match = Literal["word_boundary", "lenient"]
_ATTEMPTS = 3
_ARTICLE = re.compile(r"^(a|an|the) ", re.IGNORECASE)
_AROUND = " .,;:!?\"'()[]"
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def prompt(question: str) -> str:
    """The prompt that the model continues."""
    return f"Question: {question}\nAnswer:"


def found(completion: str, answers: Sequence[str], match: Match = "word_boundary") -> str | None:
    """The first accepted answer that a completion contains, between word boundaries; or None.

    Case is ignored. ``lenient`` also ignores spacing, kinds of quotes, an article before the answer
    and punctuation around it, but nothing else: ``3.5`` is not ``35``, ``Vitamin A`` is not
    ``Vitamin C``. With ``lenient``, an answer that is itself an article (blood group ``A``) must
    match in case.
    Source: app:data-real ("as a word-boundary substring"); ``lenient`` is Holdfast's own.
    """
    stands = _stands_in if match == "word_boundary" else _stands_in_leniently
    return next((answer for answer in answers if stands(answer, completion)), None)


def _stands_in_leniently(answer: str, text: str) -> bool:
    wanted = _ARTICLE.sub("", _spoken(answer).strip(_AROUND)) or answer
    if wanted.casefold() in ("a", "an", "the"):
        return _between_boundaries(wanted, _spoken(text))
    return _stands_in(wanted, _spoken(text))


def _stands_in(answer: str, text: str) -> bool:
    return _between_boundaries(answer.casefold(), text.casefold())


def _between_boundaries(wanted: str, text: str) -> bool:
    # Not \b: it needs a word character at either end of the answer, which "C++" lacks.
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


def _spoken(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).translate(_QUOTES).split())


def ask(
    model: TextModel, questions: Sequence[tuple[str, str]], sampling: SamplingParameters
) -> Iterator[tuple[int, Answer]]:
    """Sample completions of every question; a failed one is retried twice, then yielded as Failure.

    questions: (name, question); the name seeds the random numbers.
    Yields (place, answer), each place once, in any order.
    """
    waiting = list(range(len(questions)))
    for attempt in range(1, _ATTEMPTS + 1):
        prompts = [Prompt(questions[place][0], prompt(questions[place][1])) for place in waiting]
        failed = []
        for index, answer in model.answer(prompts, sampling):
            if isinstance(answer, Failure) and attempt < _ATTEMPTS:
                failed.append(waiting[index])
            else:
                yield waiting[index], answer
        if not failed:
            return
        waiting = sorted(failed)


def known(model: TextModel, items: Sequence[Item], seed: int) -> list[bool | Failure]:
    """Whether any sample of the model answers each item; the question's text seeds its samples."""
    verdicts: list[bool | Failure] = [Failure("was not answered")] * len(items)
    sampling = SAMPLING.model_copy(update={"seed": seed})
    questions = [(item.question, item.question) for item in items]
    for place, answer in ask(model, questions, sampling):
        item = items[place]
        accepted = (item.answer, *item.aliases)
        verdicts[place] = (
            answer if isinstance(answer, Failure) else any(found(text, accepted) for text in answer)
        )
    return verdicts
