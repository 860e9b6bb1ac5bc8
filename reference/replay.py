"""The data anchor: the previous model's own samples, matched softly."""

import torch

from reference.divergences import forward_kl


def mean_row(embedding, vocabulary_size):
    """Mean [d] of the first vocabulary_size rows of embedding [rows, d].

    Source: eq. app-replay-init.
    """
    return embedding[:vocabulary_size].sum(dim=0) / vocabulary_size


@torch.no_grad()
def initialise_seed_token(model, seed_id, vocabulary_size):
    """Set the seed's input row, and its output row when untied, to the mean original row; freeze.

    vocabulary_size: tokens of the original vocabulary. A matrix may hold more rows than tokens
    (Qwen3 pads it); only when it has no row for the seed is it enlarged.
    Source: eq. app-replay-init.
    """
    if seed_id >= model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(seed_id + 1, mean_resizing=False)
    E = model.get_input_embeddings().weight
    E[seed_id] = mean_row(E, vocabulary_size)
    E.requires_grad_(False)
    U = model.get_output_embeddings().weight
    if U is not E:
        U[seed_id] = mean_row(U, vocabulary_size)
        U.requires_grad_(False)


@torch.no_grad()
def generate(
    teacher,
    seed_id,
    attempts,
    temperature,
    top_p,
    max_new_tokens,
    eos_id,
    pad_id,
    batch_size,
    keep_eos=False,
):
    """The replay set: seed + continuation for every attempt with a non-empty continuation.

    Returns token id lists. A continuation ends before its first eos token, or with it if
    keep_eos (then it is never empty). Source: eq. app-replay-generate, app-replay-buffer.
    """
    teacher.eval()
    kept = []
    for start in range(0, attempts, batch_size):
        prompts = torch.full((min(batch_size, attempts - start), 1), seed_id, device=teacher.device)
        output = teacher.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=temperature,
            top_p=top_p,
            top_k=0,
            max_new_tokens=max_new_tokens,
            eos_token_id=eos_id,
            pad_token_id=pad_id,
        )
        for row in output[:, 1:].tolist():
            continuation = until_eos(row, eos_id, keep_eos)
            if continuation:
                kept.append([seed_id, *continuation])
    return kept


def until_eos(tokens, eos_id, keep_eos):
    """The tokens before the first eos, and that eos too if keep_eos."""
    if eos_id not in tokens:
        return tokens
    end = tokens.index(eos_id)
    return tokens[: end + 1] if keep_eos else tokens[:end]


def soft_replay_loss(teacher_logits, student_logits, mask, temperature, divergence=forward_kl):
    """tau_D^2 times the mean KL(teacher || student) over the continuation's tokens.

    teacher_logits, student_logits: [batch, 1 + continuation, vocabulary], the seed at position 0;
    mask: [batch, 1 + continuation]. a_l = mask[:, l] for l >= 1; the distributions of token l are
    the logits at position l - 1. Source: eq. app-replay-mask ... app-replay-loss.
    """
    a = mask[:, 1:]
    return divergence(teacher_logits[:, :-1], student_logits[:, :-1], a, temperature)


def paired_minibatches(sequences, minibatch_size, steps_per_epoch, epochs, order):
    """One replay minibatch for every current minibatch of every epoch, as a flat list.

    The shuffled iterator is made anew at the start of each epoch and whenever it is exhausted;
    its last minibatch may be short. Without sequences there are no minibatches. order: called
    with the epoch and the number of the pass in it, gives the pass's shuffled indices.
    Source: alg:replay.
    """
    if not sequences:
        return []

    drawn = []
    for epoch in range(epochs):
        left, passes = [], 0
        for _ in range(steps_per_epoch):
            if not left:
                left, passes = order(epoch, passes), passes + 1
            drawn.append([sequences[i] for i in left[:minibatch_size]])
            left = left[minibatch_size:]
    return drawn
