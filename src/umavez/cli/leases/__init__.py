"""`umavez leases`."""
