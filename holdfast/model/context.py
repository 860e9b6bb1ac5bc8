"""How many tokens a model can read together."""

from __future__ import annotations

from typing import Any


def context_of(config: Any) -> int | None:
    """The most tokens of a sequence; None where its configuration sets no bound.

    config: of transformers; some models have one for text beside one for images.
    """
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit or None
