"""Which tables this version of messaging works with."""

PACKAGE = "umavez.messaging"
VERSION = 1
