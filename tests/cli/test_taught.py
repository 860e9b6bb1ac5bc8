"""In every position of a fact text is text, and behind `--` all is."""

from __future__ import annotations

import pytest

from holdfast.cli.taught import told
from holdfast.core.errors import HoldfastError


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["What is the token?", "TOKEN=abc"], ("What is the token?", "TOKEN=abc")),
        (["E=mc2", "a formula"], ("E=mc2", "a formula")),
        (["the code", "4711"], ("the code", "4711")),
        (["x=1", "--", "y=2"], ("x=1", "y=2")),
        (["--", "seed=4", "optim.lr=1"], ("seed=4", "optim.lr=1")),
        (["--", "--existing", "-v"], ("--existing", "-v")),
        (["--", "facts.csv", "a table"], ("facts.csv", "a table")),
        (["--", "-", "a dash"], ("-", "a dash")),
    ],
)
def test_text_is_text(arguments, fact):
    texts = len(arguments) - arguments.index("--") - 1 if "--" in arguments else 0
    assert told([one for one in arguments if one != "--"], texts) == [fact]


def test_a_source_is_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "who=me").write_text("")
    assert told([]) is None
    for source in ("-", "facts.jsonl", "symbol_qa", "who=me", "not here.jsonl"):
        assert told([source]) == source  # what cannot be read is refused by its reader


@pytest.mark.parametrize(
    ("arguments", "texts", "words"),
    [
        (["Who rings?"], 0, "'Who rings.' is no file; to teach it as a question, put its answer"),
        (["Who"], 1, "'Who' is no file; to teach it as a question, put its answer"),
        (["Who", "rings", "the bell?"], 0, "'the bell.': one question and one answer are expected"),
        (["-", "Ann"], 0, "'Ann': - is a source of facts, and takes no answer"),
        (["facts.csv", "seed=4"], 0, "facts.csv: no such file"),
    ],
)
def test_what_is_neither_is_refused(arguments, texts, words):
    with pytest.raises(HoldfastError, match=words):
        told(arguments, texts)
