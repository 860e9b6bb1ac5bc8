"""The Hugging Face hub, where it can be reached; otherwise what it left in its cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

HUB_PATIENCE = 5.0  # seconds in which the hub is to answer


@contextlib.contextmanager
def hub_or_cache() -> Iterator[bool]:
    """Yield whether the hub is there to be asked; if it is not, its libraries read their cache.

    Left alone, they try a silent hub again for half a minute a file, and tell of every attempt.
    Nothing is asked, and the answer is True, where the user has turned the hub off
    (``HF_HUB_OFFLINE``).
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    answers = offline or _hub_answers()
    # What every request of these libraries looks at; the variable itself is read at their import.
    constants.HF_HUB_OFFLINE = offline or not answers
    try:
        yield answers
    finally:
        constants.HF_HUB_OFFLINE = offline


def _hub_answers() -> bool:
    from huggingface_hub import constants, get_session

    try:
        reply = get_session().head(constants.ENDPOINT, timeout=HUB_PATIENCE)
    # Whichever client the library has beneath it, with exceptions of its own.
    except Exception:  # noqa: BLE001
        return False
    return bool(reply.status_code < 500)
