"""A learned model for programs without Holdfast: a complete model, an adapter, a card."""
