"""What all packages share: configuration, seeding, errors, files, processes and plug-ins."""
