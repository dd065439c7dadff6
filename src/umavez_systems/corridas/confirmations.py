"""Confirmations: tokens for rides outside the fence, from their offer to their end.

A token is redeemed inside the transaction that creates its ride, gives it a driver, and marks its row in
ride_confirmations: all of it is committed, or none. The engine judges the token, by the database's time, and
whose it is before anything else. Every token ends once: confirmed, cancelled, superseded or expired.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from umavez import Once, OperationInProgress, fingerprint
from umavez.tokens import (
    TokenCancelled,
    TokenError,
    TokenExpired,
    TokenNotYours,
    Tokens,
    TokenState,
    TokenUsed,
    TokenView,
)
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.domain import NEEDS_CONFIRMATION, Answer, Ride, Wish, iso, moment, new_id, refusal
from umavez_systems.database import Connection, Database, Row
from umavez_systems.money import exact_json
from umavez_systems.principals import scoped_key
from umavez_systems.problems import Problem

PURPOSE = "confirmar_corrida"
TURNS = 5
"""How often an offer tries again when rivals with the same key are faster."""
SOME_TOKENS = 1000
Told = Callable[[str], None]
"""Hears the digest of a token whose state changed."""
Make = Callable[[Connection, str, Wish], Ride]
"""Creates a ride outside the fence in the caller's transaction."""


class _Superseded(Exception):
    """The key of this token has a newer one."""


Refused = TokenError | OperationInProgress | _Superseded


