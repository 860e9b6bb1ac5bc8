"""Bugs that the tests must catch: each is injected by itself, and its tests have to fail.

    python scripts/mutants.py            all of them
    python scripts/mutants.py dropout    those whose name has this word

Works on a copy of the tracked files. Exit status 1 where one survives, or no longer applies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutant:
    """file: below the root; old: stands in it once; new: in its place; tests: must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: str


def mutants() -> list[Mutant]:
    """The bugs of ``mutants.toml``, which says of each what its tests are: arguments of pytest."""
    with (ROOT / "scripts" / "mutants.toml").open("rb") as file:
        return [Mutant(**values) for values in tomllib.load(file)["mutant"]]


def copied(to: Path) -> None:
    """Copy the tracked files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, to / name)


def killed(mutant: Mutant, place: Path) -> str | None:
    """Why the mutant survives, None where its tests fail."""
    path = place / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"its text stands {text.count(mutant.old)} times in {mutant.file}, not once"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", *mutant.tests.split()],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
            capture_output=True,
        )
    finally:
        path.write_text(text, encoding="utf-8")
    return None if done.returncode == 1 else f"pytest ends with {done.returncode}: {mutant.tests}"


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in mutants() if all(word in mutant.name for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        for mutant in chosen:
            reason = killed(mutant, Path(folder))
            survivors += reason is not None
            print(f"{'killed  ' if reason is None else 'SURVIVES'} {mutant.name}", flush=True)
            if reason:
                print(f"         {reason}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
