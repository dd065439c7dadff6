"""Which tables this version of messaging works with."""

PACKAGE = "umavez.messaging"
NAME = "messaging"
VERSION = 3
"""To be raised with every change of the schema: tables at this version are not touched again."""
