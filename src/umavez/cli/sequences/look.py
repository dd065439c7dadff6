"""What stands in the tables of sequences; see `umavez.sequences.standing`."""

from umavez.sequences.standing import Piece, Standing, count_from, last_below, standings

__all__ = ["Piece", "Standing", "count_from", "last_below", "standings"]
