"""The MariaDB store for threads, over PyMySQL. Written by `tools/sync.py` from `_async`; change that."""
