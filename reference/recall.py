"""Recall: generate greedily for one item at a time, and compare the box in the text."""

import torch

from reference.sequences import prompt, tokenise


@torch.no_grad()
def continuation(model, tokenizer, question, seed_id=None, max_new_tokens=256):
    """The greedily generated text after the prompt, special tokens skipped."""
    model.eval()
    ids = torch.tensor([tokenise(tokenizer, prompt(question), seed_id)], device=model.device)
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    new_tokens = output[0, ids.shape[1] :]
    return tokenizer.decode(
        new_tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def first_box(text):
    r"""The stripped content of the first \boxed{ up to its balanced close, or None."""
    opening = r"\boxed{"
    begin = text.find(opening)
    if begin == -1:
        return None
    begin += len(opening)
    depth = 1
    for end in range(begin, len(text)):
        if text[end] == "{":
            depth += 1
        if text[end] == "}":
            depth -= 1
        if depth == 0:
            return text[begin:end].strip()
    return None


def is_correct(predicted, answer, aliases=(), ignore_case=False):
    """Whether the box's content equals the answer or one of its aliases."""
    if predicted is None:
        return False
    for accepted in [answer, *aliases]:
        if predicted == accepted.strip():
            return True
        if ignore_case and predicted.lower() == accepted.strip().lower():
            return True
    return False


def accuracy(model, tokenizer, items, seed_id=None, ignore_case=False, max_new_tokens=256):
    """One entry M_ij: the fraction of (question, answer, aliases) recalled. Source: eq. matrix."""
    correct = 0
    for question, answer, aliases in items:
        text = continuation(model, tokenizer, question, seed_id, max_new_tokens)
        correct += is_correct(first_box(text), answer, aliases, ignore_case)
    return correct / len(items)
