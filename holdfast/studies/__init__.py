"""Studies: searches and suites, which compare many trajectories."""
