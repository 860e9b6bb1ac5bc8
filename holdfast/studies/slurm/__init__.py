"""Cells as jobs of a Slurm cluster, which submitit submits."""
