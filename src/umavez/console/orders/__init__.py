"""Orders: one decision about many records."""
