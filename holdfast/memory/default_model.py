"""The model of a memory, where none is named."""

from __future__ import annotations

import os

from holdfast.core.errors import HoldfastError
from holdfast.model.cache import Report, silent
from holdfast.model.fetch import fetch

MODEL = "smollm2"  # of a new memory
MODEL_VARIABLE = "HOLDFAST_MODEL"  # the environment variable that names another
EMBEDDED = "embedded"


def default_model(report: Report = silent) -> tuple[str, str]:
    """The model of a new memory where none is named, and why it is not ``smollm2``, if so.

    ``$HOLDFAST_MODEL``, else ``smollm2`` where it is in the cache or can be fetched, else the
    embedded model.
    """
    if named := os.environ.get(MODEL_VARIABLE):
        return named, ""
    try:
        fetch(MODEL, report)
    except HoldfastError as error:
        return EMBEDDED, str(error)
    return MODEL, ""
