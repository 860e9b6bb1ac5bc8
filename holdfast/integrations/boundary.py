"""What an Anchored takes from its model between two tasks: samples, curvature, gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig

from holdfast.anchors import Text
from holdfast.anchors.general import refuse_no_text
from holdfast.core.seeding import derive, generator
from holdfast.integrations.reader import Reader
from holdfast.integrations.task import TaskSequences
from holdfast.learning.teacher import text_tokens
from holdfast.model.curvature import CurvatureData, curvature_of, positions_of
from holdfast.model.generation.sampling import Sampling
from holdfast.model.kronecker import Curvature, Positions
from holdfast.model.sequences import TokenStates

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

Draw = tuple[int, str, int]

AT_ONCE = 32  # sequences sampled at once; a constant, since it decides the draws


def samples_before(anchored: Anchored, number: int) -> tuple[list[list[int]], list[list[int]]]:
    """Sample the model before task ``number``: replay sequences and general texts."""
    reader, sampling, stop = anchored.reader, anchored.sampling, anchored.stop_tokens
    replay: list[list[int]] = []
    if number > 1 and (anchored.needs("replay") or anchored.needs("curvature")):
        prompts = [anchored.begin_with] * sampling.samples
        seed = derive(anchored.seed, "replay", number)
        replay = samples(reader, prompts, sampling, stop, seed)
    general: list[list[int]] = []
    first = number == 1 and (anchored.needs("prior_curvature") or anchored.needs("positions"))
    if sampling.general and (first or anchored.needs("curvature")):
        general = general_text(anchored, number, sampling.general)
    return replay, general


def general_text(anchored: Anchored, number: int, count: int) -> list[list[int]]:
    """Let the model continue ``count`` random tokens before task ``number``.

    ``begin_with``, if given, precedes each. With a tokenizer, special and stop tokens are not
    drawn, nor rows that only pad the model's table.
    """
    drawable: Sequence[int] = range(anchored.reader.vocabulary)
    if hasattr(anchored.tokenizer, "all_special_ids"):  # a processor has none
        known = text_tokens(anchored.tokenizer, anchored.stop_tokens)
        drawable = [token for token in known if token in drawable] or drawable
    source = generator(anchored.seed, "general text", number)
    drawn = torch.randint(len(drawable), (count,), generator=source).tolist()
    begins = [[*anchored.given_begin, drawable[index]] for index in drawn]
    seed = derive(anchored.seed, "general", number)
    return samples(anchored.reader, begins, anchored.sampling, anchored.stop_tokens, seed)


def written_by(
    anchored: Anchored, replay: Sequence[list[int]], general: Sequence[list[int]]
) -> TaskSequences:
    """Samples for replay and of general text, with label -100 at tokens that were given."""
    lengths = [len(anchored.begin_with)] * len(replay)
    lengths += [len(anchored.given_begin) + 1] * len(general)
    rows = [*replay, *general]
    labels = [[-100] * count + row[count:] for count, row in zip(lengths, rows, strict=True)]
    return TaskSequences(rows, labels)


def text_before(anchored: Anchored, count: int) -> Text:
    """Sample ``count`` general texts from the untouched model; return them with its states."""
    sequences = general_text(anchored, 1, count)
    refuse_no_text(sequences)
    states = anchored.reader.states_of(sequences)
    starts = list(accumulate((len(rows) for rows in states), initial=0))
    return Text(sequences, TokenStates(torch.cat(states), starts))


def curvature_on(anchored: Anchored, texts: TaskSequences, draw: Draw) -> Curvature:
    """Kronecker factors of every adapted map on sequences."""
    with anchored.reader.answering():
        return curvature_of(_data(anchored, texts, draw))


def positions_on(anchored: Anchored, texts: TaskSequences, draw: Draw, count: int) -> Positions:
    """x and g of every adapted map at ``count`` positions of sequences."""
    with anchored.reader.answering():
        return positions_of(_data(anchored, texts, draw), count)


def sequence_gradient(
    anchored: Anchored, sequences: TaskSequences, index: int
) -> dict[str, Tensor]:
    """The gradient of the mean cross-entropy of one sequence's trained tokens, without dropout."""
    reader, parameters = anchored.reader, anchored.workspace.parameters()
    ids = torch.tensor([sequences.ids[index]], device=reader.device)
    labels = torch.tensor(sequences.labels[index][1:], device=reader.device)
    chosen = labels != -100
    with reader.answering(), torch.enable_grad():
        logits = reader.logits(reader.hidden(ids)[0, :-1][chosen])
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(wide, ids[0, 1:][chosen])
        # Zeros for a layer that the sequence did not pass, such as an expert.
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, gradients, strict=True))


def _data(anchored: Anchored, texts: TaskSequences, draw: Draw) -> CurvatureData:
    layers, config = anchored.workspace.layers, anchored.curvature
    return CurvatureData(anchored.reader, layers, texts.ids, config, draw, texts.labels)


@torch.no_grad()
def samples(
    reader: Reader, prompts: Sequence[Sequence[int]], settings: Sampling, stop: set[int], seed: int
) -> list[list[int]]:
    """Continue every prompt with ``generate``; return prompt and continuation if it is not empty.

    prompts: token ids, all of one length; stop: the tokens that end a sequence, which stay in it;
    seed: of the draws; the global generators do not change.
    Source: eq. app-replay-generate, eq. app-replay-buffer.
    """
    written: list[list[int]] = []
    device = reader.device
    for start in range(0, len(prompts), AT_ONCE):
        ids = torch.tensor(prompts[start : start + AT_ONCE], device=device)
        forked = torch.random.fork_rng([device] if device.type == "cuda" else [])
        with reader.answering(), _plain_generation(reader), forked:
            torch.manual_seed(derive(seed, "batch", start))
            drawn = reader.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k or 0,
                max_new_tokens=settings.max_new_tokens,
                eos_token_id=sorted(stop) or None,
                pad_token_id=min(stop, default=0),
            )
        for row in drawn.tolist():
            text = row[ids.shape[1] :]
            end = next((place for place, token in enumerate(text) if token in stop), len(text))
            if end:
                written.append(row[: ids.shape[1] + end + 1])
    return written


@contextmanager
def _plain_generation(reader: Reader) -> Iterator[None]:
    """Within the block the model's own generation_config is replaced by the default one."""
    owners = [owner for owner in (reader.model, reader.base) if "generation_config" in vars(owner)]
    configs = [owner.generation_config for owner in owners]
    for owner in owners:
        owner.generation_config = GenerationConfig()
    try:
        yield
    finally:
        for owner, config in zip(owners, configs, strict=True):
            owner.generation_config = config
