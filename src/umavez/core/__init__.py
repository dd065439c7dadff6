"""The decisions of umavez, without I/O: no clock, no randomness, no store."""
