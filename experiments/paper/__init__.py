"""The paper's study: its streams, statistics and tables, and the comparison with its results.

`python -m experiments.paper --help` in a clone of the repository. The package never imports it.
"""
