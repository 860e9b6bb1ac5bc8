"""Studies: many trajectories with one question."""
