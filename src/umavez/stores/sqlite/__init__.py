"""The SQLite store: the standard library's driver, one writing connection per process."""
