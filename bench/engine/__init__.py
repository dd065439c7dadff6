"""The engine against the limits of its stores and against its peers, as ratios in one run."""
