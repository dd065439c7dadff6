"""`umavez doctor`: what is set up unsafely, for each kind of store."""
