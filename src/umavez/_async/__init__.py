"""The engine and its instruments for tasks. This is the source; `tools/sync.py` writes `_sync` from it."""
