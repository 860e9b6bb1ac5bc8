"""What `import holdfast` gives, and what a notebook shows of it."""

from __future__ import annotations

import base64
import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread

import holdfast
from holdfast import Item, Memory, RecallMatrix, Stream, Task
from holdfast.core.config import apply_overrides
from holdfast.core.notebook import heat_map
from holdfast.recipes import recipe
from holdfast.results.matrix import HEADER

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "notebook.md"
HARMFUL = "<script>alert(1)</script>"


def matrix() -> RecallMatrix:
    return RecallMatrix().with_row(1, {1: (4, 4), 2: (0, 2)}).with_row(3, {1: (1, 4), 3: (2, 2)})


def test_every_name_is_there_and_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
        assert f"`{name}`" in page
    assert set(dir(holdfast)) == {*holdfast.__all__, "__version__"}


def test_a_matrix_as_a_frame() -> None:
    frame = matrix().to_frame()
    assert list(frame.columns) == HEADER.split(",")
    assert frame.drop(columns="boxed").to_numpy().tolist() == [
        [1, 1, 4, 4, 1.0],
        [1, 2, 0, 2, 0.0],
        [3, 1, 1, 4, 0.25],
        [3, 3, 2, 2, 1.0],
    ]
    assert frame["boxed"].isna().all()
    assert len(RecallMatrix().to_frame()) == 0


def test_a_matrix_tells_its_last_row() -> None:
    assert repr(matrix()) == "RecallMatrix(3 tasks, 2 asked last: 62.5% recalled)"
    assert repr(RecallMatrix()) == "RecallMatrix(empty)"


def test_a_heat_map_has_a_pixel_for_each_share() -> None:
    match = re.search(r'base64,([^"]+)"', heat_map([[0.0, 1.0, None], [0.5, 0.25, 0.75]]))
    assert match is not None
    pixels = imread(io.BytesIO(base64.b64decode(match[1])), format="png")
    assert pixels.shape == (2, 3, 4)
    np.testing.assert_allclose(pixels[0, 0], [247 / 255, 251 / 255, 1, 1], atol=1e-6)
    np.testing.assert_allclose(pixels[0, 1], [8 / 255, 48 / 255, 107 / 255, 1], atol=1e-6)
    assert pixels[0, 2, 3] == 0
    assert pixels[1, 1, 0] > pixels[1, 0, 0] > pixels[1, 2, 0] > pixels[0, 1, 0]


def test_a_stream_shows_its_first_tasks_and_no_script() -> None:
    tasks = [Task(f"t{n}", (Item(f"{HARMFUL} {n}?", HARMFUL),)) for n in range(12)]
    stream = Stream(tuple(tasks), HARMFUL)
    assert repr(stream) == f"Stream({HARMFUL!r}, 12 tasks, 12 items)"
    html = stream._repr_html_()
    assert "<script" not in html and "&lt;script&gt;alert(1)" in html
    assert html.count("<tr>") == 11 and "and 2 more tasks" in html
    assert "more tasks" not in stream.first(10)._repr_html_()


def test_the_example_runs(tmp_path, backbone_directory, monkeypatch, capsys) -> None:
    """On a tiny backbone, in few steps."""
    small = [f"backbone.name={backbone_directory}", "lora.rank=4", "evaluation.max_new_tokens=16"]
    small += ["sampling.general=3", "sampling.max_new_tokens=6", "optim.max_steps=3"]
    monkeypatch.setattr(holdfast, "recipe", lambda name: apply_overrides(recipe(name), small))
    example = re.search(r"<!-- example -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example[1], str(PAGE), "exec"), names)  # noqa: S102
    assert f"{names['matrix']!r}\n" in capsys.readouterr().out
    trajectory, fresh = names["trajectory"], names["mine"]
    learned = "Trajectory(kfac_merge, seed 41, 3 of 3 tasks of symbol_qa, 'runs/first')"
    assert repr(trajectory) == learned
    assert "data:image/png" in trajectory._repr_html_() and "kfac_merge" in trajectory._repr_html_()
    assert "0 of 2 tasks" in repr(fresh) and "<img" not in fresh._repr_html_()


def test_a_memory_shows_its_last_facts(tmp_path: Path, chat_memory: Path) -> None:
    memory = Memory(shutil.copytree(chat_memory, tmp_path / "m"))
    memory.write_facts([(f"{HARMFUL} {n}?", "a") for n in range(22)])
    assert "25 facts in 1 lesson" in repr(memory)
    html = memory._repr_html_()
    assert "<script" not in html and "and 5 earlier facts" in html
    assert html.index("21?") < html.index("20?") and html.count("<tr>") == 21
