"""One task at the paper's scale on a GPU, phase by phase; see ``benchmarks/gpu_paper_scale.py``."""
