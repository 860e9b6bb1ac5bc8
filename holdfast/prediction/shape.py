"""A model's sizes, and the operations and bytes of passing tokens through it, by formula.

For n tokens through the maps j of a frozen Llama-like model, with W_j [d_out, d_in], adapted ones
with factors of rank r (a multiplication and an addition are two operations):

    forward   2n sum_j d_in d_out  +  2n r sum_j (d_in + d_out)  +  attention  +  2p d V
    backward  2n sum_j d_in d_out  +  4n r sum_j (d_in + d_out)  +  2 attention  +  2p d V

where p tokens are projected to the V words. The frozen matrices need only the gradient of their
input, the factors that and their own. Nothing below the first layer needs one, so there q, k and
v give back neither; attention is 2 products of h * d_head * l(l + 1) a sequence of l tokens (a
token sees itself and those before it), 4 in the backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from holdfast.backbone.adapters.frozen import transposed
from holdfast.backbone.adapters.workspace import Adapters

# Maps that read one tensor: the input of attention, its output, the input of the MLP, its middle.
READERS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
_FIRST = READERS[0]


@dataclass(frozen=True)
class Work:
    """flops: floating point operations; bytes: read or written at least once, past any reuse."""

    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, factor: float) -> Work:
        """The same work ``factor`` times."""
        return Work(factor * self.flops, factor * self.bytes)


@dataclass(frozen=True)
class Shape:
    """A model's sizes, and the work of passing tokens through it.

    maps: name -> (d_in, d_out) of the linear maps of one layer; adapted: the names of those with
    factors; width: d; heads: h; parameters: scalars of the whole model; head_norm: whether queries
    and keys are normalised; tied: whether the output head is the embedding; scalar: bytes of each.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    rank: int
    maps: dict[str, tuple[int, int]]
    adapted: tuple[str, ...]
    parameters: int
    head_norm: bool = False
    tied: bool = True
    scalar: int = 4

    @classmethod
    def of(cls, model: Any, config: Adapters.Config, scalar: int = 4) -> Shape:
        """The sizes of a model, which may be on the meta device, under these adapters.

        Raises HoldfastError where the adapters do not fit.
        """
        head = model.get_output_embeddings()
        maps = _maps_of_a_layer(model, head)
        every = config.targets == "all-linear"
        settings = model.config.get_text_config()
        heads = settings.num_attention_heads
        names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
        return cls(
            layers=settings.num_hidden_layers,
            width=settings.hidden_size,
            heads=heads,
            kv_heads=getattr(settings, "num_key_value_heads", None) or heads,
            head_width=getattr(settings, "head_dim", None) or settings.hidden_size // heads,
            vocabulary=head.weight.shape[0],
            rank=config.rank,
            maps=maps,
            adapted=tuple(
                name for name in maps if every or name.rpartition(".")[2] in config.targets
            ),
            parameters=sum(one.numel() for one in model.parameters()),
            head_norm="q_norm" in names,
            tied=head.weight is model.get_input_embeddings().weight,
            scalar=scalar,
        )

    @property
    def dense(self) -> int:
        """Entries of the frozen matrices of one layer."""
        return sum(d_in * d_out for d_in, d_out in self.maps.values())

    @property
    def adapted_dense(self) -> int:
        """Entries of the matrices that merging changes, of all layers."""
        return self.layers * sum(d_in * d_out for d_in, d_out in self._adapted())

    @property
    def factors(self) -> int:
        """P_r / r of one layer: the sum of d_in + d_out.  Source: eq. app-lora-storage."""
        return sum(d_in + d_out for d_in, d_out in self._adapted())

    @property
    def trainable(self) -> int:
        """P_r: trainable scalars."""
        return self.layers * self.rank * self.factors

    @property
    def inputs(self) -> int:
        """The sum of d_in over the adapted maps of all layers."""
        return self.layers * sum(d_in for d_in, _ in self._adapted())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all frozen matrices that a token passes, the output head included."""
        return self.scalar * (self.layers * self.dense + self.head)

    def stored(self, quantization: str) -> int:
        """Bytes of the whole model, its linear maps but the head quantized as ``backbone`` says.

        int8 has a scale a row, nf4 half a byte an entry and a scale for 64 of them.
        """
        entries = self.layers * self.dense
        rest = self.scalar * (self.parameters - entries)
        if quantization == "int8":
            return rest + entries + 4 * self.layers * sum(d_out for _, d_out in self.maps.values())
        return rest + round(
            {"none": float(self.scalar), "nf4": 0.5 + 4 / 64}[quantization] * entries
        )

    @property
    def widest(self) -> int:
        """Entries of the largest matrix that one product is taken with: of maps side by side."""
        return max(d_in * sum(widths) for d_in, widths in self.readers())

    @property
    def head(self) -> int:
        """Entries of the output head."""
        return self.width * self.vocabulary

    @property
    def feed(self) -> int:
        """f, the width of the MLP's middle."""
        return max(d_in for d_in, _ in self.maps.values())

    def readers(self) -> list[tuple[int, list[int]]]:
        """Of each tensor that adapted maps of a layer read: d_in, and d_out of each map.

        Maps of other names than those of Llama read one tensor each.
        """
        known = [[name for name in group if name in self.adapted] for group in READERS]
        other = [[name] for name in self.adapted if not any(name in group for group in READERS)]
        return [
            (self.maps[group[0]][0], [self.maps[name][1] for name in group])
            for group in (*known, *other)
            if group
        ]

    def _adapted(self) -> list[tuple[int, int]]:
        return [self.maps[name] for name in self.adapted]

    def pairs(self, lengths: Sequence[int], causal: bool = True) -> int:
        """(query, key) pairs: each token with itself and those before it, or with all."""
        return sum(n * (n + 1) // 2 if causal else n * n for n in lengths)

    def forward(
        self, lengths: Sequence[int], predicted: int, *, branch: bool, causal: bool = True
    ) -> Work:
        """One pass; branch: with the low-rank branch, which a merged or a fresh model lacks."""
        tokens = sum(lengths)
        low = self.rank * self.factors if branch else 0
        attention = 4 * self.heads * self.head_width * self.pairs(lengths, causal)
        flops = self.layers * (2 * tokens * (self.dense + low) + attention)
        return Work(flops + 2 * predicted * self.head, self.weight_bytes)

    def backward(self, lengths: Sequence[int], predicted: int, *, causal: bool = True) -> Work:
        """The gradient of all factors, once."""
        tokens = sum(lengths)
        attention = 8 * self.heads * self.head_width * self.pairs(lengths, causal)
        layer = 2 * tokens * (self.dense + 2 * self.rank * self.factors) + attention
        first = [self.maps[name] for name in _FIRST if name in self.maps]
        unneeded = sum(d_in * d_out for d_in, d_out in first)
        unneeded += sum(self.rank * self.maps[n][0] for n in _FIRST if n in self.adapted)
        flops = self.layers * layer - 2 * tokens * unneeded + 2 * predicted * self.head
        return Work(flops, self.weight_bytes)

    def project(self, predicted: int) -> Work:
        """The output head alone, on cached states."""
        return Work(2 * predicted * self.head, self.scalar * predicted * self.width)

    def update(self) -> Work:
        """AdamW: parameter, gradient and two moments are read, all but the gradient written."""
        return Work(0, 7 * self.scalar * self.trainable)

    def decode(self, rows: int, past: int, *, branch: bool = False) -> Work:
        """One more token for each of ``rows`` sequences, each of which has ``past`` tokens."""
        seen = past + 1
        low = self.rank * self.factors if branch else 0
        attention = 4 * self.heads * self.head_width * seen
        flops = rows * (self.layers * (2 * (self.dense + low) + attention) + 2 * self.head)
        return Work(flops, self.weight_bytes + rows * seen * self.cached)

    @property
    def cached(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.scalar * self.layers * self.kv_heads * self.head_width


def _maps_of_a_layer(model: Any, head: Any) -> dict[str, tuple[int, int]]:
    """Name -> (d_in, d_out) of the linear maps of the first layer.

    A name is the last part of the module's, of a second one of that name the last two.
    """
    first: dict[str, tuple[int, int]] = {}
    for name, module in _linear(model, head):
        number = re.search(r"\.(\d+)\.", name)
        if number is None or number[1] == "0":
            rows, columns = module.weight.shape
            sizes = (rows, columns) if transposed(module) else (columns, rows)
            *_, parent, own = name.split(".")
            first[f"{parent}.{own}" if own in first else own] = sizes
    return first


def _linear(model: nn.Module, head: Any) -> Iterable[tuple[str, Any]]:
    for name, module in model.named_modules():
        if module is not head and (isinstance(module, nn.Linear) or transposed(module)):
            yield name, module
