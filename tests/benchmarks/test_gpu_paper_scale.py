"""The GPU script at its smallest, on the CPU: what it measures and writes, no time."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import gpu_paper_scale


def test_one_call_measures_every_phase(tmp_path: Path) -> None:
    assert gpu_paper_scale.main(["--tiny", "--out", str(tmp_path)]) == 0
    (report,) = json.loads((tmp_path / "gpu_paper_scale.json").read_text())["reports"]
    measured = {name: float(value) for name, value, _ in report["tables"][0]["rows"]}
    assert measured.keys() >= gpu_paper_scale.REACH.keys()
    assert all(value > 0 for value in measured.values())
    assert report["measurements"][0]["ratio"] > 0
