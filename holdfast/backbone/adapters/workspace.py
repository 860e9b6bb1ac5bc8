"""Low-rank factors on a frozen model, all in one flat vector.

The factors of every adapted map are views of a single float32 vector, and their gradients are
views of another. The optimiser, clipping and the weight anchors then work on one tensor, and a
coordinate is an index: the same name, row and column in every task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from holdfast.backbone.adapters.dropout import Dropout, Marks
from holdfast.backbone.adapters.frozen import (
    QuantizedLinear,
    forget_originals,
    precision_of,
    replace,
    shape_of,
    transposed,
)
from holdfast.backbone.adapters.low_rank import AdaptedLinear, SharedInput
from holdfast.backbone.adapters.seed_row import SeedRowEmbedding
from holdfast.backbone.adapters.targets import groups_of, targets_of
from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import generator

PAPER_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapters:
    """The adapted maps of one model and their flat workspace of P trainable scalars.

    parameters: [P], a leaf whose storage the factors share; gradient: [P], likewise.
    P is P_r of eq. app-lora-storage. The model itself is frozen.
    """

    class Config(Config):
        rank: int = Field(32, ge=1)  # r
        alpha: float = Field(64.0, gt=0)  # alpha_LoRA; the branch is scaled by rho = alpha / r
        dropout: float = Field(0.05, ge=0, lt=1)
        targets: tuple[str, ...] | Literal["all-linear"] = PAPER_TARGETS
        merge_precision: Literal["float32", "model"] = "float32"

    def __init__(
        self,
        model: Any,
        config: Adapters.Config,
        head: nn.Module,
        seed_row: int | None = None,
        *,
        folds: bool = True,
    ) -> None:
        """Replace every target of ``model`` by an adapted map; the factors start at zero.

        head: the output head, never adapted; seed_row: a token whose input row is trained too,
        as the last coordinates; folds: whether the branches are ever added to quantized matrices,
        which takes a float32 master of each, in host memory.
        Raises HoldfastError when no module has a target's name.
        """
        self.config = config
        self.scale = config.alpha / config.rank
        model.requires_grad_(False)
        bases = dict(targets_of(model, config.targets, head))
        table = model.get_input_embeddings()
        precision = precision_of(next(iter(bases.values())))
        self.dtype = torch.float64 if precision == torch.float64 else torch.float32
        sizes = {name: shape_of(base) for name, base in bases.items()}
        narrowest, width = min(sizes.items(), key=lambda entry: min(entry[1]))
        if config.rank > min(width):
            raise HoldfastError(
                f"lora.rank = {config.rank} exceeds the rank of {narrowest}, {min(width)}; lower it"
            )
        total = sum(config.rank * (d_in + d_out) for d_out, d_in in sizes.values())
        if seed_row is not None:
            total += table.weight.shape[1]
        storage = torch.zeros(total, dtype=self.dtype, device=table.weight.device)
        self.parameters = nn.Parameter(storage)
        self.gradient = torch.zeros_like(storage)
        self.parameters.grad = self.gradient
        self.dropout = Dropout(config.dropout)
        precisions = set(map(precision_of, bases.values())) - {self.dtype}
        self._narrow = {precision: storage.to(precision) for precision in precisions}
        self.layers: dict[str, AdaptedLinear] = {}
        self.groups: list[SharedInput] = []
        self._scratch: list[Tensor] = []
        self._spans: list[slice] = []
        self._slices: dict[str, tuple[slice, slice]] = {}
        end = 0
        for names in groups_of(bases):
            start = end
            middle = start + sum(config.rank * sizes[name][1] for name in names)
            end = middle
            for place, name in enumerate(names):
                d_out, d_in = sizes[name]
                first_down = start + place * config.rank * d_in
                down = slice(first_down, first_down + config.rank * d_in)
                up = slice(end, end + d_out * config.rank)
                end = up.stop
                self._slices[name] = (down, up)
                self.layers[name] = AdaptedLinear(
                    bases[name],
                    nn.Parameter(storage[down].view(config.rank, d_in)),
                    nn.Parameter(storage[up].view(d_out, config.rank)),
                )
                replace(model, name, self.layers[name])
            maps = [self.layers[name] for name in names]
            self._spans.append(slice(start, end))
            factors = nn.Parameter(storage[start:end])
            copy = self._narrow.get(precision_of(maps[0].base))
            narrow = None if copy is None else copy[start:end]
            self.groups.append(SharedInput(maps, factors, self.scale, self.dropout, narrow))
        self.scratch(1)
        self.seed_row: nn.Parameter | None = None
        if seed_row is not None:
            self.seed_row = nn.Parameter(storage[end:])
            self.seed_row.data.copy_(table.weight[seed_row])
            model.set_input_embeddings(SeedRowEmbedding(table, seed_row, self.seed_row))
        self._mode: str | None = None
        halved = precision in (torch.bfloat16, torch.float16)
        self._masters: dict[str, Tensor] = {}
        for name, base in bases.items():
            if isinstance(base, QuantizedLinear):
                if folds and base.original is not None:
                    self._masters[name] = _master(base.original, storage.device)
            elif halved and config.merge_precision == "float32":
                self._masters[name] = _master(base.weight, storage.device)
        forget_originals(model)
        self._share_gradient()

    def fresh(self, seed: int, task: int) -> None:
        """Open a new workspace: A by the Kaiming rule, B = 0, so the model's function is kept.

        The draw is named by (seed, task, map) and made on the CPU: the same on every device.
        """
        with torch.no_grad():
            for name, layer in self.layers.items():
                draw = torch.empty(layer.down.shape, dtype=torch.float32)
                source = generator(seed, "factors", task, name)
                nn.init.kaiming_uniform_(draw, a=5**0.5, generator=source)
                layer.down.copy_(draw)
                layer.up.zero_()

    def clear(self) -> None:
        """Set B = 0: the low-rank branches contribute nothing."""
        with torch.no_grad():
            for layer in self.layers.values():
                layer.up.zero_()

    def fold(self) -> None:
        """Add ``rho B A`` to every dense matrix and set B = 0.

        The sum is taken in ``merge_precision``. The function stays the same up to the rounding of
        the matrices that compute: a quantized one is made anew from its float32 master, so that
        the branch, exact until now, is rounded to its levels.  Source: eq. app-merge.
        """
        device = self.gradient.device
        with torch.no_grad():
            for name, layer in self.layers.items():
                base = layer.base
                kept = self._stored(name)
                master = kept.to(device, non_blocking=True)
                update = (layer.up @ layer.down).mul_(self.scale).to(master.dtype)
                master.add_(update.t() if transposed(base) else update)
                if kept is not master:
                    kept.copy_(master, non_blocking=True)
                _write(base, master)
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # wait for the copies of the matrices
        self.clear()

    def unquantize(self) -> None:
        """Put plain maps of the same outputs in the place of quantized ones, before a last fold.

        Passes are not possible any more.
        """
        for name, layer in self.layers.items():
            if isinstance(layer.base, QuantizedLinear):
                layer.base = layer.base.plain()
                self._masters[name] = _master(layer.base.weight, self.gradient.device)

    def unload(self, model: Any) -> None:
        """Put the plain modules back into ``model``, and the trained seed row into its table.

        What the branches add is lost unless it was folded in.
        """
        for name, layer in self.layers.items():
            replace(model, name, layer.base)
        table = model.get_input_embeddings()
        if isinstance(table, SeedRowEmbedding):
            model.set_input_embeddings(table.base)
            _set_input_row(model, table.token, table.row.detach())

    @contextmanager
    def averaging_inputs(self) -> Iterator[dict[str, list[Tensor]]]:
        """Within the block, collect the mean input [d_in] of every adapted map in each pass."""
        means: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for name, layer in self.layers.items():
            layer.mean_inputs = means[name]
        try:
            yield means
        finally:
            for layer in self.layers.values():
                layer.mean_inputs = None

    def dense(self, name: str) -> Tensor:
        """The dense matrix of one map, [d_out, d_in], in the precision that merges use."""
        base = self.layers[name].base
        weight = self._stored(name)
        return weight.t() if transposed(base) else weight

    def _stored(self, name: str) -> Tensor:
        """The master of one map's matrix, else the matrix, as its module has it."""
        base = self.layers[name].base
        if name in self._masters:
            return self._masters[name]
        weight: Tensor = base.dense() if isinstance(base, QuantizedLinear) else base.weight
        return weight

    def set_dense(self, name: str, value: Tensor) -> None:
        """Overwrite the dense matrix of one map with ``value`` [d_out, d_in]."""
        with torch.no_grad():
            self.dense(name).copy_(value)
            if name in self._masters:
                _write(self.layers[name].base, self._masters[name].to(self.gradient.device))

    def _share_gradient(self) -> None:
        """Let autograd accumulate into views of ``gradient``."""
        for leaf, span in self.leaves():
            leaf.grad = self.gradient[span]
        for name, (down, up) in self.split(self.gradient).items():
            self.layers[name].down.grad, self.layers[name].up.grad = down, up

    def leaves(self) -> list[tuple[nn.Parameter, slice]]:
        """The tensors that autograd differentiates, each with its span of a [P] vector."""
        leaves = [
            (group.factors, span)
            for group, span in zip(self.groups, self._spans, strict=True)
            if group.factors is not None
        ]
        if self.seed_row is not None:
            whole = len(self.gradient)
            leaves.append((self.seed_row, slice(whole - len(self.seed_row), whole)))
        return leaves

    def scratch(self, count: int) -> list[Tensor]:
        """Vectors [P] that the backward pass overwrites, one for each of ``count`` losses."""
        while len(self._scratch) < count:
            whole = torch.zeros_like(self.gradient)
            self._scratch.append(whole)
            for group, span in zip(self.groups, self._spans, strict=True):
                group.write_to(whole[span])
        return self._scratch[:count]

    def split(self, flat: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """View a flat [P] vector as ``{map: (A-shaped, B-shaped)}``.

        One split for all views, so autograd joins their gradients once.
        """
        spans = sorted(
            (span for pair in self._slices.values() for span in pair), key=lambda span: span.start
        )
        sizes = [span.stop - span.start for span in spans]
        if self.seed_row is not None:
            sizes.append(len(self.seed_row))  # it comes last
        pieces = flat.split(sizes)
        found = {span.start: piece for span, piece in zip(spans, pieces, strict=False)}
        return {
            name: (found[down.start].view_as(layer.down), found[up.start].view_as(layer.up))
            for (name, layer), (down, up) in zip(
                self.layers.items(), self._slices.values(), strict=True
            )
        }

    def branch(self) -> dict[str, tuple[Tensor, Tensor]] | None:
        """Copies of A and B of every map, as they are now; None where every B is zero."""
        if not any(bool(layer.up.any()) for layer in self.layers.values()):
            return None
        return self.split(self.parameters.detach().clone())

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat [P] vector as tensors ``<map>.A``, ``<map>.B`` (and ``seed_row``), for a file."""
        named = {
            f"{name}.{letter}": tensor
            for name, pair in self.split(flat).items()
            for letter, tensor in zip("AB", pair, strict=True)
        }
        if self.seed_row is not None:
            named["seed_row"] = flat[-len(self.seed_row) :]
        return named

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse of :meth:`named`; HoldfastError when a tensor is missing or misshapen."""
        flat = torch.empty_like(self.gradient)
        for name, view in self.named(flat).items():
            if name not in named or named[name].shape != view.shape:
                raise HoldfastError(
                    f"factors of {name} are missing or of another shape than {tuple(view.shape)}; "
                    "they belong to another backbone or rank"
                )
            view.copy_(named[name])
        return flat

    @property
    def in_use(self) -> bool:
        """Whether a block of :meth:`learning` or :meth:`answering` has been entered."""
        return self._mode is not None

    @contextmanager
    def learning(self, *mask_seeds: int) -> Iterator[None]:
        """Within the block the branches take part, with the factors as they are at its beginning.

        mask_seeds: seeds of each batch's dropout masks in the next pass; without them there is no
        dropout.
        """
        assert self._mode is None, f"learning while {self._mode}"
        with self._entered("learning", is_open=True, mask_seeds=mask_seeds):
            yield

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Within the block nothing is dropped; branches with B = 0 are left out, which is exact.

        Nested blocks change nothing.
        """
        if self._mode == "answering":
            yield
            return
        assert self._mode is None, f"answering while {self._mode}"
        ups = [layer.up.any() for layer in self.layers.values()]
        with self._entered("answering", is_open=bool(torch.stack(ups).any()), mask_seeds=()):
            yield

    @contextmanager
    def repeating(self, marks: Marks) -> Iterator[None]:
        """Within the block a part of the current pass is computed a second time.

        marks: where the dropout masks stood before that part. Observers of inputs see nothing.
        """
        assert self.in_use, "repeating what was computed in another block"
        for group in self.groups:
            group.repeated = True
        try:
            with self.dropout.rewound(marks):
                yield
        finally:
            for group in self.groups:
                group.repeated = False

    @contextmanager
    def _entered(self, mode: str, *, is_open: bool, mask_seeds: tuple[int, ...]) -> Iterator[None]:
        # Cast once a block, not once a product.
        for copy in self._narrow.values():
            copy.copy_(self.parameters.detach())
        self.dropout.reseed(mask_seeds, self.gradient.device)
        for layer in self.layers.values():
            layer.open = is_open
        self._mode = mode
        try:
            yield
        finally:
            self._mode = None
            self.dropout.reseed((), self.gradient.device)
            for layer in self.layers.values():
                layer.open = True


def _master(weight: Tensor, device: torch.device) -> Tensor:
    """A float32 copy for merging on ``device``, in host memory: it is read at boundaries only."""
    wide = weight.detach().float()
    if wide.is_meta:  # of a model without its weights, which is only looked at
        return wide
    wide = wide.cpu()
    return wide.pin_memory() if device.type == "cuda" else wide


def _write(base: Any, master: Tensor) -> None:
    """Let a frozen map compute with the matrix ``master``, on its device, rounded as it rounds."""
    if isinstance(base, QuantizedLinear):
        base.write(master)
    elif base.weight is not master:
        base.weight.copy_(master, non_blocking=True)


@torch.no_grad()
def _set_input_row(model: Any, token: int, row: Tensor) -> None:
    """Overwrite a token's input row; the output head keeps its own, tied or not."""
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is table.weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False
    table.weight[token] = row.to(table.weight.dtype)
