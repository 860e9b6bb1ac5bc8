"""The tensors that live at once while the engine learns, by phase: exact, and on any device.

A mode sees every operation of torch and keeps a weak reference to the storage of each result, so
it knows when one is freed. What a kernel takes within itself is not seen.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from holdfast.learning.progress import Stopwatch


class LiveMemory(TorchDispatchMode):
    """Bytes of the storages that exist. live: now; peak: the most since :meth:`forget`.

    at_peak: the shape and the operation of each storage at the highest point, where ``keep``.
    """

    def __init__(self, *, keep: bool = False) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.at_peak: list[tuple[int, str]] = []
        self._keep = keep
        self._known: dict[int, tuple[int, str]] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._others: dict[int, weakref.ref[Any]] = {}

    def leave_out_what_exists(self) -> None:
        """Never count the tensors that exist now."""
        for storage in _storages():
            key = storage.data_ptr()
            self._others[key] = weakref.ref(storage, lambda _, key=key: self._others.pop(key))

    def count_what_exists(self) -> None:
        """Count the other tensors made before the mode is entered."""
        for storage in _storages():
            self._add(storage, "before")

    def forget(self) -> None:
        """Begin a new peak."""
        self.peak, self.at_peak = self.live, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for one in tree_iter(results):
            if isinstance(one, Tensor):
                self._add(one.untyped_storage(), f"{func} {tuple(one.shape)} {one.dtype}")
        return results

    def _add(self, storage: Any, made_by: str) -> None:
        # An array of NumPy and the tensor made of it are one piece of memory, two storages.
        key = storage.data_ptr()
        if key in self._known or key in self._others or storage.nbytes() == 0:
            return
        self._known[key] = (storage.nbytes(), made_by)
        self._references[key] = weakref.ref(storage, lambda _, key=key: self._freed(key))
        self.live += storage.nbytes()
        if self.live > self.peak:
            self.peak = self.live
            if self._keep:
                self.at_peak = list(self._known.values())

    def _freed(self, key: int) -> None:
        size, _ = self._known.pop(key)
        del self._references[key]
        self.live -= size


def _storages() -> Iterator[Any]:
    for one in gc.get_objects():
        if issubclass(type(one), Tensor) and one.device.type != "meta":
            yield one.untyped_storage()


class PhasePeaks(Stopwatch):
    """The engine's stopwatch, which also keeps the highest memory of every phase."""

    def __init__(self, memory: LiveMemory, peaks: dict[str, int]) -> None:
        super().__init__()
        self._memory = memory
        self._peaks = peaks
        self.held: dict[str, list[tuple[int, str]]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._memory.forget()
        with super().phase(name):
            yield
        if self._memory.peak > self._peaks.get(name, 0):
            self._peaks[name] = self._memory.peak
            self.held[name] = self._memory.at_peak