class Confirmations:
    """Every use case of tokens, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, ttl: float, keep: float, make: Make) -> None:
        self.told: Told = lambda _digest: None
        self._database = database
        self._dialect = tables.Dialect(database)
        self._ttl = ttl
        self._keep = keep
        self._make = make
        self._tokens = Tokens(once, PURPOSE, ttl=ttl, keep=keep, unknown="rerun")

    def offer(self, principal: str, key: str | None, wish: Wish, ride_data: str) -> Answer | None:
        """A token for this wish; an earlier one of the same key confirms nothing any more.

        It is handed out only after its row is there. None when the key's earlier token was used meanwhile.
        """
        issued = self._tokens.issue(scoped_key(principal, wish.passenger))
        digest = digest_of(issued.token)
        mark = None if key is None else fingerprint(wish.payload())
        values = (principal, wish.passenger, digest, ride_data, moment(issued.expires_at), key, mark)
        for _ in range(TURNS):
            with self._database.transaction() as connection:
                self._bury(connection, connection.rows(tables.DELETE_EXPIRED_OF, (principal, wish.passenger)))
                before = None if key is None else self.supersede(connection, principal, key)
                made = connection.row(tables.INSERT_CONFIRMATION, (new_id(), *values))
                if made is not None:
                    self._note(connection, "issued", principal, wish.passenger, digest)
            if before is not None:
                self.told(before)
            if made is not None:
                return self._offered(issued.token, issued.expires_at)
        return None

    def _offered(self, token: str, expires_at: int) -> Answer:
        minutes = self._ttl / 60
        return Answer(
            202,
            {
                "success": False,
                "requiresConfirmation": True,
                "confirmationToken": token,
                "expiresAt": iso(expires_at),
                "ttlMinutes": int(minutes) if minutes == int(minutes) else round(minutes, 2),
                "message": NEEDS_CONFIRMATION,
            },
        )

    def ride_of_key(self, connection: Connection, principal: str, key: str, wish: Wish) -> str | None:
        """The ride that a token of this key has become; the key's row is held until the transaction ends.

        Raises a 422 problem when the key's token was offered for another wish.
        """
        row = connection.row(self._dialect.lock_key, (principal, key))
        if row is None:
            return None
        if row["request_mark"] != fingerprint(wish.payload()):
            detail = "Esta chave foi usada antes com outro pedido; repita o pedido original ou use uma chave nova."
            title = "Chave de idempotência já usada"
            raise refusal(422, "chave-reutilizada", title, detail, error="key_reused")
        ride_id: str | None = row["created_ride_id"]
        return ride_id

    def supersede(self, connection: Connection, principal: str, key: str) -> str | None:
        """Close the key's unused token, if it has one; returns its digest."""
        row = connection.row(tables.SUPERSEDE, (principal, key))
        if row is None:
            return None
        digest: str = row["confirmation_token"]
        self._note(connection, "superseded", principal, row["passenger_id"], digest)
        return digest

    def redeem(self, principal: str, passenger: str, token: str) -> tuple[str, Ride | None]:
        """The ride's id, and the ride when this very call created it. Raises the token's problem."""
        try:
            with self._database.transaction() as connection:
                ride_id, ride = self._redeemed(connection, principal, passenger, token)
        except (TokenError, OperationInProgress, _Superseded) as error:
            raise self._refused(principal, passenger, token, token_problem(error)) from None
        except Problem as problem:
            # The passenger has a ride under way: the token stays as it was.
            raise self._refused(principal, passenger, token, problem) from None
        if ride is not None:
            self.told(digest_of(token))
        return ride_id, ride

    def _redeemed(self, connection: Connection, principal: str, passenger: str, token: str) -> tuple[str, Ride | None]:
        digest = digest_of(token)
        owner, wait = scoped_key(principal, passenger), self._database.timeout
        with self._tokens.redeeming(connection.raw, token, owner, wait=wait) as attempt:
            if attempt.replayed:
                ride_id: str = attempt.outcome["rideId"]
                self._note(connection, "replayed", principal, passenger, digest, ride_id)
                return ride_id, None
            row = connection.row(self._dialect.lock_confirmation, (digest,))
            if row is None:
                # The sweep was faster, in the instant in which the token's time ended.
                raise TokenExpired
            if row["superseded"]:
                raise _Superseded
            ride = self._make(connection, principal, Wish.stored(row["passenger_id"], exact_json(row["ride_data"])))
            connection.rows(tables.USE_CONFIRMATION, (ride.id, digest))
            self._note(connection, "confirmed", principal, passenger, digest, ride.id)
            attempt.succeed({"rideId": ride.id})
        return ride.id, ride

    def cancel(self, principal: str, passenger: str, token: str) -> None:
        """Close an unused token. Raises the token's problem; cancelling twice is no error."""
        try:
            cancelled = self._tokens.cancel(token, scoped_key(principal, passenger), by=principal)
        except (TokenError, OperationInProgress) as error:
            raise self._refused(principal, passenger, token, token_problem(error)) from None
        digest = digest_of(token)
        with self._database.transaction() as connection:
            row = connection.row(tables.DELETE_CONFIRMATION, (digest,))
            if cancelled and not (row and row["superseded"]):
                self._note(connection, "cancelled", principal, passenger, digest)
        self.told(digest)

    def look(self, principal: str, passenger: str, token: str) -> TokenView:
        """Where a token stands; changes nothing. Raises the token's problem, which is audited as at confirming."""
        try:
            view = self._tokens.status(token, scoped_key(principal, passenger))
        except TokenError as error:
            raise self._refused(principal, passenger, token, token_problem(error)) from None
        if view.state is not TokenState.UNUSED:
            return view
        with self._database.statements() as connection:
            row = connection.row(tables.CONFIRMATION, (digest_of(token),))
        return view._replace(state=TokenState.CANCELLED) if row and row["superseded"] else view

    def audit(self, principal: str, passenger: str, limit: int) -> list[Row]:
        """Every confirmation operation of a passenger, the newest first; tokens by digest."""
        with self._database.statements() as connection:
            return connection.rows(tables.AUDIT, (principal, passenger, limit))

    def pending(self, principal: str, passenger: str | None, state: str | None, after: str, limit: int) -> list[Row]:
        """A page of confirmations, by id: for operators. Tokens by digest."""
        values = (principal, after, passenger, passenger, state, state, limit)
        with self._database.statements() as connection:
            return connection.rows(tables.CONFIRMATIONS, values)

    def outcomes(self) -> dict[str, int]:
        """How often each thing happened to a token, and each refusal, over all processes."""
        with self._database.statements() as connection:
            return {row["operation"]: row["many"] for row in connection.rows(tables.OUTCOMES)}

    def sweep(self) -> int:
        """Remove every expired confirmation, and used ones that nobody can ask for any more; returns how many."""
        more = True
        while more:
            expired = self._tokens.expire(limit=SOME_TOKENS)
            for view in expired:
                self.told(view.key.value)
            more = len(expired) == SOME_TOKENS
        return self._delete_expired() + self._delete_old()

    def _delete_expired(self) -> int:
        total, gone = 0, tables.SOME
        while gone == tables.SOME:
            with self._database.transaction() as connection:
                rows = connection.rows(self._dialect.delete_expired)
                self._bury(connection, rows)
            gone = len(rows)
            total += gone
        return total

    def _delete_old(self) -> int:
        with self._database.statements() as connection:
            (now,) = connection.rows(self._dialect.now)
        edge = moment(now["now"] - int(self._keep * 1000))
        total, gone = 0, tables.SOME
        while gone == tables.SOME:
            with self._database.transaction() as connection:
                gone = len(connection.rows(self._dialect.delete_old, (edge,)))
            total += gone
        return total

    def _bury(self, connection: Connection, rows: list[Row]) -> None:
        """Note that these tokens were never used. One whose key got a newer one has ended already."""
        for row in rows:
            if not row["superseded"]:
                self._note(connection, "expired", row["principal"], row["passenger_id"], row["confirmation_token"])

    def _refused(self, principal: str, passenger: str, token: str, problem: Problem) -> Problem:
        """The problem, after it was noted: a refusal is an event of its own, not what became of the token."""
        reason = str(problem.members["error"]).removeprefix("token_")
        with self._database.statements() as connection:
            self._note(connection, f"refused_{reason}", principal, passenger, digest_of(token))
        return problem

    def _note(
        self,
        connection: Connection,
        operation: str,
        principal: str,
        passenger: str,
        digest: str,
        ride_id: str | None = None,
    ) -> None:
        connection.rows(tables.INSERT_AUDIT, (operation, principal, passenger, digest, ride_id))


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def token_problem(error: Refused) -> Problem:
    """The refusal for each state of a token (seed 001, "Estados do Token")."""
    match error:
        case OperationInProgress():
            busy = _token(409, "in_progress", "A confirmação está em andamento; tente de novo em instantes.", True)
            return busy.retryable_after(1.0)
        case TokenExpired():
            return _token(410, "expired", "Token de confirmação expirado; solicite a corrida de novo.")
        case TokenNotYours():
            return _token(403, "not_owned", "Não autorizado: este token não pertence a este passageiro.")
        case TokenCancelled():
            return _token(410, "cancelled", "Token de confirmação cancelado; solicite a corrida de novo.")
        case TokenUsed():
            return _token(409, "used", "Token de confirmação já utilizado; cancele a corrida em vez dele.")
        case _Superseded():
            return _token(410, "superseded", "O mesmo pedido recebeu um token mais novo; confirme com o último.")
        case _:
            return _token(404, "invalid", "Token de confirmação inválido; solicite a corrida de novo.")


def _token(status: int, state: str, message: str, retry: bool = False) -> Problem:
    kind, title = f"token-{state.replace('_', '-')}", "Token recusado"
    return refusal(status, kind, title, message, error=f"token_{state}", retry=retry)
