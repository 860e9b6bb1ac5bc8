"""What every test shares: quiet libraries, and the GPU and the data where they are."""

from __future__ import annotations

import copy
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before torch is imported anywhere: the models of the tests are tiny, and `make test` runs several
# workers, so more threads would only contend. No test may reach for a hub, and a new memory is one
# on the embedded model where its test names no other, in processes that tests start too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HOLDFAST_MODEL"] = "embedded"

# In the background of a script Ctrl-C is ignored, by all that is started from there too; some tests
# send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

# Published question sets, for the tests that read them; they are no part of the repository.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ON_CI = os.environ.get("CI", "").lower() in {"1", "true"}

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if ON_CI else "house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def set_aside() -> None:
    """What is there now stays: later collections of garbage, and ``gc.get_objects``, skip it."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Libraries and tests are no garbage, and looking through them takes a second each time."""
    set_aside()


@pytest.fixture
def only_new_objects() -> None:
    """What is there before the test is not looked at, which would take seconds."""
    set_aside()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of published data files; a file that is missing from it is a failure.

    So is a folder that is named and is not there: only who has none may skip.
    """
    folder = Path(os.environ.get("HOLDFAST_DATA", DATA))
    if not folder.is_dir():
        assert "HOLDFAST_DATA" not in os.environ, f"HOLDFAST_DATA = {folder}: no such folder"
        pytest.skip("needs the published data files; set HOLDFAST_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The directory of SmolLM2-135M, in this user's cache; fetched, or skipped with the reason.

    For tests marked `real`.
    """
    from holdfast.core.errors import HoldfastError
    from holdfast.model.sources.fetch import fetch

    try:
        return fetch("smollm2")
    except HoldfastError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def backbone_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest backbone, as a run loads it."""
    from tests.tiny import byte_tokenizer, tiny_llama

    directory = tmp_path_factory.mktemp("tiny-backbone")
    tiny_llama(layers=1, width=32).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def chat_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A memory on a tiny chat model that knows FACTS; to be copied, or only read."""
    from tests.serving.chat_memories import taught_chat_memory

    yield from taught_chat_memory(tmp_path_factory)


@pytest.fixture(scope="session")
def loaded_backbones() -> dict[Any, Any]:
    """What :func:`quick` has loaded, by its configuration."""
    return {}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, loaded_backbones: dict[Any, Any]) -> None:
    """Copy a backbone that was loaded once; leave to the kernel when files reach the disk.

    A process that dies loses nothing that it has written: flushing is for power cuts.
    """
    from holdfast.learning import trajectory

    real = trajectory.load_backbone

    def load(settings: Any) -> Any:
        if settings not in loaded_backbones:
            loaded_backbones[settings] = real(settings)
        return copy.deepcopy(loaded_backbones[settings])

    monkeypatch.setattr(trajectory, "load_backbone", load)
    monkeypatch.setattr(os, "fsync", lambda _: None)
