"""`holdfast check-plugin`: whether an anchor or an allocation rule keeps its contract."""

from __future__ import annotations

from typing import Annotated

import typer


def check_plugin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As a method's tag has it.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted settings.")
    ] = None,
) -> None:
    """Learn three short tasks with a mechanism, and check what every mechanism has to keep.

    Exit status 1 when it does not keep something.
    """  # fmt: skip
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.learning.mechanism_check import check_mechanism

    broken = False
    for found in check_mechanism(name, overrides or []):
        broken |= not found.kept
        told = "kept  " if found.kept else "BROKEN"
        print(f"{told}  {found.promise}" + ("" if found.kept else f"; {found.why}"), flush=True)
    if broken:
        raise typer.Exit(1)
