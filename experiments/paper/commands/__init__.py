"""The verbs of `python -m experiments.paper`."""
