"""Keep transformers quiet while it loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging

from holdfast.core.collecting import garbage_collection_paused


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' warnings, log lines and progress bars, and garbage collection."""
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), garbage_collection_paused():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
