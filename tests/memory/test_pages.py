"""What the pages on memories show, done as a reader would do it."""

from __future__ import annotations

from pathlib import Path

from holdfast.memory.facts import stream_from
from tests.test_docs import ROOT, files_in

PAGE = ROOT / "docs" / "embedded-memory.md"


def test_the_table_of_the_page_is_one(tmp_path: Path):
    (tmp_path / "facts.csv").write_text(files_in(PAGE)["facts.csv"], "utf-8")
    (task,) = stream_from(tmp_path / "facts.csv").tasks
    assert [item.aliases for item in task.items] == [(), (), ("40",)]
