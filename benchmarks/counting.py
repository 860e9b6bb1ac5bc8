"""Floating point operations and bytes that the work needs, counted by formula.

For n tokens through the adapted maps j of a frozen Qwen3-shaped model, with W_j [d_out, d_in] and
factors of rank r (a multiplication and an addition are two operations):

    forward   2n sum_j d_in d_out  +  2n r sum_j (d_in + d_out)  +  attention  +  2p d V
    backward  2n sum_j d_in d_out  +  4n r sum_j (d_in + d_out)  +  2 attention  +  2p d V

where p tokens are projected to the V words. The frozen matrices need only the gradient of their
input, the factors that and their own. Nothing below the first layer needs one, so there q, k and
v give back neither; attention is 2 products of h * d_head * l(l + 1) a sequence of l tokens (a
token sees itself and those before it), 4 in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_FIRST = ("q_proj", "k_proj", "v_proj")


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

    maps: name -> (d_in, d_out) in one layer; width: d; heads: h; each a scalar of ``scalar`` bytes.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    rank: int
    maps: dict[str, tuple[int, int]]
    scalar: int = 4

    @classmethod
    def of(cls, model: Any, rank: int) -> Shape:
        """The sizes of a Qwen3-shaped model whose seven projections carry factors of ``rank``."""
        config = model.config
        d, wide, narrow = (
            config.hidden_size,
            config.num_attention_heads * config.head_dim,
            config.num_key_value_heads * config.head_dim,
        )
        feed = config.intermediate_size
        maps = {"q_proj": (d, wide), "k_proj": (d, narrow), "v_proj": (d, narrow)}
        maps |= {"o_proj": (wide, d), "gate_proj": (d, feed), "up_proj": (d, feed)}
        maps["down_proj"] = (feed, d)
        return cls(
            config.num_hidden_layers,
            d,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.vocab_size,
            rank,
            maps,
        )

    @property
    def dense(self) -> int:
        """Entries of the frozen matrices of one layer."""
        return sum(d_in * d_out for d_in, d_out in self.maps.values())

    @property
    def factors(self) -> int:
        """P_r / r of one layer: the sum of d_in + d_out.  Source: eq. app-lora-storage."""
        return sum(d_in + d_out for d_in, d_out in self.maps.values())

    @property
    def trainable(self) -> int:
        """P_r: trainable scalars."""
        return self.layers * self.rank * self.factors

    @property
    def weight_bytes(self) -> int:
        """Bytes of all frozen matrices that a token passes, the output head included."""
        return self.scalar * (self.layers * self.dense + self.head)

    @property
    def head(self) -> int:
        """Entries of the output head."""
        return self.width * self.vocabulary

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
        first = [self.maps[name] for name in _FIRST]
        unneeded = sum(d_in * d_out + self.rank * d_in for d_in, d_out in first)
        flops = self.layers * layer - 2 * tokens * unneeded + 2 * predicted * self.head
        return Work(flops, self.weight_bytes)

    def project(self, predicted: int) -> Work:
        """The output head alone, on cached states."""
        return Work(2 * predicted * self.head, self.scalar * predicted * self.width)

    def update(self) -> Work:
        """AdamW: parameter, gradient and two moments are read, all but the gradient written."""
        return Work(0, 7 * self.scalar * self.trainable)

    def decode(self, rows: int, past: int) -> Work:
        """One more token for each of ``rows`` sequences, each of which has ``past`` tokens."""
        seen = past + 1
        attention = 4 * self.heads * self.head_width * seen
        flops = rows * (self.layers * (2 * self.dense + attention) + 2 * self.head)
        cache = 2 * self.scalar * self.layers * self.kv_heads * self.head_width * seen * rows
        return Work(flops, self.weight_bytes + cache)
