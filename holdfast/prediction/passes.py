"""Bytes of a pass through the decoder: what it keeps for the way back, and what it works with.

Letters: n rows (predicting positions), d width, f the middle of the MLP, h and k heads of queries
and of keys, e width of a head, s bytes of a scalar, V words of the vocabulary, r rank.
Source: what :mod:`holdfast.backbone.decoder` and :mod:`holdfast.backbone.projection` keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.backbone.decoder.attention import SHORT
from holdfast.backbone.projection import tokens_at_once
from holdfast.prediction.shape import Shape

Grid = tuple[int, int]


@dataclass(frozen=True)
class Passes:
    """The passes of one model on one type of device.

    dropout: whether masks are drawn in training; checkpointing: whether a layer keeps its input
    only and is computed again on the way back; short: whether a processor writes out the attention
    of short sequences; quantized: whether a matrix is made anew for each product.
    """

    shape: Shape
    device: str
    dropout: bool
    checkpointing: bool = False
    short: bool = True
    quantized: bool = False

    def kept(self, rows: int, grids: Sequence[Grid], *, open_: bool, training: bool) -> int:
        """What a forward pass over ``rows`` keeps for the backward pass.

        grids: (sequences, longest) of each batch; open_: whether the low-rank branches take part;
        training: with dropout.
        """
        one, s = self.shape, self.shape.scalar
        a_layer = s * rows * one.width
        if not self.checkpointing:
            a_layer = self._of_layer(rows, grids, open_=open_, training=training)
        # The states, the last norm, and the angles of the positions.
        return one.layers * a_layer + s * rows * (2 * one.width + 2 * one.head_width)

    def again(self, rows: int, grids: Sequence[Grid], *, open_: bool, training: bool) -> int:
        """What the layer that is computed again adds on the way back."""
        if not self.checkpointing:
            return 0
        return self._of_layer(rows, grids, open_=open_, training=training)

    def _of_layer(self, rows: int, grids: Sequence[Grid], *, open_: bool, training: bool) -> int:
        """What one layer keeps where it keeps all.

        Both normalised inputs (2 d), the normalised queries and keys, what attention keeps, gate
        and up (2 f), and of each tensor that adapted maps read the branch's input, its mask and its
        r numbers a map.
        """
        one, s = self.shape, self.shape.scalar
        heads = (one.heads + one.kv_heads) * one.head_width
        numbers = 2 * one.width + 2 * one.feed + (heads if one.head_norm else 0)
        a_layer = s * rows * numbers + sum(self._attention(grid) for grid in grids)
        if open_:
            a_layer += rows * self._branches(masked=training and self.dropout)
        return a_layer

    def _branches(self, *, masked: bool) -> int:
        """A row's bytes of the branches: dropout(x) and its mask, d_in each, and r a map."""
        one = self.shape
        a_mask = (one.scalar if self.device == "cpu" else 1) if masked else 0
        return sum(
            d_in * (one.scalar + a_mask) + one.scalar * one.rank * len(widths)
            for d_in, widths in one.readers()
        )

    def _attention(self, grid: Grid) -> int:
        """Of one batch in one layer: queries, keys and values, the output, and the weights."""
        one = self.shape
        sequences, longest = grid
        positions = sequences * longest
        queries, keys = one.heads * one.head_width, one.kv_heads * one.head_width
        if (
            self.short and self.device == "cpu" and longest <= SHORT
        ):  # written out, with its weights
            numbers = positions * (2 * queries + 2 * keys) + positions * one.heads * longest
            return one.scalar * numbers
        # Rotated queries and keys, and the product that the values are a view of.
        numbers = positions * (queries + keys + queries + 2 * keys + queries)
        return one.scalar * numbers + 4 * positions * one.heads

    def forward_work(self, rows: int, grids: Sequence[Grid]) -> int:
        """What one layer works with where nothing is kept: all its results until it ends."""
        one = self.shape
        queries, keys = one.heads * one.head_width, one.kv_heads * one.head_width
        numbers = 7 * one.width + 3 * one.feed + 2 * queries + 3 * keys
        numbers += (queries + keys) * one.head_norm
        attention = sum(self._attention(grid) for grid in grids)
        return one.scalar * rows * numbers + attention + self._made_anew()

    def _made_anew(self) -> int:
        """The largest quantized matrix in the model's precision: its maps', and side by side."""
        return 2 * self.shape.scalar * self.shape.widest if self.quantized else 0

    def backward_work(self, rows: int) -> int:
        """What one layer's backward pass works with; rows: of all losses, one after another."""
        one = self.shape
        widths = (one.heads + 2 * one.kv_heads) * one.head_width
        numbers = 7 * one.width + 3 * one.feed + 3 * widths
        return one.scalar * rows * numbers + self._made_anew()

    def chunk(self, rows: int) -> int:
        """How many of these rows are projected to the vocabulary at a time."""
        return min(rows, tokens_at_once(self.device, self.shape.vocabulary))


@dataclass(frozen=True)
class TokenLosses:
    """The losses over the words at the rows of one minibatch.

    rows: n; cross_entropy, divergence: which of the two are taken.
    """

    rows: int
    cross_entropy: bool
    divergence: bool

    def kept(self, passes: Passes) -> int:
        """Logits, the teacher's too, and what each loss keeps until the gradient is taken.

        In chunks nothing of them is kept but the gradient of the states.
        """
        one = passes.shape
        losses = self.cross_entropy + self.divergence
        if passes.chunk(self.rows) < self.rows:
            return losses * one.scalar * self.rows * one.width
        a_word = one.scalar * (1 + self.divergence) + 4 * losses
        return a_word * self.rows * one.vocabulary

    def logits(self, passes: Passes) -> int:
        """Of that, what lives on while the layers go back: logits, the teacher's too."""
        if passes.chunk(self.rows) < self.rows:
            return 0
        a_word = passes.shape.scalar * (1 + self.divergence)
        return a_word * self.rows * passes.shape.vocabulary

    def work(self, passes: Passes) -> int:
        """What taking the losses and their gradients adds for a moment."""
        s, chunk = passes.shape.scalar, passes.chunk(self.rows)
        cast = 4 if s < 4 else 0
        a_word = 0
        if self.cross_entropy:  # two gradients in float32, and one of the logits
            a_word = 8 + cast
        if self.divergence:  # two of three float32 tensors; a GPU also masks 0 log 0
            a_word = max(a_word, 8 if passes.device == "cpu" else 13, s + cast)
        if chunk < self.rows:  # one chunk of one loss at a time, logits and all
            a_word += s * (1 + self.divergence) + 4
        return a_word * chunk * passes.shape.vocabulary
