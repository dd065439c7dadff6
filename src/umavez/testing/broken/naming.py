"""Stores that err in what tells one claim or one key from another: fences and the text of keys."""

from __future__ import annotations

from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Draft, Millis
from umavez.stores.memory import MemoryStore
from umavez.testing.broken.writing import Reply


class ForgetsTheFenceAtSweep(MemoryStore):
    """Keeps the fence in the record only, so that it dies with it."""

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Forget the highest fence with the records."""
        swept = super().sweep(limit, older_than)
        self._fence = max((record.fence for record in self._records.values()), default=0)
        return swept


class KeepsTheFenceOnTakeover(MemoryStore):
    """Gives a fence at insert and never again."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Treat a takeover like a renewal."""
        return super().swap(expected, draft if expected is None else draft._replace(claims=False))


class RaisesTheFenceAlways(MemoryStore):
    """Gives a new fence with every write, so that an owner's own fence grows old while it runs."""

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Treat a renewal like a takeover."""
        return super().swap(expected, draft._replace(claims=True))


class Renaming(MemoryStore):
    """Compares keys by another text than the one given; what follows derive from it."""

    def named(self, text: str) -> str:
        """The text as this store compares it."""
        return text

    def _key(self, key: Key) -> Key:
        return Key(key.scope, key.operation, self.named(key.value))

    def read(self, key: Key) -> Seen:
        """Read by the other text."""
        return super().read(self._key(key))

    def swap(self, expected: str | None, draft: Draft) -> Reply:
        """Swap by the other text."""
        return super().swap(expected, draft._replace(key=self._key(draft.key)))


class IgnoresCase(Renaming):
    """Compares as MariaDB does by default."""

    def named(self, text: str) -> str:
        """Without case."""
        return text.lower()


class StripsBlanks(Renaming):
    """Compares as a CHAR column does."""

    def named(self, text: str) -> str:
        """Without blanks at the end."""
        return text.rstrip(" ") or text


class CutsLongKeys(Renaming):
    """Compares what fits into the column."""

    def named(self, text: str) -> str:
        """The first 191 characters."""
        return text[:191]


class JoinsKeyParts(Renaming):
    """Makes one text of the three parts without marking where each ends."""

    def _key(self, key: Key) -> Key:
        return Key("all", "all", f"{key.scope}{key.operation}{key.value}"[-255:])
