"""The paper's statistics, such as the factorial, ranks and search transfer."""
