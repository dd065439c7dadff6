"""`umavez sequences`."""
