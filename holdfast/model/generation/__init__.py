"""Sampling and greedy decoding, one token a row at each step."""
