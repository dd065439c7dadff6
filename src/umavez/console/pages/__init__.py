"""Pages that only look: the overview, the inbox of what is unknown, the search, and one key."""
