"""Sequences: numbers per organisation and series, gapless or merely unique.

    with connection.transaction():
        number = Sequences().next_number(connection, "loja", "invoices", key=order_id)

Gapless numbers live in the caller's transaction and are given one at a time; `UniqueNumbers` takes blocks ahead.
"""

from umavez.sequences._async import AsyncSequences, AsyncUniqueNumbers
from umavez.sequences._sync import Sequences, UniqueNumbers
from umavez.sequences.administration import Voided
from umavez.sequences.errors import (
    NumberNotGiven,
    NumbersExhausted,
    NumberVoided,
    RangeExists,
    RangeTaken,
    SeriesUnknown,
)
from umavez.sequences.flows import taking
from umavez.sequences.ranges import Range

__all__ = [
    "AsyncSequences",
    "AsyncUniqueNumbers",
    "NumberNotGiven",
    "NumberVoided",
    "NumbersExhausted",
    "Range",
    "RangeExists",
    "RangeTaken",
    "Sequences",
    "SeriesUnknown",
    "UniqueNumbers",
    "Voided",
    "taking",
]
