"""What a run will take, from shapes and settings alone: memory by phase, time, disk."""
