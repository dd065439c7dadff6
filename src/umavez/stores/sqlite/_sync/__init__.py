"""The SQLite store inside a transaction, for threads. Written by `tools/sync.py` from `_async`; change that."""
