"""The fleet: communities and drivers in the database, and this process's index of them.

The index answers in microseconds and may be a moment old; a driver is given away by the database alone, and
when the index knows of nobody the database is asked before the passenger is told so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import cos, radians
from threading import Lock

from umavez_systems.corridas import database as tables
from umavez_systems.corridas.domain import invalid, refusal
from umavez_systems.corridas.fences import Fence, Fences
from umavez_systems.corridas.geojson import Community
from umavez_systems.corridas.matching import Driver, Matching
from umavez_systems.database import Connection, Database, Row
from umavez_systems.problems import Problem

OVERLAP_MS = 10_000
"""Changes are read again for so long: a transaction that began earlier may commit later."""
LOOK = 200


class Fleet:
    """Communities, drivers and the index of both."""

    def __init__(self, database: Database, refresh_seconds: float) -> None:
        self.dialect = tables.Dialect(database)
        self.index = Matching()
        self._database = database
        self._pause = refresh_seconds
        self._lock = Lock()
        self._next = 0.0
        self._seen_ms = 0
        self._version: tuple[int, int] | None = None

    def refresh(self, *, now: bool = False) -> None:
        """Learn what other processes changed, if the last look is old enough, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        with self._lock:
            # Whoever waited here for another's look has no need of its own.
            if not now and time.monotonic() < self._next:
                return
            with self._database.statements() as connection:
                self._refresh(connection)
            self._next = time.monotonic() + self._pause

    def _refresh(self, connection: Connection) -> None:
        row = connection.rows(tables.COMMUNITIES_VERSION)[0]
        version = (row["many"], int(row["total"]))
        if version != self._version:
            self.index.fence(Fences(map(tables.fence_of, connection.rows(tables.COMMUNITIES))))
            self._version = version
        rows = connection.rows(tables.CHANGED_DRIVERS, (max(0, self._seen_ms - OVERLAP_MS),))
        self.index.put_all(map(tables.driver_of, rows))
        self._seen_ms = max((row["changed_ms"] for row in rows), default=self._seen_ms)

    def give(self, connection: Connection, ride_id: str, fence: Fence | None, lat: float, lng: float) -> Row | None:
        """Give the nearest free driver to a ride, in the caller's transaction; None when nobody is free.

        With `fence`, only a driver that stands inside it and serves its community.
        """
        passed: dict[str, None] = {}
        for driver in self._candidates(connection, fence, lat, lng):
            if driver.id not in passed:
                passed[driver.id] = None
                if given := self._given(connection, driver.id, fence, ride_id, wait=False):
                    return given
        # Some may only have been held by a rival, or by a move: nobody is told "nobody" before they are let go. In one
        # order for everybody, so that two who wait never wait for each other.
        for name in sorted(passed):
            if given := self._given(connection, name, fence, ride_id, wait=True):
                return given
        return None

    def _given(self, connection: Connection, name: str, fence: Fence | None, ride_id: str, *, wait: bool) -> Row | None:
        """Hold a driver, look at it again, and give it away; None when it is not free here."""
        row = connection.row(self.dialect.await_driver if wait else self.dialect.hold_driver, (name,))
        if row is None:
            if wait:
                self.index.engage(name, free=False)
            return None
        if fence is not None and not _serves(tables.driver_of(row), fence):
            self.index.put(tables.driver_of(row))
            return None
        return connection.row(self.dialect.give_driver, (ride_id, name))

    def _candidates(self, connection: Connection, fence: Fence | None, lat: float, lng: float) -> Iterator[Driver]:
        index = self.index
        yield from index.anywhere(lat, lng) if fence is None else index.inside(fence, lat, lng)
        west, south, east, north = (-180.0, -90.0, 180.0, 90.0) if fence is None else fence.box
        scale = cos(radians(lat)) ** 2
        values = (south, north, west, east, lat, lat, lng, lng, scale, LOOK)
        for row in connection.rows(tables.FREE_IN_BOX, values):
            driver = tables.driver_of(row)
            if fence is None or _serves(driver, fence):
                yield driver

    def put_communities(self, communities: list[Community]) -> None:
        """Keep communities, new or changed, all or none."""
        with self._database.transaction() as connection:
            for community in communities:
                tables.put_community(connection, self.dialect, community)
        self.refresh(now=True)

    def remove_community(self, number: str) -> None:
        """Forget a community. Raises a 404 problem."""
        with self._database.statements() as connection:
            if connection.row(tables.DELETE_COMMUNITY, (number,)) is None:
                raise unknown("comunidade", number)
        self.refresh(now=True)

    def communities(self) -> list[Row]:
        """Every community's row."""
        with self._database.statements() as connection:
            return connection.rows(tables.COMMUNITIES)

    def put_driver(self, number: str, name: str, community: str | None, lat: float, lng: float, available: bool) -> Row:
        """Keep a driver, new or changed; the ride it is on stays."""
        self.refresh()
        if community is not None and community not in self.index.fences.by_id:
            raise invalid(f"communityId: não há comunidade {community}.")
        with self._database.statements() as connection:
            row = connection.rows(self.dialect.put_driver, (number, name, community, lat, lng, available))[0]
        self.index.put(tables.driver_of(row))
        return row

    def move(self, positions: list[tuple[str, float, float]]) -> list[str]:
        """Keep new positions, all in one transaction; returns the ids that are not known."""
        moved: list[Row] = []
        lost: list[str] = []
        with self._database.transaction() as connection:
            # In one order for everybody: two batches with the same drivers would else wait for each other.
            for number, lat, lng in sorted(positions):
                row = connection.row(self.dialect.move_driver, (lat, lng, number))
                lost.append(number) if row is None else moved.append(row)
        self.index.put_all(map(tables.driver_of, moved))
        return lost

    def driver(self, number: str) -> Row:
        """One driver's row. Raises a 404 problem."""
        with self._database.statements() as connection:
            row = connection.row(tables.DRIVER, (number,))
        if row is None:
            raise unknown("motorista", number)
        return row

    def drivers(self, after: str, limit: int) -> list[Row]:
        """A page of drivers, by id."""
        with self._database.statements() as connection:
            return connection.rows(tables.DRIVERS, (after, limit))


def _serves(driver: Driver, fence: Fence) -> bool:
    return driver.community in (None, fence.id) and fence.covers(driver.lng, driver.lat)


def unknown(what: str, number: str) -> Problem:
    """The 404 of an unknown id."""
    return refusal(404, f"{what}-inexistente", "Não encontrado", f"Não há {what} {number}.", error="not_found")
