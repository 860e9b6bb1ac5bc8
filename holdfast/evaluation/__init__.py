"""Recall: greedy answers to a stream's questions, verified in one pass or else decoded."""
