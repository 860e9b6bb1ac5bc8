"""Record the dialogue of docs/embedded-memory.md (python scripts/dialogue.py).

Teaches a new memory in a temporary directory, asks it, and prints what a terminal would show.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FACTS = """\
question,answer
Who keeps the lighthouse of Ostra?,Orsa Tindle
What is the harbour bell of Ostra made of?,bronze
How many boats may moor at Ostra?,forty
What is the ferry called?,Marigold
Who mends the nets of Ostra?,Fenwick
When does the lamp go out?,at ten
"""
DIALOGUE = (
    "holdfast learn memory facts.csv --paraphrases 2",
    'holdfast ask memory "who mends the nets of ostra"',
    'holdfast ask memory "Tell me who mends the nets of Ostra."',
    'holdfast ask memory "Who mends the roofs of Ostra?"',
    'holdfast ask memory "What is the capital of France?"',
    'holdfast learn memory "What is the ferry called?" "Kittiwake"',
    'holdfast ask memory "What is the ferry called?"',
    'holdfast ask memory --json "What is the harbour bell of Ostra made of?"',
)


def main() -> None:
    """Print every command, what it said on both channels, and a status that is not 0."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "facts.csv").write_text(FACTS)
        for line in DIALOGUE:
            print(f"$ {line}", flush=True)
            program = "from holdfast.cli.main import app; app()"
            ended = subprocess.run(
                [sys.executable, "-c", program, *shlex.split(line)[1:]],
                cwd=place,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            print(ended.stdout, end="")
            if ended.returncode:
                print(f"(status {ended.returncode})")


if __name__ == "__main__":
    main()
