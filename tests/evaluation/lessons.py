"""What tiny backbones are taught to say, so that every kind of answer occurs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate
from holdfast.streams import Item, Template

END, BLANK = "<|end|>", "<|blank|>"
LONG = "seven and seventy " * 5

# An item and what the model is taught to say after its prompt. The kinds of deviation: another
# accepted text, another tokenization of the same text, a box that opens late, never, or never
# closes, a stop inside, a special token inside, bytes that are no text.
LESSONS: list[tuple[Item, str]] = [
    (Item("key aB3", "Xy9"), r" \boxed{Xy9}"),
    (Item("key Zz1", "Qr7"), r" \boxed{qR7}"),
    (Item("capital of Spain", "Madrid"), r" \boxed{Madrid}" + END),
    (Item("big apple", "New York", ("NYC", "New York City")), r" \boxed{NYC}"),
    (Item("bigger apple", "New York", ("NYC", "New York City")), r" \boxed{New York City}."),
    (Item("spaces", "a b"), r" \boxed{  a b }"),
    (Item("more spaces", "New"), r" \boxed{New   }"),
    (Item("braces", "f{x}{y}"), r" \boxed{f{x}{y}} and so on"),
    (Item("other braces", "f{x}{y}"), r" \boxed{f{x}}"),
    (Item("unicode", "naïve 東京 🙂"), r" \boxed{naïve 東京 🙂}"),
    (Item("nearly", "東京 🙂"), r" \boxed{東京 🙃}"),
    (Item("greek", "ΟΔΟΣ"), r" \boxed{Οδος}"),
    (Item("late", "Paris"), r" well, \boxed{Paris}"),
    (Item("late and wrong", "Paris"), r" well, \boxed{London}"),
    (Item("late, then more", "Paris"), r" I say \boxed{paris}\boxed{x}" + END),
    (Item("wrong", "Madrid"), r" \boxed{Paris}"),
    (Item("too long", "Xy"), r" \boxed{Xyz}"),
    (Item("too short", "Xyz"), r" \boxed{Xy}"),
    (Item("never closes", "Xy9"), r" \boxed{Xy9" + END),
    (Item("never opens", "Xy9"), " Xy9" + END),
    (Item("silent", "Xy9"), END),
    (Item("no brace", "Xy9"), r" \boxed Xy9." + END),
    (Item("blank inside", "Xy9"), rf" \bo{BLANK}xed{{X{BLANK}y9}}"),
    (Item("a long one", f"{LONG}men"), rf" \boxed{{{LONG}men}}"),
    (Item("merged", "so"), r" \boxed{so}." + END),
    (Item("twice", "no"), r" \boxed{yes} \boxed{no}"),
    (Item("stop inside", f"X{END}y", ("Xy",)), rf" \boxed{{X{END}y}}"),
    (Item("answer with a blank", f"X{BLANK}y"), rf" \boxed{{X{BLANK}y}}"),
    (Item("code", "x"), r" \boxed{\boxed{x}}"),
]
TEMPLATE = Template()


def taught(backbone: Backbone, index: int) -> list[int]:
    """The sequence of a lesson: the prompt's tokens, then those of what is said.

    Every third lesson is said in single letters: the same text in another tokenization.
    """
    item, reply = LESSONS[index]
    prompt = backbone.tokenize(TEMPLATE.prompt(item))
    if index % 3:
        return prompt + backbone.tokenize(reply)
    return prompt + [token for letter in _letters(reply) for token in _alone(backbone, letter)]


def _letters(reply: str) -> list[str]:
    specials = {"\0": END, "\1": BLANK}
    return [specials.get(c, c) for c in reply.replace(END, "\0").replace(BLANK, "\1")]


def _alone(backbone: Backbone, letter: str) -> list[int]:
    """The tokens of one letter; SentencePiece would put a space before it."""
    vocabulary = backbone.tokenizer.get_vocab()
    if "<0x00>" not in vocabulary:
        return backbone.tokenize(letter)
    piece = letter.replace(" ", "▁")
    pieces = [piece] if piece in vocabulary else [f"<0x{byte:02X}>" for byte in letter.encode()]
    return [vocabulary[piece] for piece in pieces]


def teach(
    backbone: Backbone,
    steps: int,
    sequences: Sequence[list[int]] | None = None,
    learning_rate: float = 5e-3,
) -> None:
    """Train on every sequence at once; the lessons, if none are given."""
    torch.manual_seed(1)
    sequences = sequences or [taught(backbone, index) for index in range(len(LESSONS))]
    batch = collate(sequences, backbone.device)
    grid = batch.grid(batch.inputs, backbone.pad_token)
    backbone.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=learning_rate, weight_decay=0.0)
    for _ in range(steps):
        logits = backbone.logits(batch.packed(backbone.hidden(grid)))
        loss = torch.nn.functional.cross_entropy(logits, batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    backbone.model.requires_grad_(False)


def shake(backbone: Backbone, scale: float, seed: int) -> None:
    """Add noise to every weight. scale: as a share of the weight's own spread."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += torch.randn(weight.shape, generator=source) * weight.std() * scale
