"""The endpoint of a memory for other programs, and its page for a browser."""
