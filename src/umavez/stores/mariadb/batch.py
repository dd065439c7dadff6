"""Many swaps in one transaction and one round trip: the statement, and what its answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from umavez.core.flow import Stale, Swap, Swapped
from umavez.core.record import Draft
from umavez.stores.mariadb.events import originating, telling, told
from umavez.stores.mariadb.statements import FENCE, TABLE, Reply, Rows, Statement, Texts
from umavez.stores.rows import KEY, READ, WRITE, key_of, record_of, telling_record_of, values_of

DRAFT = (
    "stamp, status, attempt, lease, keep, fingerprint, process_instance_id, activity_id,"
    " outcome_kept, result_data, error_message, progress, evidence"
)
"""A draft's values in the order of `values_of`, with lease and keep as the durations they still are."""

PUT = (
    "stamp, status, attempt, @umavez_now + lease, @umavez_now + keep, fingerprint, process_instance_id,"
    " activity_id, outcome_kept, result_data, error_message, progress, evidence"
)
ROW = "(X%s, %s, %s, %s" + ", %s" * 13 + ")"
"""A digest, three values (the key's texts, or what a change needs), and a draft."""

SET = ", ".join(f"t.{name} = v.{name}" for name in WRITE.split(", ") if name not in {"lease_until", "expires_at"})


class Batch:
    """Swaps of different keys, ordered by digest so that two batches take their locks in one order."""

    def __init__(self, swaps: Sequence[Swap], texts: Texts) -> None:
        self._swaps = swaps
        ordered = sorted(swaps, key=lambda swap: swap.draft.key.digest)
        self._new = [swap.draft for swap in ordered if swap.expected is None]
        self._changed = [swap for swap in ordered if swap.expected is not None]
        self._now = texts.now
        self._shown = any(draft.origin is not None for draft in self._new)
        """Whether origins are written and shown: plain claims are sent and answered as if there were none."""

    def statement(self) -> Statement:
        """One transaction: lock and change what is to be changed, show what stands, insert the rest."""
        text = [f"BEGIN NOT ATOMIC START TRANSACTION; SET @umavez_now = {self._now}; SELECT @umavez_now;"]
        values: list[Any] = []
        if self._changed:
            self._add_changes(text, values)
        if self._new:
            self._add_claims(text, values)
        text.append(" COMMIT; END")
        return Statement("".join(text), values)

    def _add_changes(self, text: list[str], values: list[Any]) -> None:
        """The locked rows tell which changes apply: nobody else can write them before the commit."""
        digests = [swap.draft.key.digest.hex() for swap in self._changed]
        text.append(
            f" SELECT digest, stamp, fence FROM {TABLE} FORCE INDEX (idx_idempotency_key)"
            f" WHERE digest IN ({_marks(digests)}) ORDER BY digest FOR UPDATE;"
        )
        values += digests
        eventful = [swap for swap in self._changed if swap.draft.event is not None]
        if eventful:
            _add(text, values, telling(eventful))
        self._add_updates(text, values)
        if eventful:
            _add(text, values, told(eventful))
        originated = [swap for swap in self._changed if swap.draft.origin is not None]
        if originated:
            _add(text, values, originating(originated))

    def _add_updates(self, text: list[str], values: list[Any]) -> None:
        rows = ", ".join([ROW] * len(self._changed))
        # STRAIGHT_JOIN: the other way round the planner could scan, and lock, the whole table.
        text.append(
            f" UPDATE (WITH v (digest, expected, claims, fresh, {DRAFT}) AS (VALUES {rows}) SELECT * FROM v) v"
            f" STRAIGHT_JOIN {TABLE} t ON t.digest = v.digest AND t.stamp = v.expected SET {SET},"
            " t.lease_until = @umavez_now + v.lease, t.expires_at = @umavez_now + v.keep, t.updated_at = @umavez_now,"
            " t.created_at = IF(v.fresh, @umavez_now, t.created_at)"
        )
        for swap in self._changed:
            draft = swap.draft
            values += (
                draft.key.digest.hex(),
                swap.expected,
                draft.claims,
                draft.fresh,
                *values_of(draft, draft.lease, draft.keep),
            )
        takers = [swap.draft.key.digest.hex() for swap in self._changed if swap.draft.claims]
        if not takers:
            text.append(";")
            return
        text.append(f", t.fence = IF(v.claims, {FENCE}, t.fence); SELECT digest, fence FROM {TABLE}")
        text.append(f" WHERE digest IN ({_marks(takers)});")
        values += takers

    def _add_claims(self, text: list[str], values: list[Any]) -> None:
        digests = [draft.key.digest.hex() for draft in self._new]
        more = ", origin" if self._shown else ""
        text.append(f" SELECT digest, {READ}{more} FROM {TABLE} WHERE digest IN ({_marks(digests)});")
        values += digests
        rows = [f"{ROW[:-1]}, %s)" if more else ROW] * len(self._new)
        # Rows that stand are left out before the insert, so that a replay neither writes nor uses up a fence.
        text.append(
            f" IF FOUND_ROWS() < {len(rows)} THEN"
            f" INSERT INTO {TABLE} ({KEY}, fence, created_at, updated_at, {WRITE}{more})"
            f" WITH v ({KEY}, {DRAFT}{more}) AS (VALUES {', '.join(rows)})"
            f" SELECT {KEY}, {FENCE}, @umavez_now, @umavez_now, {PUT}{more} FROM v"
            f" WHERE NOT EXISTS (SELECT 1 FROM {TABLE} t WHERE t.digest = v.digest)"
            f" ON DUPLICATE KEY UPDATE stamp = {TABLE}.stamp RETURNING digest, stamp, fence; END IF;"
        )
        for draft in self._new:
            digest, *names = key_of(draft.key)
            values += (digest.hex(), *names, *values_of(draft, draft.lease, draft.keep))
            if more:
                values.append(draft.origin)

    def answers(self, results: Sequence[Rows]) -> list[Reply | None]:
        """One answer for each swap, in the order given; None where a look at the row must follow."""
        now = int(results[0][0][0])
        answers: dict[bytes, Reply | None] = {}
        rest = list(results[1:])
        if self._changed:
            locked = rest.pop(0)
            taken = rest.pop(0) if any(swap.draft.claims for swap in self._changed) else ()
            answers.update(_changes(self._changed, locked, taken, now))
        if self._new:
            answers.update(_claims(self._new, rest[0], rest[1] if len(rest) > 1 else (), now, self._shown))
        return [answers[swap.draft.key.digest] for swap in self._swaps]


