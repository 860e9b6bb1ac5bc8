"""What the engine costs, beside the plain reference recipe and beside what the arithmetic allows.

`python -m benchmarks` measures everything; `python -m benchmarks.NAME` one thing.
"""
