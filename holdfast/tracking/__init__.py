"""A run in an experiment tracker: what a run tells while it learns, sent by its own client."""
