"""Measure what a memory recalls, what it leaves unchanged, and what it costs."""
