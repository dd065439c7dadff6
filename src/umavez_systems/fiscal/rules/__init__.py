"""Rules of fiscal documents without I/O: identifiers, codes, decisions, deadlines, proof."""
