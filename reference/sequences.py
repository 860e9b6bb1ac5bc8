"""A question and its answer as a token sequence, and the loss on all of it."""

import torch


def prompt(question):
    """The text a question is asked with: the sequence up to where the answer's tokens begin.

    It stops before the space, which byte-level tokenizers join to the backslash that follows.
    """
    return f"Question: {question}\nAnswer:"


def render(question, answer):
    """The text learned for one item, without the seed token. Source: eq. app-replay-render."""
    return prompt(question) + f" \\boxed{{{answer}}}"


def tokenise(tokenizer, text, seed_id=None, eos_id=None):
    """Token ids of text with no special tokens but the optional seed before and eos after."""
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    before = [] if seed_id is None else [seed_id]
    after = [] if eos_id is None else [eos_id]
    return before + ids + after


def pad_right(sequences, pad_id, device=None):
    """Token id lists as input_ids [batch, length] long and mask [batch, length] bool."""
    length = max(len(sequence) for sequence in sequences)
    input_ids = torch.full((len(sequences), length), pad_id, dtype=torch.long, device=device)
    mask = torch.zeros((len(sequences), length), dtype=torch.bool, device=device)
    for row, sequence in enumerate(sequences):
        input_ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = True
    return input_ids, mask


def logits_of(model, input_ids, mask):
    """Logits [batch, length, vocabulary] of the model on right-padded sequences."""
    return model(input_ids=input_ids, attention_mask=mask.long(), use_cache=False).logits


def sft_loss(logits, input_ids, mask):
    """Mean of -log p(z_l | z_<l) over the predicted, non-padding tokens of the minibatch.

    logits: [batch, length, vocabulary]; input_ids, mask: [batch, length]. The first token has no
    prefix and is never a target; with a seed token that first token is the seed.
    Source: eq. app-sft.
    """
    log_p = torch.log_softmax(logits[:, :-1], dim=-1)
    targets = input_ids[:, 1:]
    m = mask[:, 1:].to(logits.dtype)
    log_p_of_target = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -(m * log_p_of_target).sum() / m.sum()
