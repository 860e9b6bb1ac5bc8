"""The most memory that each phase of a task holds at once, by part.

A phase has a few moments at which it may be highest. Each is a sum of named parts, and the phase's
peak is the largest. Letters: P trainable scalars, w bytes of each, s bytes of a weight, V words, d
width, C bytes of S and G of every adapted map; the rest is in :mod:`holdfast.prediction.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.allocation.o_lora import TASKS_A_PAGE
from holdfast.backbone.curvature import TOKENS_AT_ONCE as CURVATURE_TOKENS
from holdfast.backbone.generation.sampling import CACHE_BYTES_ON_CPU, rows_within
from holdfast.evaluation.verification import POSITIONS_AT_ONCE
from holdfast.learning.config import RunConfig
from holdfast.learning.teacher import TOKENS_AT_ONCE as TEACHER_TOKENS
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.passes import Grid, TokenLosses
from holdfast.prediction.shape import Shape
from holdfast.prediction.sizes import Sizes

Parts = dict[str, int]

WEIGHTS, FACTORS, ADAMW, ANCHORS = "weights", "factors", "AdamW", "anchors' and rule's state"
CURVATURE, ACTIVATIONS, LOGITS, CACHE = "S and G", "activations", "logits", "keys and values"
TEACHER, MASTERS, WORK = "teacher's states", "float32 masters", "working memory"
COPIES = "copies to be written"


@dataclass(frozen=True)
class Peak:
    """The highest moment of a phase. device, host: bytes by part; on a processor there is one
    memory, and ``host`` is empty.
    """

    device: Parts
    host: Parts = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes on the device."""
        return sum(self.device.values())


