"""TISS, the standard by which Brazilian hospitals and payers talk: its tables and its messages."""
