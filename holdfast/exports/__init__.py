"""Export a learned model for other programs: a complete model or an adapter, with a card."""
