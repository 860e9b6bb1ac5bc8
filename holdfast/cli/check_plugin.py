"""`holdfast check-plugin`: whether a mechanism keeps its contract."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from holdfast.cli.progress import loading
from holdfast.cli.verbs import Overrides


def check_plugin(
    name: Annotated[str, Argument(metavar="NAME", help="As a method's tag has it.")],
    overrides: Overrides = None,
) -> None:
    """Learn three short tasks with a mechanism, and check the contract that all have to keep.

    Exit status 1 if it breaks the contract.
    """  # fmt: skip
    with loading():
        from holdfast.learning.mechanism_check import check_mechanism

    broken = False
    for finding in check_mechanism(name, overrides or []):
        if finding.kept:
            print(f"kept    {finding.promise}", flush=True)
        else:
            broken = True
            print(f"BROKEN  {finding.promise}; {finding.why}", flush=True)
    if broken:
        raise typer.Exit(1)
