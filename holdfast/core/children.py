"""Python processes of our own."""

from __future__ import annotations

import os
import sys


def importable() -> str:
    """A PYTHONPATH for a child started with ``-P``: what this process can import, and no more.

    Without both the child would also import from the directory at hand.
    """
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
