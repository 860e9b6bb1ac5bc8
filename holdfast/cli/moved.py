"""Verbs that are part of the paper's study, and where they are."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import HoldfastError

# Whatever options a moved verb is given, the line is the same.
ANY_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def has_moved(verb: str) -> HoldfastError:
    """The error of a verb that runs from a clone of the repository."""
    return HoldfastError(
        f"{verb} is part of the paper's study, which is not in the package; in a clone of the "
        f"repository run: python -m experiments.paper {verb} ..."
    )


def moved(verb: str) -> Callable[[], None]:
    """A command that says where the verb is."""

    def refuse() -> None:
        raise has_moved(verb)

    refuse.__doc__ = f"In a clone of the repository: python -m experiments.paper {verb}."
    return refuse
