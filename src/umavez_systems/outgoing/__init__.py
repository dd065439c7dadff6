"""Calls to others: within bounds of time and size, whatever is answered, and told by how far a request came."""
