"""The page at /fiscal: documents, one document's proof, numbers, deadlines, and faults to press."""
