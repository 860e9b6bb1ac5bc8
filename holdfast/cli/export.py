"""`holdfast export`: a learned model for programs without Holdfast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from holdfast.cli.progress import loading
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import is_memory


def export(
    directory: Annotated[Path, Argument(metavar="DIR", help="A trajectory or a memory.")],
    out: Annotated[Path, Argument(metavar="OUT", help="A new or an empty directory.")],
    to: Annotated[
        Literal["peft", "hf", "gguf"],
        Option(
            help="hf: a complete model; gguf: the same in one file, for llama.cpp; "
            "peft: an adapter of the backbone.",
        ),
    ],
    after_task: Annotated[
        int | None, Option(help="A kept boundary; the last one by default.")
    ] = None,
    before: Annotated[
        str | None, Option(help="The boundary before a task: its number or name.")
    ] = None,
    after: Annotated[
        str | None, Option(help="The boundary after a task: its number or name.")
    ] = None,
    check: Annotated[
        bool,
        Option(
            "--check/--no-check",
            help="Load what was written without Holdfast and compare logits and answers.",
        ),
    ] = True,
    push: Annotated[
        str | None,
        Option(metavar="REPO", help="Upload it to this repository of the Hugging Face hub."),
    ] = None,
    private: Annotated[
        bool, Option("--private", help="Make the repository private, if it is new.")
    ] = False,
) -> None:
    """Write a learned model for transformers, PEFT or llama.cpp; README.md says how to ask it."""
    if private and push is None:
        raise HoldfastError("--private: says how --push makes a repository; give --push REPO too")
    of_memory = is_memory(directory)
    only = {"--after-task": after_task, "--before": before, "--after": after, "--push": push}
    given = [name for name, value in only.items() if value is not None]
    if of_memory and given:
        raise HoldfastError(f"{given[0]}: is for trajectories; leave it out")
    with loading():
        from holdfast.exports.export import export as write
        from holdfast.exports.memory import export_memory
        from holdfast.exports.sharing import check_repository
        from holdfast.exports.sharing import push as upload

    if push is not None:
        check_repository(push)
    where = {"before": before, "after": after, "repository": push}
    with loading(f"writing and checking {out}" if check else f"writing {out}"):
        checked: object
        if of_memory:
            checked = export_memory(directory, to, out, checked=check)
        else:
            checked = write(directory, to, out, after_task, checked=check, **where)
    if checked is not None:
        print(checked)
    print(out)
    if push is not None:
        with loading(f"uploading {out} to {push}"):
            address = upload(out, push, private=private)
        print(address)
