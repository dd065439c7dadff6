"""The page: instances, the drawing of one with where it stands, what has to be decided."""
