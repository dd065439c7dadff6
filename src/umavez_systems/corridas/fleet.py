"""The fleet: communities and drivers in the database, and this process's index of them.

The index answers in microseconds and may be a moment old; a driver is given away by the database alone, and
when the index knows of nobody the database is asked before the passenger is told so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import cos, radians
from threading import Lock
from typing import NamedTuple

from umavez import StoreUnavailable
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.domain import invalid, refusal
from umavez_systems.corridas.fences import Fence, Fences
from umavez_systems.corridas.geojson import Community
from umavez_systems.corridas.matching import Driver, Matching, kilometres
from umavez_systems.database import Connection, Database, Row
from umavez_systems.problems import Problem

OVERLAP_MS = 10_000
"""Changes are read again for so long: a transaction that began earlier may commit later."""
LOOK = 200


class Most(NamedTuple):
    """How much all communities together may be: every process keeps them in memory."""

    communities: int = 5_000
    corners: int = 250_000


MOST = Most()


class Fleet:
    """Communities, drivers and the index of both."""

    def __init__(
        self, database: Database, refresh_seconds: float, most: Most = MOST, reach_km: float | None = None
    ) -> None:
        self.dialect = tables.Dialect(database)
        self.index = Matching()
        self._database = database
        self._pause = refresh_seconds
        self._lock = Lock()
        self._next = 0.0
        self._seen_ms = 0
        self._most = most
        self._reach_km = reach_km
        self._version: tuple[int, int] | None = None
        self._known: dict[str, tuple[int, Fence]] = {}

    def refresh(self, *, now: bool = False) -> None:
        """Learn what other processes changed, if the last look is old enough, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        # Whoever finds another looking goes on with what is known, unless nothing is, or it must be of this instant.
        must = now or self._version is None or not self._pause
        if not self._lock.acquire(timeout=self._database.timeout if must else 0.0):
            if must:
                raise StoreUnavailable("Another look at the fleet has not ended; try again.")
            return
        try:
            # Whoever waited here for another's look has no need of its own.
            if not now and time.monotonic() < self._next:
                return
            with self._database.statements() as connection:
                self._refresh(connection)
            self._next = time.monotonic() + self._pause
        finally:
            self._lock.release()

    def _refresh(self, connection: Connection) -> None:
        row = connection.rows(tables.COMMUNITIES_VERSION)[0]
        version = (row["many"], int(row["total"]))
        if version != self._version:
            self._learn_fences(connection)
            self._version = version
        rows = connection.rows(tables.CHANGED_DRIVERS, (max(0, self._seen_ms - OVERLAP_MS),))
        self.index.put_all(map(tables.driver_of, rows))
        self._seen_ms = max((row["changed_ms"] for row in rows), default=self._seen_ms)

    def _learn_fences(self, connection: Connection) -> None:
        """Read the communities that changed, and only those."""
        changes = {row["id"]: row["changed_ms"] for row in connection.rows(tables.COMMUNITY_CHANGES)}
        known = {name: kept for name, kept in self._known.items() if kept[0] == changes.get(name)}
        for row in tables.changed_communities(connection, [name for name in changes if name not in known]):
            known[row["id"]] = (row["changed_ms"], tables.fence_of(row))
        self.index.fence(Fences(fence for _, fence in known.values()))
        self._known = known

    def reaches(self, driver: Driver, lat: float, lng: float) -> bool:
        """Whether a driver is near enough to be sent to a place outside its fence."""
        return self._reach_km is None or kilometres(driver.lat, driver.lng, lat, lng) <= self._reach_km

    def give(
        self,
        connection: Connection,
        ride_id: str,
        fence: Fence | None,
        lat: float,
        lng: float,
        *,
        but: frozenset[str] = frozenset(),
        patient: bool = True,
    ) -> Row | None:
        """Give the nearest free driver to a ride, in the caller's transaction; None when nobody is free.

        With `fence`, only a driver that stands inside it and serves its community; without, one who is near enough.
        Nobody of `but` is asked. Who is not `patient` passes over drivers that somebody holds at this instant.
        """

        def suits(driver: Driver) -> bool:
            return self.reaches(driver, lat, lng) if fence is None else serves(driver, fence)

        passed: dict[str, None] = dict.fromkeys(but)
        for driver in self._candidates(connection, fence, lat, lng):
            if driver.id not in passed and suits(driver):
                passed[driver.id] = None
                if given := self._given(connection, driver.id, suits, ride_id, wait=False):
                    return given
        if not patient:
            return None
        # Some may only have been held by a rival, or by a move: nobody is told "nobody" before they are let go. In one
        # order for everybody, so that two who wait never wait for each other.
        for name in sorted(passed.keys() - but):
            if given := self._given(connection, name, suits, ride_id, wait=True):
                return given
        return None

    def _given(
        self, connection: Connection, name: str, suits: Callable[[Driver], bool], ride_id: str, *, wait: bool
    ) -> Row | None:
        """Hold a driver, look at it again, and give it away; None when it is not free here."""
        row = connection.row(self.dialect.await_driver if wait else self.dialect.hold_driver, (name,))
        if row is None:
            if wait:
                self.index.engage(name, free=False)
            return None
        if not suits(tables.driver_of(row)):
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
            yield tables.driver_of(row)

    def put_communities(self, communities: list[Community]) -> None:
        """Keep communities, new or changed, all or none. Raises a 422 problem when there would be too much of them."""
        self._refuse_too_much(len(communities), sum(community.corners for community in communities))
        with self._database.transaction() as connection:
            if self.dialect.lock_communities:
                connection.rows(self.dialect.lock_communities)
            self._refuse_too_many(connection, communities)
            for community in communities:
                tables.put_community(connection, self.dialect, community)
            size = connection.rows(tables.COMMUNITIES_SIZE)[0]
            self._refuse_too_much(size["many"], int(size["corners"]))
        self.refresh(now=True)

    def _refuse_too_many(self, connection: Connection, communities: list[Community]) -> None:
        """Raise a 422 problem before anything is written, where the new ones alone would be too many."""
        known = {row["id"] for row in connection.rows(tables.COMMUNITY_IDS)}
        new = [community for community in communities if community.id not in known]
        if len(known) + len(new) > self._most.communities:
            corners = int(connection.rows(tables.COMMUNITIES_SIZE)[0]["corners"])
            self._refuse_too_much(len(known) + len(new), corners + sum(community.corners for community in new))

    def _refuse_too_much(self, communities: int, corners: int) -> None:
        if communities > self._most.communities or corners > self._most.corners:
            detail = (
                f"Todas as cercas juntas teriam {communities} comunidades e {corners} vértices; o limite é de"
                f" {self._most.communities} comunidades e {self._most.corners} vértices. Nada foi gravado: simplifique"
                " as cercas ou apague as que não usa."
            )
            raise refusal(422, "cercas-demais", "Cercas demais", detail, error="too_many_fences")

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

    def set_available(self, number: str, available: bool) -> Row:
        """Let a driver be given rides, or no more; the ride it is on stays. Raises a 404 problem."""
        with self._database.statements() as connection:
            row = connection.row(self.dialect.set_available, (available, number))
        if row is None:
            raise unknown("motorista", number)
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


def serves(driver: Driver, fence: Fence) -> bool:
    """Whether a driver stands inside the fence and serves its community."""
    return driver.community in (None, fence.id) and fence.covers(driver.lng, driver.lat)


def unknown(what: str, number: str) -> Problem:
    """The 404 of an unknown id."""
    return refusal(404, f"{what}-inexistente", "Não encontrado", f"Não há {what} {number}.", error="not_found")
