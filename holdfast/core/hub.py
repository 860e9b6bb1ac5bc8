"""Use the Hugging Face hub if it can be reached, otherwise its local cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

HUB_PATIENCE = 5.0  # timeout in seconds for the hub's answer


@contextlib.contextmanager
def hub_or_cache() -> Iterator[bool]:
    """Yield whether the hub answers; if not, its libraries read only their cache in the block.

    Without this they retry an unreachable hub for half a minute per file and log each attempt.
    If the user has turned the hub off (``HF_HUB_OFFLINE``), sends no request and yields True.
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    answers = offline or _hub_answers()
    # The libraries check this constant at every request, the environment variable only at import.
    constants.HF_HUB_OFFLINE = offline or not answers
    try:
        yield answers
    finally:
        constants.HF_HUB_OFFLINE = offline


def _hub_answers() -> bool:
    from huggingface_hub import constants, get_session

    try:
        reply = get_session().head(constants.ENDPOINT, timeout=HUB_PATIENCE)
    # The exceptions depend on the HTTP client that the library uses.
    except Exception:  # noqa: BLE001
        return False
    return bool(reply.status_code < 500)
