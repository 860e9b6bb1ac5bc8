"""The forward and the backward pass over last hidden states."""
