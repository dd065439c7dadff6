"""The tables of rides: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import json
from decimal import Decimal

from umavez_systems.corridas.domain import Ride, Status, Wish, shown_instant
from umavez_systems.corridas.fences import Fence, rings_of
from umavez_systems.corridas.geojson import Community
from umavez_systems.corridas.matching import Driver
from umavez_systems.database import Connection, Database, Row

_RIDE = (
    "id, principal, passenger_id, type, status, out_of_fence, community_id, driver_id, passenger_lat, passenger_lng,"
    " origin, destination, price, created_at, updated_at"
)
_DRIVER = "id, name, community_id, lat, lng, available, ride_id"
FREE = "available AND ride_id IS NULL"

RIDE = f"SELECT {_RIDE} FROM rides WHERE id = ? AND principal = ?"
RIDES = f"SELECT {_RIDE} FROM rides WHERE principal = ? AND passenger_id = ? ORDER BY id DESC LIMIT ?"
INSERT_RIDE = (
    f"INSERT INTO rides ({_RIDE}) VALUES (?, ?, ?, ?, 'requested', ?, ?, ?, ?, ?, ?, ?, ?, CURRENT_TIMESTAMP,"
    f" CURRENT_TIMESTAMP) RETURNING {_RIDE}"
)
# The status stands in the WHERE: the database decides, not what was read before.
CHANGE_RIDE = (
    "UPDATE rides SET status = ?, driver_id = ?, updated_at = CURRENT_TIMESTAMP WHERE id = ? AND status = ?"
    f" RETURNING {_RIDE}"
)
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
DELETE_COMMUNITY = "DELETE FROM communities WHERE id = ? RETURNING id"

INSERT_CONFIRMATION = (
    "INSERT INTO ride_confirmations (id, passenger_id, confirmation_token, ride_data, expires_at)"
    " VALUES (?, ?, ?, ?, ?)"
)
# An insert that also updates: the sweep may have removed the row in the instant in which its token was redeemed.
USE_CONFIRMATION = (
    "INSERT INTO ride_confirmations (id, passenger_id, confirmation_token, ride_data, expires_at, is_used, used_at,"
    " created_ride_id) VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP, true, CURRENT_TIMESTAMP, ?)"
    " ON CONFLICT (confirmation_token) DO UPDATE SET is_used = true, used_at = CURRENT_TIMESTAMP,"
    " created_ride_id = excluded.created_ride_id"
)
DELETE_CONFIRMATION = "DELETE FROM ride_confirmations WHERE confirmation_token = ? AND NOT is_used"
DELETE_EXPIRED_OF = (
    "DELETE FROM ride_confirmations WHERE passenger_id = ? AND NOT is_used AND expires_at <= CURRENT_TIMESTAMP"
)
DELETE_EXPIRED = "DELETE FROM ride_confirmations WHERE NOT is_used AND expires_at <= CURRENT_TIMESTAMP RETURNING id"
DELETE_OLD = "DELETE FROM ride_confirmations WHERE is_used AND used_at <= ? RETURNING id"
INSERT_AUDIT = (
    "INSERT INTO ride_confirmation_audit (operation, principal, passenger_id, token_digest, ride_id)"
    " VALUES (?, ?, ?, ?, ?)"
)
AUDIT = (
    "SELECT id, operation, passenger_id, token_digest, ride_id, created_at FROM ride_confirmation_audit"
    " WHERE principal = ? AND passenger_id = ? ORDER BY id DESC LIMIT ?"
)
OUTCOMES = "SELECT operation, count(*) AS many FROM ride_confirmation_audit GROUP BY operation ORDER BY operation"


class Dialect:
    """The statements that differ: the clock of the database, and how a driver is held while it is looked at."""

    def __init__(self, database: Database) -> None:
        sqlite = database.url.startswith("sqlite")
        now = (
            "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
            if sqlite
            else "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
        )
        self.now = f"SELECT {now} AS now"
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
        self.put_community = (
            f"INSERT INTO communities (id, name, priority, geometry, changed_ms) VALUES (?, ?, ?, ?, {now})"
            " ON CONFLICT (id) DO UPDATE SET name = excluded.name, priority = excluded.priority,"
            " geometry = excluded.geometry, changed_ms = excluded.changed_ms"
        )


def ride_of(row: Row) -> Ride:
    """The ride in `row`; SQLite keeps the price as exact text."""
    price = row["price"]
    wish = Wish(
        row["passenger_id"],
        row["type"],
        row["passenger_lat"],
        row["passenger_lng"],
        row["origin"],
        row["destination"],
        None if price is None else Decimal(price),
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


def put_community(connection: Connection, dialect: Dialect, community: Community) -> None:
    """Keep a community, new or changed."""
    values = (community.id, community.name, community.priority, json.dumps(community.geometry))
    connection.rows(dialect.put_community, values)


def insert_ride(
    connection: Connection,
    ride_id: str,
    principal: str,
    wish: Wish,
    outside: bool,
    place: tuple[str | None, str | None],
) -> Ride:
    """Keep a new ride; `place` is its community and its driver."""
    values = (
        ride_id,
        principal,
        wish.passenger,
        wish.kind,
        outside,
        *place,
        wish.lat,
        wish.lng,
        wish.origin,
        wish.destination,
        None if wish.price is None else str(wish.price),
    )
    return ride_of(connection.rows(INSERT_RIDE, values)[0])
