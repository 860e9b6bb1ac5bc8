"""Holdfast: language models that keep learning, and a measure of what they forget."""
