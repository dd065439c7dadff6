"""The tables of rides: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

from umavez_systems.corridas.domain import Ride, Status, Wish
from umavez_systems.corridas.fences import Fence, rings_of
from umavez_systems.corridas.geojson import Community
from umavez_systems.corridas.matching import Driver
from umavez_systems.database import Connection, Database, Row, shown_instant

_RIDE = (
    "id, principal, passenger_id, type, status, out_of_fence, community_id, driver_id, passenger_lat, passenger_lng,"
    " origin, destination, price_cents, created_at, updated_at"
)
_DRIVER = "id, name, community_id, lat, lng, available, ride_id"
FREE = "available AND ride_id IS NULL"
SOME = 500
"""Rows that one transaction of a clean-up takes."""

RIDE = f"SELECT {_RIDE} FROM rides WHERE id = ? AND principal = ?"
RIDES = f"SELECT {_RIDE} FROM rides WHERE principal = ? AND passenger_id = ? ORDER BY id DESC LIMIT ?"
_ACTIVE = "sole AND status IN ('requested', 'accepted', 'started')"
ACTIVE_RIDE = f"SELECT {_RIDE} FROM rides WHERE principal = ? AND passenger_id = ? AND {_ACTIVE}"
# The status stands in the WHERE: the database decides, not what was read before.
CHANGE_RIDE = (
    "UPDATE rides SET status = ?, driver_id = ?, offer_ends_ms = NULL, updated_at = CURRENT_TIMESTAMP"
    f" WHERE id = ? AND status = ? AND coalesce(driver_id, '') = ? RETURNING {_RIDE}"
)
_WAITING = "status = 'requested' AND driver_id IS NULL"
WAITING = f"SELECT {_RIDE} FROM rides WHERE {_WAITING} AND id > ? ORDER BY id LIMIT ?"
WAITING_OF = (
    f"SELECT {_RIDE} FROM rides WHERE {_WAITING} AND principal = ? AND id NOT IN"
    " (SELECT ride_id FROM ride_declines WHERE driver_id = ?) ORDER BY id LIMIT 1000"
)
TAKE_WAITING = (
    f"UPDATE rides SET driver_id = ?, updated_at = CURRENT_TIMESTAMP WHERE id = ? AND {_WAITING} RETURNING {_RIDE}"
)
END_OFFER = (
    "UPDATE rides SET driver_id = NULL, offer_ends_ms = NULL, updated_at = CURRENT_TIMESTAMP"
    " WHERE id = ? AND driver_id = ? AND status = 'requested' RETURNING id"
)
INSERT_DECLINE = "INSERT INTO ride_declines (ride_id, driver_id, why) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
DECLINED = "SELECT driver_id FROM ride_declines WHERE ride_id = ?"
INSERT_HISTORY = "INSERT INTO ride_history (ride_id, from_status, to_status, actor, reason) VALUES (?, ?, ?, ?, ?)"
HISTORY = "SELECT from_status, to_status, actor, reason, created_at FROM ride_history WHERE ride_id = ? ORDER BY id"

DRIVER = f"SELECT {_DRIVER} FROM drivers WHERE id = ?"
DRIVERS = f"SELECT {_DRIVER} FROM drivers WHERE id > ? ORDER BY id LIMIT ?"
CHANGED_DRIVERS = f"SELECT {_DRIVER}, changed_ms FROM drivers WHERE changed_ms >= ?"
FREE_IN_BOX = (
    f"SELECT {_DRIVER} FROM drivers WHERE {FREE} AND lat BETWEEN ? AND ? AND lng BETWEEN ? AND ?"
    " ORDER BY (lat - ?) * (lat - ?) + (lng - ?) * (lng - ?) * ? LIMIT ?"
)
COMMUNITIES = "SELECT id, name, priority, geometry FROM communities ORDER BY id"
# The sum, not the largest: a transaction that began earlier may commit later.
COMMUNITIES_VERSION = "SELECT count(*) AS many, coalesce(sum(changed_ms), 0) AS total FROM communities"
COMMUNITY_CHANGES = "SELECT id, changed_ms FROM communities"
AT_ONCE = 100
SOME_COMMUNITIES = (
    f"SELECT id, name, priority, geometry, changed_ms FROM communities WHERE id IN ({', '.join('?' * AT_ONCE)})"
)
# Two commas for each corner: one inside its position and one before the next thing. See `geojson`, which writes
# nothing else into the column.
COMMUNITIES_SIZE = (
    "SELECT count(*) AS many, coalesce(sum(length(geometry) - length(replace(geometry, ',', ''))), 0) / 2 AS corners"
    " FROM communities"
)
COMMUNITY_IDS = "SELECT id FROM communities"
DELETE_COMMUNITY = "DELETE FROM communities WHERE id = ? RETURNING id"

CONFIRMATION = "SELECT superseded FROM ride_confirmations WHERE confirmation_token = ?"
INSERT_CONFIRMATION = (
    "INSERT INTO ride_confirmations (id, principal, passenger_id, confirmation_token, ride_data, expires_at,"
    " request_key, request_mark) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (principal, request_key) DO NOTHING"
    " RETURNING id"
)
# The key is taken from the row: the next token of the same key has it, and this one confirms nothing any more.
SUPERSEDE = (
    "UPDATE ride_confirmations SET superseded = true, request_key = NULL"
    " WHERE principal = ? AND request_key = ? AND NOT is_used RETURNING passenger_id, confirmation_token"
)
USE_CONFIRMATION = (
    "UPDATE ride_confirmations SET is_used = true, used_at = CURRENT_TIMESTAMP, created_ride_id = ?"
    " WHERE confirmation_token = ?"
)
DELETE_CONFIRMATION = "DELETE FROM ride_confirmations WHERE confirmation_token = ? AND NOT is_used RETURNING superseded"
_EXPIRED = "NOT is_used AND expires_at <= CURRENT_TIMESTAMP"
_GONE = "principal, passenger_id, confirmation_token, superseded"
DELETE_EXPIRED_OF = (
    f"DELETE FROM ride_confirmations WHERE principal = ? AND passenger_id = ? AND {_EXPIRED} RETURNING {_GONE}"
)
INSERT_AUDIT = (
    "INSERT INTO ride_confirmation_audit (operation, principal, passenger_id, token_digest, ride_id)"
    " VALUES (?, ?, ?, ?, ?)"
)
AUDIT = (
    "SELECT id, operation, passenger_id, token_digest, ride_id, created_at FROM ride_confirmation_audit"
    " WHERE principal = ? AND passenger_id = ? ORDER BY id DESC LIMIT ?"
)
# What a row stands for now; the token itself is stored nowhere.
_STATE = (
    "CASE WHEN is_used THEN 'used' WHEN superseded THEN 'superseded'"
    " WHEN expires_at <= CURRENT_TIMESTAMP THEN 'expired' ELSE 'unused' END"
)
CONFIRMATIONS = (
    "SELECT * FROM (SELECT id, passenger_id, confirmation_token AS token_digest, created_ride_id AS ride_id,"
    f" created_at, expires_at, used_at, {_STATE} AS state FROM ride_confirmations WHERE principal = ?) AS shown"
    " WHERE id > ? AND (CAST(? AS TEXT) IS NULL OR passenger_id = ?) AND (CAST(? AS TEXT) IS NULL OR state = ?)"
    " ORDER BY id LIMIT ?"
)
OUTCOMES = "SELECT operation, count(*) AS many FROM ride_confirmation_audit GROUP BY operation ORDER BY operation"


class Dialect:
    """The statements that differ: the clock of the database, how a driver is held while it is looked at, and prices."""

    def __init__(self, database: Database) -> None:
        sqlite = database.url.startswith("sqlite")
        now = (
            "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
            if sqlite
            else "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
        )
        self.now = f"SELECT {now} AS now"
        self._of_drivers(now, sqlite=sqlite)
        self._of_rides(now, sqlite=sqlite)
        self._of_confirmations(sqlite=sqlite)
        # Who adds communities does so alone: what all of them add up to is looked at before it is committed.
        self.lock_communities = None if sqlite else "LOCK TABLE communities IN SHARE ROW EXCLUSIVE MODE"
        self.put_community = (
            f"INSERT INTO communities (id, name, priority, geometry, changed_ms) VALUES (?, ?, ?, ?, {now})"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, priority = excluded.priority,"
            " geometry = excluded.geometry, changed_ms = excluded.changed_ms"
        )

    def _of_drivers(self, now: str, *, sqlite: bool) -> None:
        # First a driver that a rival holds at this instant is passed over; only when nobody else is there is he waited
        # for. On SQLite there is no rival: the transaction is the only one that writes.
        hold = f"SELECT {_DRIVER} FROM drivers WHERE id = ? AND {FREE}"
        self.hold_driver = hold if sqlite else f"{hold} FOR UPDATE SKIP LOCKED"
        self.await_driver = hold if sqlite else f"{hold} FOR UPDATE"
        self.give_driver = (
            f"UPDATE drivers SET ride_id = ?, changed_ms = {now} WHERE id = ? AND {FREE} RETURNING {_DRIVER}"
        )
        self.free_driver = (
            f"UPDATE drivers SET ride_id = NULL, changed_ms = {now} WHERE ride_id = ? RETURNING {_DRIVER}"
        )
        self.move_driver = f"UPDATE drivers SET lat = ?, lng = ?, changed_ms = {now} WHERE id = ? RETURNING {_DRIVER}"
        self.put_driver = (
            "INSERT INTO drivers (id, name, community_id, lat, lng, available, changed_ms)"
            f" VALUES (?, ?, ?, ?, ?, ?, {now}) ON CONFLICT (id) DO UPDATE SET name = excluded.name,"
            " community_id = excluded.community_id, lat = excluded.lat, lng = excluded.lng,"
            f" available = excluded.available, changed_ms = excluded.changed_ms RETURNING {_DRIVER}"
        )
        self.set_available = f"UPDATE drivers SET available = ?, changed_ms = {now} WHERE id = ? RETURNING {_DRIVER}"

    def _of_rides(self, now: str, *, sqlite: bool) -> None:
        # SQLite counts cents and PostgreSQL keeps its DECIMAL(10,2); each makes the other column of its own.
        price, cents = ("price_cents", "?") if sqlite else ("price", "CAST(? AS NUMERIC) / 100")
        # No row when the passenger has a ride that is under way: the index decides, not what was read before.
        self.insert_ride = (
            f"INSERT INTO rides ({_RIDE.replace('price_cents', price)}) VALUES (?, ?, ?, ?, 'requested', ?, ?, ?, ?, ?,"
            f" ?, ?, {cents}, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP) ON CONFLICT (principal, passenger_id)"
            f" WHERE {_ACTIVE} DO NOTHING RETURNING {_RIDE}"
        )
        self.begin_offer = f"UPDATE rides SET offer_ends_ms = {now} + ? WHERE id = ?"
        late = f"status = 'requested' AND offer_ends_ms <= {now}"
        self.ended_offers = (
            f"SELECT id, principal, driver_id FROM rides WHERE {late} AND driver_id IS NOT NULL"
            f" ORDER BY id LIMIT {SOME}"
        )
        self.end_late_offer = END_OFFER.replace("status = 'requested'", late)
        hold_waiting = f"SELECT id FROM rides WHERE id = ? AND {_WAITING}"
        self.hold_waiting = hold_waiting if sqlite else f"{hold_waiting} FOR UPDATE SKIP LOCKED"

    def _of_confirmations(self, *, sqlite: bool) -> None:
        lock = "" if sqlite else " FOR UPDATE"
        # As text: a driver that reads JSON by itself would make floats of its numbers.
        self.lock_confirmation = (
            "SELECT passenger_id, superseded, CAST(ride_data AS TEXT) AS ride_data FROM ride_confirmations"
            f" WHERE confirmation_token = ?{lock}"
        )
        self.lock_key = (
            "SELECT is_used, created_ride_id, request_mark FROM ride_confirmations WHERE principal = ?"
            f" AND request_key = ? AND (is_used OR expires_at > CURRENT_TIMESTAMP){lock}"
        )
        # Some at a time; two who sweep at once take different ones.
        some = f"ORDER BY id LIMIT {SOME}{'' if sqlite else ' FOR UPDATE SKIP LOCKED'}"
        expired = f"SELECT id FROM ride_confirmations WHERE {_EXPIRED} {some}"
        self.delete_expired = f"DELETE FROM ride_confirmations WHERE id IN ({expired}) AND {_EXPIRED} RETURNING {_GONE}"
        old = f"SELECT id FROM ride_confirmations WHERE is_used AND used_at <= ? {some}"
        self.delete_old = f"DELETE FROM ride_confirmations WHERE id IN ({old}) RETURNING id"


def ride_of(row: Row) -> Ride:
    """The ride in `row`; its price is counted in cents on both databases."""
    cents = row["price_cents"]
    wish = Wish(
        row["passenger_id"],
        row["type"],
        row["passenger_lat"],
        row["passenger_lng"],
        row["origin"],
        row["destination"],
        None if cents is None else Decimal(cents).scaleb(-2),
    )
    return Ride(
        row["id"],
        wish,
        Status(row["status"]),
        bool(row["out_of_fence"]),
        row["community_id"],
        row["driver_id"],
        row["principal"],
        shown_instant(row["created_at"]),
        shown_instant(row["updated_at"]),
    )


def driver_of(row: Row) -> Driver:
    """The driver in `row`, as matching knows it."""
    free = bool(row["available"]) and row["ride_id"] is None
    return Driver(row["id"], row["lat"], row["lng"], free, row["community_id"])


def shown_driver(row: Row) -> dict[str, object]:
    """The body of an answer about a driver."""
    return {
        "id": row["id"],
        "name": row["name"],
        "communityId": row["community_id"],
        "lat": row["lat"],
        "lng": row["lng"],
        "available": bool(row["available"]),
        "rideId": row["ride_id"],
    }


def fence_of(row: Row) -> Fence:
    """The fence in a community's row."""
    return Fence(row["id"], row["name"], row["priority"], rings_of(json.loads(row["geometry"])))


def changed_communities(connection: Connection, names: list[str]) -> Iterator[Row]:
    """The rows of these communities, read a few at a time: all their texts at once might be large."""
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        yield from connection.rows(SOME_COMMUNITIES, some + some[-1:] * (AT_ONCE - len(some)))


def put_community(connection: Connection, dialect: Dialect, community: Community) -> None:
    """Keep a community, new or changed."""
    values = (community.id, community.name, community.priority, json.dumps(community.geometry))
    connection.rows(dialect.put_community, values)


def insert_ride(
    connection: Connection,
    dialect: Dialect,
    name: tuple[str, str],
    wish: Wish,
    outside: bool,
    place: tuple[str | None, str | None],
) -> Ride | None:
    """Keep a new ride; `name` is its id and its principal, `place` its community and its driver.

    None when the passenger has one under way.
    """
    values = (
        *name,
        wish.passenger,
        wish.kind,
        outside,
        *place,
        wish.lat,
        wish.lng,
        wish.origin,
        wish.destination,
        None if wish.price is None else int(wish.price.scaleb(2)),
    )
    row = connection.row(dialect.insert_ride, values)
    return None if row is None else ride_of(row)
