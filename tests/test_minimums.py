"""The oldest versions that the package allows are not known to be vulnerable.

A list that was reviewed, since an audit by pip-audit needs the advisories of the network; a library
that is added has to be reviewed too. With HOLDFAST_AUDIT=1 this file runs pip-audit as well.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
# The first version after the last advisory that concerns what is used here, and the advisory.
REVIEWED = {
    "filelock": ("3.20.3", "CVE-2025-68146, CVE-2026-22701"),
    "h11": ("0.16", "CVE-2025-43859"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "starlette": ("0.49.1", "CVE-2025-62727"),
    "markdown-it-py": ("2.2", "CVE-2023-26302, CVE-2023-26303"),
    "mcp": ("1.28.1", "CVE-2026-59950 and earlier ones"),
    "pyarrow": ("14.0.1", "CVE-2023-47248"),
    "pyyaml": ("5.4", "CVE-2020-14343"),
    "pypdf": ("7.1", "CVE-2026-119208 and earlier ones"),
    "ray": ("2.52", "CVE-2025-62593"),
    "torch": ("2.8", "CVE-2025-32434, CVE-2025-3730"),
    "transformers": ("4.53", "CVE-2025-5197 and earlier ones"),
}
NONE_KNOWN = {
    *("gguf", "matplotlib", "numpy", "packaging", "pandas", "peft", "prompt_toolkit", "pydantic"),
    *("rich", "safetensors", "scipy", "tokenizers", "typer", "bitsandbytes", "openpyxl"),
    *("datasets", "openai", "lm-eval", "fastapi", "uvicorn", "submitit"),
    *("tensorboard", "wandb", "mlflow-skinny", "trackio", "trl", "lightning", "beautifulsoup4"),
}


def minimums() -> dict[str, Version]:
    """The lowest version of every library that a user may install with the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = project["optional-dependencies"]
    lines = [*project["dependencies"]]
    lines += [
        line for name, group in groups.items() if name not in ("dev", "docs") for line in group
    ]
    lowest = {}
    for line in lines:
        requirement = Requirement(line)
        [bound] = [part.version for part in requirement.specifier if part.operator == ">="]
        lowest[requirement.name] = Version(bound)
    return lowest


def test_no_minimum_is_known_to_be_vulnerable() -> None:
    for name, lowest in minimums().items():
        if name.lower() in NONE_KNOWN:
            continue
        assert name.lower() in REVIEWED, f"{name} is new; look for its advisories, then list it"
        first, advisory = REVIEWED[name.lower()]
        assert lowest >= Version(first), f"{name}>={lowest} allows {advisory}; require {first}"


@pytest.mark.skipif(
    "HOLDFAST_AUDIT" not in os.environ or importlib.util.find_spec("pip_audit") is None,
    reason="needs HOLDFAST_AUDIT=1, pip-audit, and a package index with advisories",
)
def test_pip_audit_knows_of_none(tmp_path: Path) -> None:
    listed = tmp_path / "lowest.txt"
    listed.write_text("".join(f"{name}=={lowest}\n" for name, lowest in minimums().items()))
    command = ["-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "-r", str(listed)]
    audit = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    last = audit.stderr.strip().rpartition("\n")[2]
    if "could not be audited" in last or "Connection" in last:
        pytest.skip(f"the index has no advisories, or is not reached: {last}")
    assert audit.returncode == 0, audit.stdout + audit.stderr
