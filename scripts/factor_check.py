"""Do the paper's factors act on the embedded backbone as they do at four billion parameters?

Learns one recipe's stream under several methods and seeds and prints a Markdown table. Every
trajectory is kept and continued, so the script may be stopped and called again.

    python scripts/factor_check.py --out runs/factor_check
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from holdfast import RunConfig, Trajectory
from holdfast.recipes import recipe

METHODS = ("vanilla", "replay", "merge", "replay_merge", "si_sd_replay_merge")
COLUMNS = ("final", "diag", "forget", "w10", "half_life")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="full_stack")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(41, 42, 43))
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE")
    arguments = parser.parse_args()
    print(f"| method | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for method in arguments.methods:
        results = [learned(arguments, method, seed) for seed in arguments.seeds]
        cells = [spread([result[column] for result in results]) for column in COLUMNS]
        print(f"| `{method}` | {' | '.join(cells)} |", flush=True)


def learned(arguments: argparse.Namespace, method: str, seed: int) -> dict:
    """The metrics of one method and seed, learned as far as asked."""
    overrides = [
        *arguments.overrides,
        f"method={method}",
        f"seed={seed}",
        f"stream.tasks={arguments.tasks}",
    ]
    config = RunConfig.of(recipe(arguments.recipe), overrides)
    trajectory = Trajectory(config, arguments.out / f"{method}-{seed}")
    trajectory.advance()
    return trajectory.metrics()


def spread(values: list[float | None]) -> str:
    """Mean and standard deviation over seeds; a dash where a seed has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return f"{statistics.mean(known):.3f} ± {deviation:.3f}"


if __name__ == "__main__":
    main()
