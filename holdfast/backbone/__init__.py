"""The causal language model that a run trains: adapted maps, hidden states, generation."""
