"""The Redis store for tasks: the source of `_sync`, which `tools/sync.py` writes."""
