"""Worker processes, each of which advances one cell after another."""
