"""A directory of results: a verb overwrites and removes there only what it wrote itself."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json
from holdfast.core.own import refuse_links, remove_named


def take_place(
    directory: Path, manifest: str, names: Collection[str], stale: Collection[str] = ()
) -> None:
    """Make files of a directory ours, before they are written, and remove those that are stale.

    manifest: the name of the file that lists what earlier calls wrote; names: of the files to be
    written, relative to the directory; stale: of files to be removed where an earlier call wrote
    them. Raises HoldfastError for a file of these names that no earlier call wrote, for a link in
    the directory, and when it cannot be written.
    """
    record = directory / manifest
    refuse_links(directory, {manifest, *names, *(str(Path(name).parent) for name in names)} - {"."})
    listed = read_json(record) if record.exists() else []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise HoldfastError(f"{record}: is no list of files; choose another directory")
    foreign = sorted(name for name in {*names} - {*listed} if (directory / name).exists())
    if foreign:
        others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise HoldfastError(
            f"{directory / foreign[0]}{others}: would be overwritten, and this command did not "
            "write it; move it away, or choose another directory"
        )
    # First, so that a killed call has nothing here that it does not know again.
    write_json(record, sorted({*listed, *names} - {*stale}), parents=True)
    remove_named(directory, {*listed} & {*stale})
