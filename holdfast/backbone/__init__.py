"""A causal language model as the learner sees it: adapted maps, hidden states, samples."""
