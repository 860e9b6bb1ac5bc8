"""Shared by all packages: configuration, seeding, errors and files."""
