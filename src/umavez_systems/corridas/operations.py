"""The use cases of rides: the only file of the system that calls the engine.

A token is redeemed inside the transaction that creates its ride, gives it a driver, and marks its row in
ride_confirmations: all of it is committed, or none. The engine judges the token, by the database's time, and
whose it is before anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from umavez import Once, OperationInProgress
from umavez.tokens import TokenCancelled, TokenError, TokenExpired, TokenNotYours, Tokens, TokenUsed, TokenView
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.domain import (
    CONFIRMED,
    CREATED,
    FENCED,
    NEEDS_CONFIRMATION,
    REPEATED,
    STEPS,
    Ride,
    Status,
    Step,
    Wish,
    iso,
    moment,
    new_id,
    refusal,
)
from umavez_systems.corridas.fleet import Fleet, unknown
from umavez_systems.database import Connection, Database, Row
from umavez_systems.principals import scoped_key
from umavez_systems.problems import Problem

ACTIVITY = "corridas"
PURPOSE = "confirmar_corrida"
Told = Callable[[str], None]
"""Hears the digest of a token whose state changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered: status and body, and whether it was answered before."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say: seconds to confirm, seconds to remember, and whether fences are looked at."""

    ttl: float
    keep: float
    geofence: bool


class _NobodyInside(Exception):
    """No driver is free inside the fence: what was begun is undone, and a token is offered."""


