"""Multiple choice as free recall: keep the right option's text as the answer, drop the options."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.builders.real_qa.candidate import UnusableError


def right_choice(choices: Iterable[tuple[object, object]], key: object) -> object:
    """The text of the one choice labelled ``key``. choices: (label, text).

    Raises UnusableError when there are no choices, or none, or several, have that label.

    Source: app:data-real.
    """
    choices = list(choices)
    if not choices:
        raise UnusableError("no choices")
    if key is None or key == "":
        raise UnusableError("no answer key")
    texts = [text for label, text in choices if label == key]
    if len(texts) != 1:
        raise UnusableError(
            f"{len(texts) or 'none'} of the choices have the label of the answer key"
        )
    return texts[0]
