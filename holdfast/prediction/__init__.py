"""What a run will take: memory counted and seconds measured on a step of its shape, and disk."""
