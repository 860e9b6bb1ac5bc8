"""Whether another machine sees the store of trajectories that this one sees.

A file in the store holds a random id; a machine that reads another id, or none, sees other files.
"""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

from holdfast.core.files import read_bytes, write_text_atomically

_NAME = ".store"


def store_mark(store: Path) -> str:
    """The id of a store, which is created if missing."""
    path = store / _NAME
    if not path.exists():
        store.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, uuid.uuid4().hex)
    return read_bytes(path).decode()


def unseen(store: Path, mark: str) -> str | None:
    """Why this machine must not learn into the store whose id is ``mark``; None if it may."""
    path = store / _NAME
    if path.is_file() and path.read_text(encoding="utf-8") == mark:
        return None
    return (
        f"node {socket.gethostname()} does not see {store}; put the store where all nodes see it "
        "(--store)"
    )
