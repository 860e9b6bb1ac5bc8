"""The model of a new memory for which none is named."""

from __future__ import annotations

import os

from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import NoteReport, silent
from holdfast.model.sources.fetch import fetch

MODEL = "smollm2"
MODEL_VARIABLE = "HOLDFAST_MODEL"  # the environment variable that names another
EMBEDDED = "embedded"


def default_model(report: NoteReport = silent) -> tuple[str, str]:
    """The name of the model, and why ``smollm2`` could not be fetched ("" otherwise).

    ``$HOLDFAST_MODEL`` if it is set, else ``smollm2`` if it is in the cache or can be fetched, else
    the embedded model.
    """
    if named := os.environ.get(MODEL_VARIABLE):
        return named, ""
    try:
        fetch(MODEL, report)
    except HoldfastError as error:
        return EMBEDDED, str(error)
    return MODEL, ""
