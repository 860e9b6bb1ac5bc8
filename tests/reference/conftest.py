"""A random Qwen3 small enough to train in milliseconds, and a tokenizer of 64 characters."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

# More threads only contend over matrices this small.
torch.set_num_threads(1)


def tiny_qwen3(tied):
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        # Large enough that the random model's distributions are far from uniform.
        initializer_range=0.3,
    )
    return Qwen3ForCausalLM(config).double().eval()


@pytest.fixture
def model():
    return tiny_qwen3(tied=True)


@pytest.fixture
def untied_model():
    return tiny_qwen3(tied=False)


@pytest.fixture
def sequences():
    """Eight ragged sequences that start with the seed token 63 and never hold the pad token 0."""
    generator = torch.Generator().manual_seed(1)
    drawn = []
    for length in [5, 7, 3, 6, 8, 4, 7, 5]:
        body = torch.randint(1, 62, (length,), generator=generator).tolist()
        drawn.append([63, *body])
    return drawn
