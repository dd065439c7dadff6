"""Dispatch: offers that drivers decline or let pass, and waiting rides that find a driver who comes free.

A ride with a driver that is not accepted yet is an offer. When it ends, the driver is free again, is not asked for this
ride a second time, and the next one is; a ride for which nobody is left waits until somebody comes.
"""

from __future__ import annotations

from typing import Any

from umavez import Once
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.domain import FENCED, Ride, conflict, refusal
from umavez_systems.corridas.fences import Fence
from umavez_systems.corridas.fleet import Fleet, serves, unknown
from umavez_systems.corridas.matching import Driver, kilometres
from umavez_systems.database import Connection, Database, Row

ACTIVITY = "corridas"
PAGE = 100
"""Waiting rides and ended offers that are looked at together."""


class Dispatch:
    """The use cases between a ride's creation and its acceptance, each in one transaction."""

    def __init__(
        self, once: Once, database: Database, fleet: Fleet, *, keep: float, geofence: bool, offer_seconds: float
    ) -> None:
        self._once = once
        self._database = database
        self._fleet = fleet
        self._keep = keep
        self._geofence = geofence
        self._offer_ms = int(offer_seconds * 1000)

    def begin(self, connection: Connection, ride_id: str) -> None:
        """Start the time in which the ride's driver may accept; without a limit it never ends."""
        if self._offer_ms:
            connection.rows(self._fleet.dialect.begin_offer, (self._offer_ms, ride_id))

    def decline(self, principal: str, ride_id: str, driver: str, reason: str | None) -> tuple[Ride, bool]:
        """Hand an offer back; the next driver gets it. Doing so again changes nothing."""
        self._fleet.refresh()
        with (
            self._database.transaction() as connection,
            self._once.joined(
                connection.raw,
                "recusar_corrida",
                key=f"{ride_id}:{driver}",
                scope=principal,
                activity=ACTIVITY,
                keep=self._keep,
                wait=self._database.timeout,
            ) as attempt,
        ):
            before = _ride(connection, principal, ride_id)
            if attempt.replayed:
                return before, True
            if before.driver != driver:
                raise refusal(403, "nao-autorizado", "Não autorizado", "Esta corrida não é sua.", error="not_owned")
            if connection.row(tables.END_OFFER, (ride_id, driver)) is None:
                detail = f"A corrida está {before.status.value}; só uma oferta ainda não aceita pode ser recusada."
                raise conflict("transicao-invalida", detail, ride_status=before.status.value)
            freed = self._handed_back(connection, ride_id, driver, "declined", reason)
            ride = self._offered(connection, _ride(connection, principal, ride_id))
            attempt.succeed({"rideId": ride_id})
        self._learn(ride, freed)
        return ride, False

    def end_offers(self) -> int:
        """Take every offer whose time is over from its driver, and give it to the next; returns how many."""
        ended = 0
        with self._database.statements() as connection:
            rows = connection.rows(self._fleet.dialect.ended_offers)
        if rows:
            self._fleet.refresh()
        for row in rows:
            with self._database.transaction() as connection:
                # Only while it is still the offer that ended: it may have been accepted meanwhile.
                if connection.row(self._fleet.dialect.end_late_offer, (row["id"], row["driver_id"])) is None:
                    continue
                freed = self._handed_back(connection, row["id"], row["driver_id"], "timeout", None)
                ride = self._offered(connection, _ride(connection, row["principal"], row["id"]))
            self._learn(ride, freed)
            ended += 1
        return ended

    def _handed_back(
        self, connection: Connection, ride_id: str, driver: str, why: str, reason: str | None
    ) -> Row | None:
        connection.rows(tables.INSERT_DECLINE, (ride_id, driver, why))
        said = why if reason is None else f"{why}: {reason}"
        connection.rows(tables.INSERT_HISTORY, (ride_id, "requested", "requested", f"driver:{driver}", said))
        return connection.row(self._fleet.dialect.free_driver, (ride_id,))

    def match(self) -> int:
        """Give waiting rides, the oldest first, to drivers who are free; returns how many found one."""
        self._fleet.refresh()
        matched, after = 0, ""
        while True:
            with self._database.statements() as connection:
                rows = connection.rows(tables.WAITING, (after, PAGE))
            for ride in map(tables.ride_of, rows):
                if self._somebody(ride):
                    matched += self._matched(ride)
            if len(rows) < PAGE:
                return matched
            after = rows[-1]["id"]

    def match_driver(self, driver: Driver) -> None:
        """Give a driver who came free the oldest waiting ride that it can serve, if there is one."""
        if not driver.free:
            return
        with self._database.statements() as connection:
            rows = connection.rows(tables.WAITING, ("", PAGE))
        for ride in map(tables.ride_of, rows):
            if self._suits(driver, ride) and self._matched(ride):
                return

    def waiting_for(self, principal: str, driver_id: str, limit: int) -> list[dict[str, Any]]:
        """The waiting rides that a driver may accept, the nearest first, with their distance."""
        self._fleet.refresh()
        row = self._fleet.driver(driver_id)
        driver = tables.driver_of(row)
        with self._database.statements() as connection:
            rows = connection.rows(tables.WAITING_OF, (principal, driver_id))
        rides = [ride for ride in map(tables.ride_of, rows) if self._suits(driver, ride)]
        found = [(kilometres(driver.lat, driver.lng, ride.wish.lat, ride.wish.lng), ride) for ride in rides]
        found.sort(key=lambda pair: pair[0])
        return [{**ride.shown(), "distanceKm": round(distance, 3)} for distance, ride in found[:limit]]

    def _matched(self, ride: Ride) -> bool:
        with self._database.transaction() as connection:
            if connection.row(self._fleet.dialect.hold_waiting, (ride.id,)) is None:
                return False
            offered = self._offered(connection, ride)
        self._learn(offered, None)
        return offered.driver is not None

    def _offered(self, connection: Connection, ride: Ride) -> Ride:
        """The ride with its next driver, or as it is. Nobody is waited for: who holds a driver may want this ride."""
        fence = self._fence(ride)
        if fence is None and self._bound(ride):
            return ride
        declined = frozenset(row["driver_id"] for row in connection.rows(tables.DECLINED, (ride.id,)))
        place = (ride.wish.lat, ride.wish.lng)
        driver = self._fleet.give(connection, ride.id, fence, *place, but=declined, patient=False)
        if driver is None:
            return ride
        row = connection.rows(tables.TAKE_WAITING, (driver["id"], ride.id))[0]
        self.begin(connection, ride.id)
        return tables.ride_of(row)

    def _bound(self, ride: Ride) -> bool:
        """Whether the ride's driver must stand inside its fence: its passenger has agreed to nobody from outside."""
        return ride.wish.kind == FENCED and self._geofence and not ride.out_of_fence and ride.community is not None

    def _fence(self, ride: Ride) -> Fence | None:
        """The fence of a ride that is bound to one; None also where its community is gone: then nobody may serve."""
        return self._fleet.index.fences.by_id.get(ride.community or "") if self._bound(ride) else None

    def outside(self, driver: Driver, ride: Ride) -> bool:
        """Whether a driver may not take a ride that is bound to a fence."""
        fence = self._fence(ride)
        return self._bound(ride) and (fence is None or not serves(driver, fence))

    def _suits(self, driver: Driver, ride: Ride) -> bool:
        if self._bound(ride):
            return not self.outside(driver, ride)
        return self._fleet.reaches(driver, ride.wish.lat, ride.wish.lng)

    def _somebody(self, ride: Ride) -> bool:
        """Whether this process knows of anybody to ask: a look that costs the database nothing."""
        fence, index = self._fence(ride), self._fleet.index
        place = (ride.wish.lat, ride.wish.lng)
        found = index.anywhere(*place) if fence is None else index.inside(fence, *place)
        return any(self._suits(driver, ride) for driver in found)

    def _learn(self, ride: Ride, freed: Row | None) -> None:
        if freed is not None:
            self._fleet.index.put(tables.driver_of(freed))
        if ride.driver is not None:
            self._fleet.index.engage(ride.driver, free=False)


def _ride(connection: Connection, principal: str, ride_id: str) -> Ride:
    row = connection.row(tables.RIDE, (ride_id, principal))
    if row is None:
        raise unknown("corrida", ride_id)
    return tables.ride_of(row)
