"""Learning a stream: the objective, the boundary between tasks, trajectories on disk."""