def _changes(changed: Iterable[Swap], locked: Rows, taken: Rows, now: int) -> Iterable[tuple[bytes, Reply | None]]:
    stood = {row[0]: row for row in locked}
    fences = {row[0]: row[1] for row in taken}
    for swap in changed:
        digest = swap.draft.key.digest
        row = stood.get(digest)
        if row is None:
            yield digest, Stale(None, now)
        elif row[1] != swap.expected:
            yield digest, None
        else:
            yield digest, Swapped(fences[digest] if swap.draft.claims else row[2], now)


def _claims(
    new: Iterable[Draft], standing: Rows, inserted: Rows, now: int, shown: bool
) -> Iterable[tuple[bytes, Reply | None]]:
    read = telling_record_of if shown else record_of
    stood = {row[0]: row[1:] for row in standing}
    written = {row[0]: row for row in inserted}
    for draft in new:
        digest = draft.key.digest
        row = written.get(digest)
        if row is not None and row[1] == draft.stamp:
            yield digest, Swapped(row[2], now)
        elif digest in stood:
            yield digest, Stale(read(draft.key, stood[digest]), now)
        else:
            yield digest, None


def _add(text: list[str], values: list[Any], statement: Statement) -> None:
    text.append(statement.text)
    values += statement.values


def _marks(values: Sequence[Any]) -> str:
    return ", ".join(["X%s"] * len(values))
