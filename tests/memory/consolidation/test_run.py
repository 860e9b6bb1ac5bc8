"""How a run of many steps goes."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
import torch

from holdfast.memory.consolidation import run as run_module


class _Wasteful:
    """A run whose step frees 300 MB below what it keeps, which glibc does not give back."""

    step, steps = 0, 1

    def advance(self) -> None:
        blocks = [bytearray(b"x") * 100_000 for _ in range(3000)]
        self.kept, self.step = blocks[-1], 1

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another")
def test_freed_memory_goes_back_to_the_system(tmp_path: Path) -> None:
    def resident() -> int:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    before, run = resident(), _Wasteful()
    run_module._advance(run, tmp_path / "p.safetensors", "one", lambda *_: None)  # type: ignore[arg-type]
    assert resident() - before < 100e6
