"""`umavez tokens`."""
