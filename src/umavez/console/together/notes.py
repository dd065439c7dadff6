"""Notes: who looks after a record in doubt, and until when it is set aside, and why.

A note is a record beside its audit, and all of them share a process instance: every store finds the newest by an index.
Setting aside holds for the record as it was seen; another attempt brings it back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.console.books import Books
from umavez.console.decisions import SCOPE, Deed
from umavez.console.orders.choosing import mark_of
from umavez.core.encoding.codec import JsonCodec
from umavez.core.record import Instant, Query, Record

OPERATION, INSTANCE = "console.note", "umavez.console notes"
KEEP = 30 * 86_400.0
MOST = 500
"""Notes that are looked at, the newest: older ones of a busy month are not seen any more."""
ASIDE = {"1": 3_600_000, "4": 4 * 3_600_000, "24": 86_400_000, "72": 3 * 86_400_000}
"""Hours that a record may be set aside for, in milliseconds."""
LONGEST_NAME = 60
_JSON = JsonCodec()


class Note(NamedTuple):
    """`to`: who looks after it, '' for nobody. `until`: set aside until then; 0 for not at all."""

    by: str
    to: str
    until: Instant
    reason: str
    mark: str

    def hides(self, record: Record, now: Instant) -> bool:
        """Whether the record is set aside now, and is the one that was seen."""
        return self.until > now and self.mark == mark_of(record).hex()


def keep(books: Books, deed: Deed, connection: Any, note: Note) -> str:
    """Write a note down, in the transaction of its audit where there is one; says what came of it."""
    about: dict[str, Any] = {"scope": SCOPE, "process_instance": INSTANCE, "keep": KEEP, "codec": _JSON}
    value = {"digest": deed.subject, **note._asdict()}
    if connection is None:
        books.engine.run(OPERATION, key=deed.form, call=lambda: value, unknown="rerun", **about)
    else:
        with books.engine.joined(connection, OPERATION, key=deed.form, **about) as attempt:
            if not attempt.replayed:
                attempt.succeed(value)
    return "set aside" if note.until else "assigned"


def notes(books: Books) -> dict[str, Note]:
    """The newest note about each record, by its digest."""
    query = Query(SCOPE, OPERATION, None, INSTANCE, newest_first=True, limit=MOST)
    found: dict[str, Note] = {}
    for record in books.engine.store.find(query):
        if record.settled is not None and record.settled.body is not None:
            kept = _JSON.decode(record.settled.body, record.key)
            digest = kept.pop("digest")
            found.setdefault(digest, Note(**kept))
    return found
