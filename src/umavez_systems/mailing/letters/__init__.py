"""Letters: what people get to read."""
