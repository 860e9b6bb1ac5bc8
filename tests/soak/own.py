"""What a small model writes itself, in a cache of its own; processes to be killed use it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.memory.consolidation.own_texts import OwnTextSettings, Turn, own_texts
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.model.chat_models import chat_llama, chat_tokenizer

FEW = OwnTextSettings(short=30, named=5, chats=6, question=6, tokens=3, chat_tokens=5)


def write(cache: str, _progress: Any = None) -> list[Turn]:
    """All its texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", cache)
        return own_texts(PromptReader(chat_llama(), chat_form(chat_tokenizer())), "f" * 64, FEW)
