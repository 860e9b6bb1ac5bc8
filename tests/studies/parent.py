"""A study whose only cell never ends, in a process to be killed.

``python -m tests.studies.parent CONFIG STORE`` writes the ids of its workers.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from holdfast import RunConfig
from holdfast.studies.cell import Cell
from holdfast.studies.executor import Watch
from holdfast.studies.local import LocalExecutor
from tests.studies.conftest import workers_of


class Telling(Watch):
    def started(self, cell: Cell) -> None:
        sys.stdout.write(json.dumps(workers_of(os.getpid())) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    config = RunConfig.of(json.loads(sys.argv[1]))
    list(LocalExecutor(2).map([Cell("endless", config, 1)], Path(sys.argv[2]), Telling()))
