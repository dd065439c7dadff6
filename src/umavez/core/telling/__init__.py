"""What people are told of a record: the events it leaves, its history, and where it stands."""
