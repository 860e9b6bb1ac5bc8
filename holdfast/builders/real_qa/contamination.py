"""Which facts a model knows before it is taught any: five samples, and a look for the answer.

Source: app:data-real, "Per-model contamination filter".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

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
RULE = "an answer between word boundaries, in any case; articles and punctuation around it drop"
_ATTEMPTS = 3
_ARTICLE = re.compile(r"^(a|an|the) ", re.IGNORECASE)
_AROUND = " .,;:!?\"'()[]"
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def prompt(question: str) -> str:
    """What the model is asked to continue."""
    return f"Question: {question}\nAnswer:"


def found(completion: str, answers: Sequence[str]) -> str | None:
    """The first accepted answer that a completion contains, between word boundaries; or None.

    Case, spacing, kinds of quotes, an article before the answer and punctuation around it do not
    count; within the answer all counts: ``3.5`` is not ``35``, ``Vitamin A`` not ``Vitamin C``.
    An answer that is itself an article (the blood group ``A``) has to have its case.
    """
    spoken = _spoken(completion)
    for answer in answers:
        wanted = _ARTICLE.sub("", _spoken(answer).strip(_AROUND)) or answer
        article = wanted.casefold() in ("a", "an", "the")
        if (
            _stands_in(wanted, spoken)
            if article
            else _stands_in(wanted.casefold(), spoken.casefold())
        ):
            return answer
    return None


def _stands_in(wanted: str, text: str) -> bool:
    # \b would want a word's symbol at either end of the answer, which "C++" does not have.
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None


def _spoken(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).translate(_QUOTES).split())


def ask(
    model: TextModel, questions: Sequence[tuple[str, str]], sampling: SamplingParameters
) -> Iterator[tuple[int, Answer]]:
    """Completions of every question; what fails is asked again, and is a failure in the end.

    questions: a name, which names the randomness, and the question itself.
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
    """Whether a model answers each item in any of its samples, whose randomness the item names."""
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
