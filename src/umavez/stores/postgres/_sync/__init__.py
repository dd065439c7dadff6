"""The PostgreSQL store for threads. Written by `tools/sync.py` from `_async`; change that."""
