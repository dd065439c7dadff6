"""Fiscal documents, each emitted once whatever the network does (seed 004)."""
