"""The engine and its instruments for threads, written by `tools/sync.py` from `_async`. Do not edit."""
