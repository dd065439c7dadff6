"""The use cases of rides. With `confirmations.py` and `dispatch.py` the only files here that call the engine.

A passenger has one ride under way at most: a second request, and a confirmation of a token that is left over, are
refused with the name of that ride, whoever of two is faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from umavez import Once
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.confirmations import Confirmations
from umavez_systems.corridas.dispatch import Dispatch
from umavez_systems.corridas.domain import (
    CONFIRMED,
    CREATED,
    FENCED,
    REPEATED,
    STEPS,
    Answer,
    Ride,
    Status,
    Step,
    Wish,
    conflict,
    new_id,
    refusal,
)
from umavez_systems.corridas.fleet import MOST, Fleet, Most, unknown
from umavez_systems.database import Connection, Database, Row
from umavez_systems.problems import Problem

ACTIVITY = "corridas"
TURNS = 3
"""How often a request looks again when a rival with the same key confirmed meanwhile."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say: seconds to confirm, seconds to remember, whether fences are looked at, and how many.

    `reach_km`: from how far outside the fence a driver may come; `offer_seconds`: how long one has to accept; 0: ever.
    """

    ttl: float
    keep: float
    geofence: bool
    most: Most = MOST
    reach_km: float | None = None
    offer_seconds: float = 0.0


class _NobodyInside(Exception):
    """No driver is free inside the fence: what was begun is undone, and a token is offered."""


class Corridas:
    """Every use case, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, rules: Rules, refresh_seconds: float = 1.0) -> None:
        self.fleet = Fleet(database, refresh_seconds, rules.most, rules.reach_km)
        self.dispatch = Dispatch(
            once,
            database,
            self.fleet,
            keep=rules.keep,
            geofence=rules.geofence,
            offer_seconds=rules.offer_seconds,
        )
        self.confirmations = Confirmations(once, database, rules.ttl, rules.keep, self._created_outside)
        self._once = once
        self._database = database
        self._rules = rules

    def request(self, principal: str, key: str | None, wish: Wish, ride_data: str) -> Answer:
        """A ride with a driver from inside the fence, or a token to confirm one from outside.

        The same key again gives the ride that it has become, or else a token that takes the place of its first.
        """
        self.fleet.refresh()
        for _ in range(TURNS):
            try:
                return self._requested(principal, key, wish)
            except _NobodyInside:
                offered = self.confirmations.offer(principal, key, wish, ride_data)
            if offered is not None:
                return offered
        busy = conflict("pedido-em-andamento", "O mesmo pedido está em andamento; tente de novo em instantes.")
        raise busy.retryable_after(1.0)

    def _requested(self, principal: str, key: str | None, wish: Wish) -> Answer:
        superseded = None
        with self._database.transaction() as connection:
            if key is None:
                ride, replayed = self._created(connection, principal, wish, outside=False), False
            else:
                ride, replayed = self._first(connection, principal, key, wish)
                superseded = None if replayed else self.confirmations.supersede(connection, principal, key)
        if superseded is not None:
            self.confirmations.told(superseded)
        self._gave(ride)
        message = REPEATED if replayed and ride.out_of_fence else CREATED
        return Answer(200 if replayed else 201, {"success": True, "ride": ride.shown(), "message": message}, replayed)

    def _first(self, connection: Connection, principal: str, key: str, wish: Wish) -> tuple[Ride, bool]:
        """The key's ride, and whether it was there before: made by the key itself, or by the token it was offered."""
        with self._once.joined(
            connection.raw,
            "solicitar_corrida",
            key=key,
            scope=principal,
            fingerprint=wish.payload(),
            activity=ACTIVITY,
            keep=self._rules.keep,
            wait=self._database.timeout,
        ) as attempt:
            if attempt.replayed:
                return self._ride(connection, principal, attempt.outcome["rideId"]), True
            confirmed = self.confirmations.ride_of_key(connection, principal, key, wish)
            if confirmed is None:
                ride = self._created(connection, principal, wish, outside=False)
            else:
                ride = self._ride(connection, principal, confirmed)
            attempt.succeed({"rideId": ride.id})
        return ride, confirmed is not None

    def _created_outside(self, connection: Connection, principal: str, wish: Wish) -> Ride:
        return self._created(connection, principal, wish, outside=True)

    def _created(self, connection: Connection, principal: str, wish: Wish, *, outside: bool) -> Ride:
        """A new ride with its driver. Inside the fence somebody must be free; outside the ride may wait."""
        self._refuse_second(connection, principal, wish.passenger)
        fence = self.fleet.index.fences.first(wish.lat, wish.lng)
        fenced = wish.kind == FENCED and self._rules.geofence and not outside
        if fenced and fence is None:
            raise _NobodyInside
        ride_id = new_id()
        driver = self.fleet.give(connection, ride_id, fence if fenced else None, wish.lat, wish.lng)
        if driver is None and not outside:
            raise _NobodyInside
        place = (None if fence is None else fence.id, None if driver is None else driver["id"])
        ride = tables.insert_ride(connection, self.fleet.dialect, (ride_id, principal), wish, outside, place)
        if ride is None:
            # A rival of the same passenger was faster; the driver is given back with the transaction.
            self._refuse_second(connection, principal, wish.passenger)
            ended = conflict("corrida-ativa", "Outra corrida deste passageiro acabou agora; tente de novo.")
            raise ended.retryable_after(1.0)
        connection.rows(tables.INSERT_HISTORY, (ride_id, None, "requested", f"passenger:{wish.passenger}", None))
        if driver is not None:
            self.dispatch.begin(connection, ride_id)
        return ride

    def _refuse_second(self, connection: Connection, principal: str, passenger: str) -> None:
        """Raise a 409 problem that names the ride which the passenger has under way."""
        row = connection.row(tables.ACTIVE_RIDE, (principal, passenger))
        if row is not None:
            detail = f"O passageiro já tem a corrida {row['id']} ({row['status']}); termine ou cancele essa antes."
            raise conflict("corrida-ativa", detail, rideId=row["id"], rideStatus=row["status"])

    def confirm(self, principal: str, passenger: str, token: str) -> Answer:
        """The ride that the token stands for: created now, or created before."""
        self.fleet.refresh()
        ride_id, ride = self.confirmations.redeem(principal, passenger, token)
        if ride is None:
            return Answer(200, {"success": True, "rideId": ride_id, "message": REPEATED}, True)
        self._gave(ride)
        return Answer(201, {"success": True, "ride": ride.shown(), "message": CONFIRMED})

    def step(
        self, principal: str, ride_id: str, name: str, driver: str | None, passenger: str | None, reason: str | None
    ) -> tuple[Ride, bool]:
        """Take a ride one step further, once; the same step by the same person again gives the ride as it is now."""
        step, freed = STEPS[name], None
        self.fleet.refresh()
        with (
            self._database.transaction() as connection,
            self._once.joined(
                connection.raw,
                step.operation,
                key=ride_id,
                scope=principal,
                activity=ACTIVITY,
                keep=self._rules.keep,
                wait=self._database.timeout,
            ) as attempt,
        ):
            # Read after the engine let us in: a rival who was before us may have taken the ride.
            before = self._ride(connection, principal, ride_id)
            _refuse_strangers(before, name, driver, passenger)
            if attempt.replayed:
                return before, True
            ride = self._stepped(connection, step, before, driver)
            who = f"driver:{driver}" if driver is not None else f"passenger:{passenger}"
            connection.rows(tables.INSERT_HISTORY, (ride_id, before.status.value, ride.status.value, who, reason))
            freed = connection.row(self.fleet.dialect.free_driver, (ride_id,)) if step.frees else None
            attempt.succeed({"rideId": ride_id, "status": ride.status.value})
        self._gave(ride)
        if freed is not None:
            self.fleet.index.put(tables.driver_of(freed))
            self.dispatch.match_driver(tables.driver_of(freed))
        return ride, False

    def put_driver(self, number: str, name: str, community: str | None, lat: float, lng: float, available: bool) -> Row:
        """Keep a driver, new or changed; who comes free gets the ride that waits longest."""
        row = self.fleet.put_driver(number, name, community, lat, lng, available)
        self.dispatch.match_driver(tables.driver_of(row))
        return self.fleet.driver(number)

    def set_available(self, driver: str, available: bool) -> Row:
        """Let a driver be given rides, or no more; who comes free gets the ride that waits longest."""
        row = self.fleet.set_available(driver, available)
        self.dispatch.match_driver(tables.driver_of(row))
        return self.fleet.driver(driver)

    def beat(self) -> int:
        """End the offers whose time is over and match waiting rides; returns how many rides were touched."""
        return self.dispatch.end_offers() + self.dispatch.match()

    def _stepped(self, connection: Connection, step: Step, before: Ride, driver: str | None) -> Ride:
        if before.status not in step.start:
            raise _not_now(before, step)
        given = before.driver
        if step.target is Status.ACCEPTED and given is None:
            # Nobody was free when it was created: whoever accepts takes it, if nobody has taken them.
            taken = connection.row(self.fleet.dialect.give_driver, (before.id, driver))
            if taken is None:
                raise conflict("motorista-ocupado", "O motorista não existe, está indisponível ou em outra corrida.")
            if self.dispatch.outside(tables.driver_of(taken), before):
                raise conflict("motorista-fora-da-cerca", "O passageiro só aceitou um motorista da sua comunidade.")
            given = driver
        row = connection.row(
            tables.CHANGE_RIDE, (step.target.value, given, before.id, before.status.value, before.driver or "")
        )
        if row is None:
            # Changed between the look and the update, by somebody who committed meanwhile.
            raise _not_now(self._ride(connection, before.principal, before.id), step)
        return tables.ride_of(row)

    def ride(self, principal: str, ride_id: str) -> tuple[Ride, list[Row]]:
        """One ride and its history. Raises a 404 problem."""
        with self._database.statements() as connection:
            return self._ride(connection, principal, ride_id), connection.rows(tables.HISTORY, (ride_id,))

    def rides(self, principal: str, passenger: str, limit: int) -> list[Ride]:
        """A passenger's rides, the newest first."""
        with self._database.statements() as connection:
            return [tables.ride_of(row) for row in connection.rows(tables.RIDES, (principal, passenger, limit))]

    def sweep(self) -> int:
        """Remove the confirmations whose time is over; returns how many."""
        return self.confirmations.sweep()

    def _ride(self, connection: Connection, principal: str, ride_id: str) -> Ride:
        row = connection.row(tables.RIDE, (ride_id, principal))
        if row is None:
            raise unknown("corrida", ride_id)
        return tables.ride_of(row)

    def _gave(self, ride: Ride) -> None:
        if ride.driver is not None:
            self.fleet.index.engage(ride.driver, free=False)


def _refuse_strangers(ride: Ride, name: str, driver: str | None, passenger: str | None) -> None:
    """Only the ride's driver takes it further; its passenger may cancel too."""
    if driver is not None and ride.driver in (driver, None) and (ride.driver == driver or name == "accept"):
        return
    if name == "cancel" and passenger is not None and passenger == ride.wish.passenger:
        return
    raise refusal(403, "nao-autorizado", "Não autorizado", "Esta corrida não é sua.", error="not_owned")


def _not_now(ride: Ride, step: Step) -> Problem:
    detail = f"A corrida está {ride.status.value} e não pode passar a {step.target.value}."
    return conflict("transicao-invalida", detail, ride_status=ride.status.value)
