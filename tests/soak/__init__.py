"""Long tests of what survives: kills, damage, links, moves and full disks. `make soak`."""
