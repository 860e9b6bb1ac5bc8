"""Predict a run's memory, counted on fake tensors, its seconds, measured, and its disk space."""
