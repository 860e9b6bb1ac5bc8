"""The context length of a model."""

from __future__ import annotations

from typing import Any


def context_of(config: Any) -> int | None:
    """The most tokens of a sequence; None if the configuration sets no limit.

    config: of transformers; if it has one part for text and one for images, the text's counts.
    """
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit or None
