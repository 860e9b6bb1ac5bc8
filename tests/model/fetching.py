"""``python -m tests.model.fetching ENTRY``: fetch the model `tiny` of the catalogue, ENTRY in JSON.

With a second argument it stops in the middle of the conversion, to be killed.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import NoReturn

from holdfast.model.sources import convert
from holdfast.model.sources.fetch import CATALOGUE, CatalogueModel, fetch


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def stop(*_: object, **__: object) -> NoReturn:
    say("converting")
    while True:
        signal.pause()


if __name__ == "__main__":
    CATALOGUE["tiny"] = CatalogueModel(**json.loads(sys.argv[1]))
    if len(sys.argv) > 2:
        convert.AutoTokenizer.from_pretrained = stop
    say(fetch("tiny", lambda done, total, message: None if total else say(message)))