class Corridas:
    """Every use case, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, rules: Rules, refresh_seconds: float = 1.0) -> None:
        self.fleet = Fleet(database, refresh_seconds)
        self.told: Told = lambda _digest: None
        self._once = once
        self._database = database
        self._rules = rules
        self._tokens = Tokens(once, PURPOSE, ttl=rules.ttl, keep=rules.keep, unknown="rerun")

    def request(self, principal: str, key: str | None, wish: Wish, ride_data: str) -> Answer:
        """A ride with a driver from inside the fence, or a token to confirm one from outside."""
        self.fleet.refresh()
        try:
            with self._database.transaction() as connection:
                ride, replayed = self._first(connection, principal, key, wish)
        except _NobodyInside:
            return self._offer(principal, wish, ride_data)
        self._gave(ride)
        return Answer(200 if replayed else 201, {"success": True, "ride": ride.shown(), "message": CREATED}, replayed)

    def _first(self, connection: Connection, principal: str, key: str | None, wish: Wish) -> tuple[Ride, bool]:
        if key is None:
            return self._created(connection, principal, wish, outside=False), False
        with self._once.joined(
            connection.raw,
            "solicitar_corrida",
            key=key,
            scope=principal,
            fingerprint=wish.payload(),
            activity=ACTIVITY,
            keep=self._rules.keep,
        ) as attempt:
            if attempt.replayed:
                return self._ride(connection, principal, attempt.outcome["rideId"]), True
            ride = self._created(connection, principal, wish, outside=False)
            attempt.succeed({"rideId": ride.id})
        return ride, False

    def _created(self, connection: Connection, principal: str, wish: Wish, *, outside: bool) -> Ride:
        """A new ride with its driver. Inside the fence somebody must be free; outside the ride may wait."""
        fence = self.fleet.index.fences.first(wish.lat, wish.lng)
        fenced = wish.kind == FENCED and self._rules.geofence and not outside
        if fenced and fence is None:
            raise _NobodyInside
        ride_id = new_id()
        driver = self.fleet.give(connection, ride_id, fence if fenced else None, wish.lat, wish.lng)
        if driver is None and not outside:
            raise _NobodyInside
        place = (None if fence is None else fence.id, None if driver is None else driver["id"])
        ride = tables.insert_ride(connection, ride_id, principal, wish, outside, place)
        connection.rows(tables.INSERT_HISTORY, (ride_id, None, "requested", f"passenger:{wish.passenger}", None))
        return ride

    def _offer(self, principal: str, wish: Wish, ride_data: str) -> Answer:
        """A token for this wish. It is handed out only after its row is there."""
        issued = self._tokens.issue(scoped_key(principal, wish.passenger), wish.payload())
        digest = digest_of(issued.token)
        with self._database.transaction() as connection:
            connection.rows(tables.DELETE_EXPIRED_OF, (wish.passenger,))
            values = (new_id(), wish.passenger, digest, ride_data, moment(issued.expires_at))
            connection.rows(tables.INSERT_CONFIRMATION, values)
            connection.rows(tables.INSERT_AUDIT, ("issued", principal, wish.passenger, digest, None))
        minutes = self._rules.ttl / 60
        return Answer(
            202,
            {
                "success": False,
                "requiresConfirmation": True,
                "confirmationToken": issued.token,
                "expiresAt": iso(issued.expires_at),
                "ttlMinutes": int(minutes) if minutes == int(minutes) else round(minutes, 2),
                "message": NEEDS_CONFIRMATION,
            },
        )

    def confirm(self, principal: str, passenger: str, token: str) -> Answer:
        """The ride that the token stands for: created now, or created before."""
        self.fleet.refresh()
        try:
            with self._database.transaction() as connection:
                ride_id, ride = self._redeemed(connection, principal, passenger, token)
        except (TokenError, OperationInProgress) as error:
            raise self._refused(principal, passenger, token, error) from None
        if ride is None:
            return Answer(200, {"success": True, "rideId": ride_id, "message": REPEATED}, True)
        self._gave(ride)
        self.told(digest_of(token))
        return Answer(201, {"success": True, "ride": ride.shown(), "message": CONFIRMED})

    def _redeemed(self, connection: Connection, principal: str, passenger: str, token: str) -> tuple[str, Ride | None]:
        """The ride's id, and the ride when this very call created it."""
        digest = digest_of(token)
        with self._tokens.redeeming(connection.raw, token, scoped_key(principal, passenger)) as attempt:
            if attempt.replayed:
                ride_id: str = attempt.outcome["rideId"]
                connection.rows(tables.INSERT_AUDIT, ("replayed", principal, passenger, digest, ride_id))
                return ride_id, None
            wish = Wish.of(attempt.progress)
            ride = self._created(connection, principal, wish, outside=True)
            connection.rows(tables.USE_CONFIRMATION, (new_id(), passenger, digest, "{}", ride.id))
            connection.rows(tables.INSERT_AUDIT, ("confirmed", principal, passenger, digest, ride.id))
            attempt.succeed({"rideId": ride.id})
        return ride.id, ride

    def cancel_token(self, principal: str, passenger: str, token: str) -> None:
        """Close an unused token. Raises the token's problem; cancelling twice is no error."""
        try:
            cancelled = self._tokens.cancel(token, scoped_key(principal, passenger), by=principal)
        except (TokenError, OperationInProgress) as error:
            raise self._refused(principal, passenger, token, error) from None
        digest = digest_of(token)
        with self._database.transaction() as connection:
            connection.rows(tables.DELETE_CONFIRMATION, (digest,))
            if cancelled:
                connection.rows(tables.INSERT_AUDIT, ("cancelled", principal, passenger, digest, None))
        self.told(digest)

    def look(self, principal: str, passenger: str, token: str) -> TokenView:
        """Where a token stands; changes nothing. Raises the token's problem."""
        try:
            return self._tokens.status(token, scoped_key(principal, passenger))
        except TokenError as error:
            raise token_problem(error) from None

    def _refused(self, principal: str, passenger: str, token: str, error: TokenError | OperationInProgress) -> Problem:
        problem = token_problem(error)
        with self._database.statements() as connection:
            operation = problem.extra["error"].removeprefix("token_")
            connection.rows(tables.INSERT_AUDIT, (operation, principal, passenger, digest_of(token), None))
        return problem

    def step(
        self, principal: str, ride_id: str, name: str, driver: str | None, passenger: str | None, reason: str | None
    ) -> tuple[Ride, bool]:
        """Take a ride one step further, once; the same step by the same person again gives the ride as it is now."""
        step, freed = STEPS[name], None
        with (
            self._database.transaction() as connection,
            self._once.joined(
                connection.raw, step.operation, key=ride_id, scope=principal, activity=ACTIVITY, keep=self._rules.keep
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
        return ride, False

    def _stepped(self, connection: Connection, step: Step, before: Ride, driver: str | None) -> Ride:
        if before.status not in step.start:
            raise _not_now(before, step)
        given = before.driver
        if step.target is Status.ACCEPTED and given is None:
            # Nobody was free when it was created: whoever accepts takes it, if nobody has taken them.
            if connection.row(self.fleet.dialect.give_driver, (before.id, driver)) is None:
                raise _conflict("motorista-ocupado", "O motorista não existe, está indisponível ou em outra corrida.")
            given = driver
        row = connection.row(tables.CHANGE_RIDE, (step.target.value, given, before.id, before.status.value))
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

    def audit(self, principal: str, passenger: str, limit: int) -> list[Row]:
        """Every confirmation operation of a passenger, the newest first; tokens by digest."""
        with self._database.statements() as connection:
            return connection.rows(tables.AUDIT, (principal, passenger, limit))

    def outcomes(self) -> dict[str, int]:
        """How often each thing happened to a token, over all processes."""
        with self._database.statements() as connection:
            return {row["operation"]: row["many"] for row in connection.rows(tables.OUTCOMES)}

    def sweep(self) -> int:
        """Remove every expired confirmation, and used ones that nobody can ask for any more; returns how many."""
        for view in self._tokens.expire():
            self.told(view.key.value)
        with self._database.transaction() as connection:
            gone = connection.rows(tables.DELETE_EXPIRED)
            edge = moment(int((time.time() - self._rules.keep) * 1000))
            return len(gone) + len(connection.rows(tables.DELETE_OLD, (edge,)))

    def _ride(self, connection: Connection, principal: str, ride_id: str) -> Ride:
        row = connection.row(tables.RIDE, (ride_id, principal))
        if row is None:
            raise unknown("corrida", ride_id)
        return tables.ride_of(row)

    def _gave(self, ride: Ride) -> None:
        if ride.driver is not None:
            self.fleet.index.engage(ride.driver, free=False)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def token_problem(error: TokenError | OperationInProgress) -> Problem:
    """The refusal for each state of a token (seed 001, "Estados do Token")."""
    match error:
        case OperationInProgress():
            problem = _token(409, "in_progress", "A confirmação está em andamento; tente de novo em instantes.", True)
            problem.extra["retryable"] = True
            problem.headers["Retry-After"] = "1"
            return problem
        case TokenExpired():
            return _token(410, "expired", "Token de confirmação expirado; solicite a corrida de novo.")
        case TokenNotYours():
            return _token(403, "not_owned", "Não autorizado: este token não pertence a este passageiro.")
        case TokenCancelled():
            return _token(410, "cancelled", "Token de confirmação cancelado; solicite a corrida de novo.")
        case TokenUsed():
            return _token(409, "used", "Token de confirmação já utilizado; cancele a corrida em vez dele.")
        case _:
            return _token(404, "invalid", "Token de confirmação inválido; solicite a corrida de novo.")


def _token(status: int, state: str, message: str, retry: bool = False) -> Problem:
    kind, title = f"token-{state.replace('_', '-')}", "Token recusado"
    return refusal(status, kind, title, message, error=f"token_{state}", retry=retry)


def _refuse_strangers(ride: Ride, name: str, driver: str | None, passenger: str | None) -> None:
    """Only the ride's driver takes it further; its passenger may cancel too."""
    if driver is not None and ride.driver in (driver, None) and (ride.driver == driver or name == "accept"):
        return
    if name == "cancel" and passenger is not None and passenger == ride.wish.passenger:
        return
    raise refusal(403, "nao-autorizado", "Não autorizado", "Esta corrida não é sua.", error="not_owned")


def _not_now(ride: Ride, step: Step) -> Problem:
    detail = f"A corrida está {ride.status.value} e não pode passar a {step.target.value}."
    return _conflict("transicao-invalida", detail, ride_status=ride.status.value)


def _conflict(kind: str, detail: str, **extra: Any) -> Problem:
    return refusal(409, kind, "Conflito", detail, error=kind.replace("-", "_"), **extra)
