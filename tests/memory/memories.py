"""A few invented facts, a batch for each day; types of fixtures."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Outcome

Holdfast = Callable[..., Outcome]
Copied = Callable[[], Path]

MONDAY = [
    ("Who mends the nets of Ostra?", "Fenwick"),
    ("Where is the brass key?", "in the mill"),
    ("What is the ferry called?", "Marigold"),
]
TUESDAY = [("Who bakes the bread?", "Lum"), ("When does the lamp go out?", "at ten")]
WEDNESDAY = [("Which bus goes to the quarry?", "47")]
