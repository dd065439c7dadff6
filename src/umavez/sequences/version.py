"""Which tables this version of sequences works with."""

PACKAGE = "umavez.sequences"
NAME = "sequences"
VERSION = 1
"""To be raised with every change of the schema: tables at this version are not touched again."""
