"""The MariaDB store for tasks, over asyncmy: the source of `_sync`, which `tools/sync.py` writes."""
