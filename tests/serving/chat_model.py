"""A tiny chat model with random weights, whose tokens are printable symbols."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["</s>", "<user>", "</user>", "<reply>"]
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "<user>{{ message['content'] }}</user>"
    "{% else %}<reply>{{ message['content'] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<reply>{% endif %}"
)


def symbol_tokenizer() -> PreTrainedTokenizerFast:
    """One token a printable symbol, and four special ones."""
    symbols = [*SPECIAL, *(chr(code) for code in range(32, 127)), "\n"]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    written = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    written.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    written.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=written,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        additional_special_tokens=SPECIAL[1:],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def write_chat_model(directory: Path, seed: int = 0) -> Path:
    """Save it with its tokenizer in ``directory``, and give that back."""
    tokenizer = symbol_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
