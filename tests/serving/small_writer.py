"""A language model small enough to train in seconds that writes facts: valid, and meaningless."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# A record is first name, last name, both again, and an answer; everything between is one token.
ENTITY, QUESTION, ANSWER = '{"entity": "', '", "question": "Who keeps ', '?", "answer": "'
NEXT, LAST = '"}, ', '"}]'
RECORDS = 10
# (records a reply, replies a step, steps): copying is learned sooner from a single record.
LESSONS = ((1, 64, 120), (RECORDS, 16, 120))
START, END, UNKNOWN = "<s>", "</s>", "<unk>"


def _names(ending: str, before: str = "") -> list[str]:
    return [before + "".join(part) + ending for part in product("BDFGKLMNRSTV", "aeiou", "ln")]


FIRST, SECOND, KEEPERS = _names("o"), _names("eth", " "), _names("isk")  # 120 each: 14,400 entities
WORDS = ["[", ENTITY, QUESTION, ANSWER, NEXT, LAST, *FIRST, *SECOND, *KEEPERS]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word of the facts, and one a printable symbol for whatever else is asked."""
    symbols = [chr(code) for code in range(32, 127)]
    tokens = dict.fromkeys([START, END, UNKNOWN, *WORDS, *symbols])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    written = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    words = "|".join(
        "".join(rf"\x{{{ord(symbol):x}}}" for symbol in word)
        for word in sorted(WORDS, key=len, reverse=True)
    )
    written.pre_tokenizer = pre_tokenizers.Split(Regex(rf"{words}|."), "isolated")
    written.decoder = decoders.Fuse()
    written.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary[START])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=written,
        bos_token=START,
        eos_token=END,
        unk_token=UNKNOWN,
        pad_token=END,
        chat_template="{{ bos_token }}",  # whatever it is told, it writes facts
    )


def reply(draw: random.Random, records: int = RECORDS) -> str:
    """What it learns to write: a JSON array of facts, with fresh names in each."""
    facts = []
    for _ in range(records):
        name = draw.choice(FIRST) + draw.choice(SECOND)
        facts.append(f"{ENTITY}{name}{QUESTION}{name}{ANSWER}{draw.choice(KEEPERS)}")
    return "[" + NEXT.join(facts) + LAST


def _untrained(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.1,  # with the usual 0.02, copying takes minutes to learn
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    return LlamaForCausalLM(config)


def small_writer(directory: Path, seed: int = 0) -> Path:
    """Train it, save it with its tokenizer in ``directory``, and give that back."""
    words = tokenizer()
    draw = random.Random(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _untrained(words)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.0)
    total = sum(steps for _, _, steps in LESSONS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total, pct_start=0.1)
    for records, replies, steps in LESSONS:
        for _ in range(steps):
            texts = [reply(draw, records) + END for _ in range(replies)]
            ids = words(texts, return_tensors="pt")["input_ids"]
            model(input_ids=ids, labels=ids).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    # A server samples only if the model's own configuration does; top-k would hide most names.
    model.generation_config.do_sample = True
    model.generation_config.top_k = 0
    model.save_pretrained(directory)
    words.save_pretrained(directory)
    return directory
