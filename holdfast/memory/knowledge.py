"""What a model was taught, told from what it was not, by the model alone.

A model that rehearses is a density over whole sequences, question and answer: from the replay
token it writes what it was taught, and little else. What it was taught is therefore more probable
than nearly all that it was not. The threshold between them follows from the model's own samples and
from the number of facts: the density above which there are ``EXCESS`` times as many sequences as
facts were taught. No fact is read for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.backbone.generation.sampling import Sampling, sample_continuations
from holdfast.backbone.likelihood import token_log_likelihoods
from holdfast.backbone.model import Backbone
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json
from holdfast.evaluation.boxed import extract_boxed
from holdfast.learning.learner import Learner
from holdfast.results.commit import read_commit

KNOWLEDGE_FILE = "knowledge.json"
# At 1 as many facts fall below the threshold as other sequences lie above it.
EXCESS = 2.0
SAMPLES = 512


@dataclass(frozen=True)
class Knowledge:
    """The threshold between what a model was taught and what it was not.

    threshold: the least ``log p(question, answer | replay token)``, in nats, of what counts as
    taught; facts: how many were taught; samples: from how many samples it was measured.
    """

    threshold: float
    facts: int
    samples: int


def measure(learner: Learner, facts: int) -> Knowledge | None:
    """Measure the threshold; None for a method that does not rehearse, which has no density.

    facts: the number of sequences taught, 1 or more.
    """
    backbone = learner.backbone
    if backbone.seed_token is None:
        return None
    # The whole distribution, or the densities would not be those that were drawn from.
    whole = Sampling(
        samples=SAMPLES, temperature=1.0, top_p=1.0, batch=learner.config.sampling.batch,
        max_new_tokens=learner.config.sampling.max_new_tokens,
    )  # fmt: skip
    named = ("knowledge", learner.completed)
    begins = [backbone.seed_token] * SAMPLES
    written = sample_continuations(backbone, begins, whole, seed=learner.config.seed, purpose=named)
    answered = [until_box(backbone, tokens) for tokens in written]
    sequences = [[backbone.seed_token, *tokens] for tokens in answered if tokens]
    densities = [float(one.sum()) for one in token_log_likelihoods(backbone, sequences)]
    return Knowledge(threshold(densities, SAMPLES, EXCESS * facts), facts, SAMPLES)


def threshold(log_densities: Sequence[float], samples: int, count: float) -> float:
    """The log-density above which there are about ``count`` sequences.

    A sequence of density p is drawn ``samples * p`` times in the mean, so each draw of it stands
    for ``1 / (samples * p)`` sequences (importance sampling). The threshold is halfway between the
    last draw that is still within the count and the first that is not, in nats; the least density
    drawn where all are within it, and 0, which no density reaches, where nothing was drawn.

    log_densities: of the draws that are of the form of a fact; samples: the number of all draws.
    """
    ordered = sorted(log_densities, reverse=True)
    if not ordered:
        return 0.0
    within = 0.0
    for place, density in enumerate(ordered):
        within += math.exp(-density) / samples
        if within > count:
            return density if place == 0 else (ordered[place - 1] + density) / 2
    return ordered[-1]


def until_box(backbone: Backbone, tokens: Sequence[int]) -> list[int]:
    """The tokens up to the one that closes the first box; empty when none closes."""
    if extract_boxed(backbone.decode(list(tokens))) is None:
        return []
    least, most = 1, len(tokens)  # bisect for the shortest prefix with a closed box
    while least < most:
        middle = (least + most) // 2
        if extract_boxed(backbone.decode(list(tokens[:middle]))) is None:
            least = middle + 1
        else:
            most = middle
    return list(tokens[:least])


def write_knowledge(directory: Path, knowledge: Knowledge | None) -> None:
    """Write ``knowledge.json``, bound to the last commit."""
    values = {"commit": _commit(directory), "found": knowledge and asdict(knowledge)}
    write_json(directory / KNOWLEDGE_FILE, {**values, "sha256": sha256_of(values)})


def read_knowledge(directory: Path) -> tuple[bool, Knowledge | None]:
    """Whether ``knowledge.json`` holds for the last commit, and what it says.

    The file follows from the commit, so one that is missing, old or damaged is no error.
    """
    try:
        values = read_json(directory / KNOWLEDGE_FILE)
        if not isinstance(values, dict) or values.pop("sha256", None) != sha256_of(values):
            return False, None
        if values["commit"] != _commit(directory):
            return False, None
        return True, Knowledge(**values["found"]) if values["found"] else None
    except (HoldfastError, OSError, KeyError, TypeError):
        return False, None


def _commit(directory: Path) -> str:
    """What is committed, but for the length of the log, which tells seconds."""
    values = read_commit(directory)
    return sha256_of({key: value for key, value in values.items() if key != "log_bytes"})
