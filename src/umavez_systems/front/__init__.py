"""The pages that belong to no system: the start, the way around, and what the API takes and answers."""
