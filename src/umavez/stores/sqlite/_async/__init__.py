"""The SQLite store inside a transaction, for tasks: the source of `_sync`, which `tools/sync.py` writes."""
