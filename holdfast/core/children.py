"""Starting child Python processes."""

from __future__ import annotations

import os
import sys


def importable() -> str:
    """A PYTHONPATH that gives a child started with ``-P`` this process's import path, no more.

    Without ``-P`` and this path, the child would also import from its working directory.
    """
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
