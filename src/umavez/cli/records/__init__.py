"""`umavez records`: look at keys and decide about the doubtful ones."""
