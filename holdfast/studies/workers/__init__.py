"""Processes that advance one cell after another."""
