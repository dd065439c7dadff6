"""The laws of the instruments: tokens, leases, numbers, messages, retries, reconciliation."""
