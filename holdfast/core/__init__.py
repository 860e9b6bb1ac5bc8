"""What every room may use: configuration, seeding, errors and files."""
