"""Compare a wheel with the repository: every tracked file of the package, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile

PACKAGE = "holdfast"


def main(wheel: str) -> int:
    """Print what differs; 1 where anything does."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", PACKAGE], check=True, capture_output=True, text=True
    )
    tracked = set(listed.stdout.rstrip("\0").split("\0"))
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")}
    for name in sorted(tracked ^ packed):
        print(f"{name}: {'is not in the wheel' if name in tracked else 'is not tracked'}")
    return int(tracked != packed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
