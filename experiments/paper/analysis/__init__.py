"""The paper's statistics: the factorial and what follows from it, search transfer, ranks."""
