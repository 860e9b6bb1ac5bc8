"""`holdfast learn MEMORY DOCUMENT`: facts from documents, for :mod:`holdfast.cli.learn`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.printing import json_line
from holdfast.cli.progress import counting, loading
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.documents import Proposed
    from holdfast.memory.memory import Memory
    from holdfast.streams import Stream


def is_document(source: object) -> bool:
    """Whether a source is a document, or a folder of them, from which a model proposes facts.

    Raises HoldfastError for the name of a document that does not exist.
    """
    from holdfast.builders.documents import SUFFIXES
    from holdfast.builders.documents import is_document as holds_text
    from holdfast.streams.load import is_stored_stream

    if not isinstance(source, str) or source == "-":
        return False
    path = Path(source)
    if not path.exists() and path.suffix.lower() in SUFFIXES:
        raise HoldfastError(f"{path}: no such file; give a document, or a folder of them")
    return path.exists() and not is_stored_stream(path) and holds_text(path)


def check_goes_on(source: object, review: Path | None, *, document: bool, yes: bool) -> None:
    """Raise HoldfastError unless a document has --review or --yes, and any other source neither."""
    if not document:
        if review is not None or yes:
            folder = isinstance(source, str) and Path(source).is_dir()
            no = f"{source} has none in it" if folder else "leave them out"
            raise HoldfastError(f"--review and --yes are for documents; {no}")
        return
    if review is not None and yes:
        raise HoldfastError("--review learns nothing and --yes learns at once; give one of them")
    if review is None and not yes:
        raise HoldfastError(
            f"{source}: facts of a document are proposed by a model; give --review FACTS.csv to "
            "read them first, or --yes to learn them at once"
        )
    if review is not None and review.suffix.lower() != ".csv":
        raise HoldfastError(f"--review {review}: is a CSV table; give it a name that ends in .csv")
    if review is not None and review.exists():
        raise HoldfastError(f"--review {review}: exists; move it, or give another name")


def facts_of_documents(
    memory: Memory, source: str, writer: str | None, review: Path | None, *, as_json: bool
) -> Stream | None:
    """Print what a model proposes from documents; the new facts, to be learned.

    None if there are none, or if they are written to ``review``.
    """
    from holdfast.memory.documents import write_review

    proposed = proposed_facts(memory, source, writer)
    if review is not None and (proposed.new or proposed.contradicting):
        write_review(proposed, review)
    elif review is not None:
        print("nothing new is proposed, so no table is written", file=sys.stderr)
        review = None
    if as_json and (review is not None or not proposed.new):
        values = {"review": None if review is None else str(review), **proposed.counts()}
        print(json_line(values))
    else:
        print("\n".join(proposed.lines()), file=sys.stderr)
    if review is None:
        return proposed.stream(Path(source).name) if proposed.new else None
    if not as_json:
        print(f"to learn them: holdfast learn {memory.directory} {review}", file=sys.stderr)
        print(review)
    return None


def proposed_facts(memory: Memory, source: str, writer: str | None) -> Proposed:
    """The facts that a model proposes from documents, compared with those on file.

    writer: an endpoint's URL or a model; None for the memory's own model. Proposals are kept in the
    cache, so the same command continues.
    """
    with loading():
        from holdfast.builders.documents import passages as read_passages
        from holdfast.builders.endpoint import Endpoint
        from holdfast.builders.load import text_model
        from holdfast.builders.prompting import Completing, PromptForm, Writing
        from holdfast.builders.proposals import Proposer
        from holdfast.memory.contradictions import taken_for
        from holdfast.memory.documents import PROPOSALS, sorted_out
        from holdfast.model.cache import cache_directory
        from holdfast.model.fetch import fetch

    passages = read_passages(Path(source), _say_left_out)
    with loading(f"loading {writer or memory.model}"):
        model = text_model(writer if writer is not None else str(fetch(memory.model)))
    form: PromptForm = Writing() if isinstance(model, Endpoint) else Completing()
    with counting("reading", at_once=True) as report:
        proposed = Proposer(model, form, cache_directory() / PROPOSALS, memory.seed).propose(
            passages, report
        )
    del model  # the memory loads its own
    facts = memory.facts
    with loading("comparing with what is on file"):
        return sorted_out(proposed, facts, len(passages), partial(taken_for, memory.answerer))


def _say_left_out(file: Path) -> None:
    print(f"{file}: has no text, so it is left out; a scan needs OCR first", file=sys.stderr)
