"""The commands of `python -m experiments.paper`."""
