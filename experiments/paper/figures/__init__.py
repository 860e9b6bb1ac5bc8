"""The paper's figures of compositions, of the path through the factorial, and of a search."""