@dataclass(frozen=True)
class PhaseMemory:
    """The memory of one configuration after ``lengths.tasks`` tasks.

    device: ``cpu`` or ``cuda``; available: bytes of the device, which bound how many sequences are
    sampled at once on a GPU, None where that is not known.
    """

    shape: Shape
    config: RunConfig
    lengths: Lengths
    device: str = "cpu"
    available: int | None = None

    def peaks(self) -> dict[str, Peak]:
        """By phase, in the order of a task."""
        uses = self._sizes.uses
        found = {"load": self._load()}
        if uses.writes or uses.general_first:
            found["sampling"] = self._highest(self._sampling())
        if uses.curvature or uses.general_first:
            # Before the first task there is no state yet.
            before = self._resident() if uses.curvature else self._fresh()
            found["curvature"] = self._peak(_merged(before, self._curvature()))
        if uses.replays or uses.distils:
            found["teacher"] = self._highest(*self._teacher())
        resting = self._resting()
        found["training"] = self._highest(*self._training(), host=resting)
        del resting[ADAMW]
        found["boundary"] = self._highest(*self._boundary(), host=resting)
        found["evaluation"] = self._highest(*self._evaluation())
        found["commit"] = self._commit()
        return found

    # What is always there

    def _resident(self) -> Parts:
        """Weights, factors and the state between two tasks."""
        one, sizes, uses = self.shape, self._sizes, self._sizes.uses
        narrow = one.scalar if one.scalar < sizes.w else 0
        parts = {
            WEIGHTS: one.stored(self.config.backbone.quantization),
            # Values, gradients, and a buffer that the backward pass overwrites for each loss.
            FACTORS: sizes.vector * (2 + uses.passes) + sizes.p * narrow,
            ANCHORS: sizes.vector * 2 * uses.weight_anchors + self._rule_state(),
            CURVATURE: sizes.c * uses.curvature_kept * (not sizes.offloads),
        }
        return _merged(parts, self._masters() if self.device == "cpu" else {})

    def _fresh(self) -> Parts:
        """The same before the first task."""
        return self._resident() | {CURVATURE: 0, ANCHORS: 0, FACTORS: 3 * self._sizes.vector}

    def _masters(self) -> Parts:
        """A float32 copy of every adapted matrix of half precision, or quantized and merged."""
        wants = self.config.lora.merge_precision == "float32" and self.shape.scalar < 4
        if self._sizes.passes.quantized:
            wants = self._sizes.uses.fate != "kept"
        return {MASTERS: 4 * self.shape.adapted_dense} if wants else {}

    def _rule_state(self) -> int:
        """O-LoRA's input sides in pages of tasks; OSRM's mean inputs."""
        tasks, one = self.lengths.tasks, self.shape
        if self._sizes.uses.rule == "olora":
            pages = -(-tasks // TASKS_A_PAGE)
            return self._sizes.w * pages * TASKS_A_PAGE * one.rank * one.inputs
        return self._sizes.w * tasks * one.inputs if self._sizes.uses.rule == "osrm" else 0

    def _load(self) -> Peak:
        """The model, its learner, and the largest copy on the way."""
        one = self.shape
        table = one.vocabulary * one.width
        copies = [one.scalar * 2 * one.width * one.feed]  # gate and up move into one storage
        if self.config.has_replay_token:
            copies.append((one.scalar + (4 if one.scalar < 4 else 0)) * table)
        peak = self._peak(_merged(self._fresh(), {WORK: max(copies)}))
        if self.device == "cuda":  # read into the host's memory first
            peak.host[WEIGHTS] = one.scalar * one.parameters
        return peak

    # Phases

    def _sampling(self) -> Parts:
        """The cache of all rows side by side, and the draw of one position."""
        one, sampling = self.shape, self.config.sampling
        wanted = max(sampling.samples if self._sizes.uses.writes else 0, sampling.general)
        positions = self._sizes.reserved(self.lengths.sample - 1)
        rows = min(sampling.batch, wanted)
        free = CACHE_BYTES_ON_CPU
        if self.device == "cuda":
            held = sum(self._resident().values())
            free = max(0, self.available - held) // 2 if self.available else 1 << 60
        rows = min(rows, rows_within(free, positions * one.cached, one.vocabulary))
        # Logits; in float32: divided, probabilities, and four more to rank a wide nucleus.
        a_word = one.scalar + (25 if self.device == "cpu" else 20)
        numbers = rows * positions * one.cached
        return {CACHE: numbers + numbers // one.layers, LOGITS: a_word * rows * one.vocabulary}

    def _curvature(self) -> Parts:
        """S and G of what the previous model wrote."""
        sampling = self.config.sampling
        count = (sampling.samples if self._sizes.uses.curvature else 0) + sampling.general
        return self._fisher(count, self.lengths.sample, open_=self._sizes.uses.rule == "shared")

    def _fisher(self, count: int, length: float, *, open_: bool) -> Parts:
        """One pass over sequences in batches; the sums become means while the last one is held."""
        one, passes = self.shape, self._sizes.passes
        at_once = max(1, int(CURVATURE_TOKENS // max(1, length - 1)))
        rows, last = (round(n * (length - 1)) for n in (min(count, at_once), count % at_once))

        def grid(rows: int) -> list[Grid]:
            sequences = max(1, round(rows / max(1, length - 1)))
            return [(sequences, -(-rows // sequences))]

        def kept(rows: int) -> int:
            return passes.kept(rows, grid(rows), open_=open_, training=False)

        chunk = min(rows, max(1, (1 << 24) // one.vocabulary))
        drawing = (one.scalar + 12) * chunk * one.vocabulary
        again = passes.again(rows, grid(rows), open_=open_, training=False)
        there = {CURVATURE: self._sizes.c, ACTIVATIONS: kept(rows) + again}
        there[WORK] = max(drawing, passes.backward_work(rows))
        end = {CURVATURE: 2 * self._sizes.c, ACTIVATIONS: kept(last or rows)}
        return max(there, end, key=lambda parts: sum(parts.values()))

    def _teacher(self) -> list[Parts]:
        """One pass without a way back over everything that the teacher is asked."""
        uses = self._sizes.uses
        found: list[Parts] = []
        before = 0
        curvature = {CURVATURE: self._sizes.c * uses.curvature}
        for count, length in self._asked():
            rows = round(count * (length - 1))
            grid = self._sizes.grid(min(rows, TEACHER_TOKENS), length - 1)
            states = self.shape.scalar * self.shape.width * rows
            work = self._sizes.passes.forward_work(grid[0] * grid[1], [grid])
            if self._sizes.offloads:  # the states of each batch leave for the host
                found.append(curvature | {TEACHER: min(states, self._of_batch()), WORK: work})
                continue
            found.append(curvature | {TEACHER: before + states, WORK: work})
            # Pieces, and all of them in one.
            found.append(curvature | {TEACHER: before + 2 * states})
            before += states
        return found

    def _of_batch(self) -> int:
        return self.shape.scalar * self.shape.width * TEACHER_TOKENS

    def _resting(self) -> Parts:
        """What a GPU's run keeps in the host's memory during a task with ``backbone.offload``."""
        if not self._sizes.offloads:
            return {ADAMW: 0}
        uses, vector = self._sizes.uses, self._sizes.vector
        return {
            ADAMW: 2 * vector,
            ANCHORS: vector * uses.path,
            TEACHER: self._states(),
        }

    def _asked(self) -> list[tuple[int, float]]:
        """How many sequences the teacher is asked, and their tokens."""
        uses = self._sizes.uses
        replayed = [(self._sizes.replayed, self._sizes.replay_length)] if uses.replays else []
        own = [(self._sizes.items, self.lengths.item)] if uses.distils else []
        return replayed + own

    def _states(self) -> int:
        asked = sum(round(count * (length - 1)) for count, length in self._asked())
        return self.shape.scalar * self.shape.width * asked

    def _training(self) -> list[Parts]:
        """The losses and their gradients; the layers' way back; the optimiser's step."""
        passes, uses, vector = self._sizes.passes, self._sizes.uses, self._sizes.vector
        current, replay = self._sizes.minibatch(), self._sizes.replay_minibatch()
        grids = [self._sizes.grid(rows, length) for rows, length in (current, replay) if rows]
        rows = current[0] + replay[0]
        here = not self._sizes.offloads
        held = uses.curvature_held if here else bool(uses.curvature_held + uses.curvature_kept)
        always = {
            ADAMW: 2 * vector * here,
            # Two paths and the start of SI; where the branch began, if it is not zero there.
            ANCHORS: vector * ((2 + here) * uses.path + (uses.rule == "shared")),
            CURVATURE: self._sizes.c * held,
            TEACHER: self._states() * here,
        }
        losses = [TokenLosses(current[0], cross_entropy=True, divergence=uses.distils)]
        if replay[0]:
            soft = uses.soft
            losses.append(TokenLosses(replay[0], cross_entropy=not soft, divergence=soft))
        kept = passes.kept(rows, grids, open_=True, training=True)
        of_losses = {
            ACTIVATIONS: kept,
            LOGITS: sum(one.kept(passes) for one in losses)
            + max(one.work(passes) for one in losses),
            # A weight anchor's difference, and three more on its way back; the quadratic form's.
            WORK: vector * (uses.weight_anchors + 3 * bool(uses.weight_anchors) + uses.term),
        }
        # One of two losses reads all rows, the other those of the current minibatch.
        again = current[0] if uses.passes == 2 else 0
        alive = [one.kept(passes) if uses.passes == 2 else one.logits(passes) for one in losses]
        of_layers = {
            ACTIVATIONS: kept + passes.again(rows, grids, open_=True, training=True),
            LOGITS: sum(alive),
            WORK: passes.backward_work(rows + again) + vector * uses.direct,
        }
        of_step = {WORK: 2 * vector * uses.path + vector * self._overlap()}
        of_step[ADAMW] = 2 * vector * self._sizes.offloads
        return [_merged(always, one) for one in (of_losses, of_layers, of_step)]

    def _overlap(self) -> int:
        """Copies of the factors that O-LoRA's penalty takes."""
        return 2 if self._sizes.uses.rule == "olora" else 0

    def _boundary(self) -> list[Parts]:
        """Consolidation of each anchor, what the rule observes, merging."""
        uses, vector, one = self._sizes.uses, self._sizes.vector, self.shape
        here = not self._sizes.offloads
        trained = {FACTORS: vector, TEACHER: self._states() * here}
        if uses.curvature:
            trained[CURVATURE] = self._sizes.c
        paths = {ANCHORS: (1 + here) * vector * uses.path}
        moments: list[Parts] = []
        if uses.path:
            moments.append({WORK: 5 * vector})
        if uses.own_curvature:
            moments.append(self._fisher(self._sizes.items, self.lengths.item, open_=True))
            moments.append({CURVATURE: 2 * self._sizes.c})  # the new one and the mean with the past
        if "online_ewc" in uses.anchors:
            moments.append({WORK: 3 * vector, **self._one_sequence()})
        if uses.rule == "osrm":
            longest = self.lengths.longest
            grid = (self.config.optim.batch_size, longest)
            moments.append({WORK: self._sizes.passes.forward_work(grid[0] * longest, [grid])})
        if uses.rule != "shared":
            largest = max(d_in * d_out for d_in, d_out in one.maps.values())
            copies = 2 if one.scalar >= 4 else 4  # two maps' updates, and masters on the device
            moments.append({WORK: copies * 4 * largest})
        moments.append({})
        return [_merged(trained, paths, moment) for moment in moments]

    def _one_sequence(self) -> Parts:
        """A pass over one sequence and its losses."""
        rows = self.lengths.longest - 1
        kept = self._sizes.passes.kept(rows, [(1, rows)], open_=True, training=False)
        loss = TokenLosses(rows, cross_entropy=True, divergence=False)
        return {
            ACTIVATIONS: kept,
            LOGITS: loss.kept(self._sizes.passes) + loss.work(self._sizes.passes),
        }

    def _evaluation(self) -> list[Parts]:
        """The verifying pass over a whole row; decoding what it leaves undecided."""
        one, settings, lengths = self.shape, self.config.evaluation, self.lengths
        trained = {FACTORS: self._sizes.vector}
        items = lengths.tasks * lengths.items
        grid = self._sizes.grid(
            round(min(settings.tokens_per_batch, items * lengths.item)), lengths.item
        )
        rows = grid[0] * grid[1]
        words = round(min(POSITIONS_AT_ONCE, items * lengths.answer)) * one.vocabulary
        moments = [
            {WORK: self._sizes.passes.forward_work(rows, [grid])},
            {WORK: one.scalar * 2 * rows * one.width, LOGITS: one.scalar * words},
        ]
        undecided = round(lengths.undecided * items)
        if undecided:
            prompt = round(lengths.item - lengths.answer)
            whole = self._sizes.reserved(prompt + settings.max_new_tokens)
            count = max(1, min(undecided, settings.tokens_in_cache // whole))
            logits = {LOGITS: 2 * one.scalar * count * one.vocabulary}
            moments.append({CACHE: count * whole * one.cached, **logits})
            work = self._sizes.passes.forward_work(count * prompt, [])
            moments.append({CACHE: count * self._sizes.reserved(prompt) * one.cached, WORK: work})
        return [_merged(trained, moment) for moment in moments]

    def _commit(self) -> Peak:
        """What is written stands in the host's memory; on a processor it is there already."""
        peak = self._peak(_merged(self._resident(), {FACTORS: self._sizes.vector}))
        if self.device == "cuda":
            uses = self._sizes.uses
            vectors = self._sizes.vector * (1 + uses.weight_anchors)
            dense = self._sizes.w * self.shape.adapted_dense * (uses.fate == "folded")
            kept = self._sizes.c * uses.curvature_kept + vectors + dense
            peak.host[COPIES] = kept
        return peak

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(self.shape, self.config, self.lengths, self.device)

    def _highest(self, *moments: Parts, host: Parts | None = None) -> Peak:
        resident = self._resident()
        every = [_merged(resident, moment) for moment in moments]
        return self._peak(max(every, key=lambda parts: sum(parts.values())), host)

    def _peak(self, parts: Parts, host: Parts | None = None) -> Peak:
        """A peak of these parts on the device; host: what this phase adds there."""
        always: Parts = {}
        if self.device == "cuda":
            resting = self._sizes.c * self._sizes.uses.curvature_kept * self._sizes.offloads
            always = _merged(self._masters(), {CURVATURE: resting})
        return Peak(_without_zeros(parts), _without_zeros(_merged(always, host or {})))


def _without_zeros(parts: Parts) -> Parts:
    return {name: size for name, size in parts.items() if size}


def _merged(*parts: Mapping[str, int]) -> Parts:
    """The sum, part by part."""
    total: Parts = {}
    for one in parts:
        for name, size in one.items():
            total[name] = total.get(name, 0) + size
    return total
