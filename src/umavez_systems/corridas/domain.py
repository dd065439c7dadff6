"""Rides: values and rules. Pure but for `new_id`, which draws randomness."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from umavez_systems.money import decimal_of
from umavez_systems.problems import Problem

LARGEST = Decimal("99999999.99")
"""The largest DECIMAL(10,2)."""
FENCED = "comunidade"
TYPES = (FENCED, "normal")
"""`comunidade` rides look for a driver inside the passenger's fence first; `normal` ones anywhere."""

NEEDS_CONFIRMATION = "Nenhum motorista disponível na sua comunidade. Confirme para buscar motoristas de outras áreas."
CONFIRMED = "Corrida fora da cerca criada com sucesso"
REPEATED = "Corrida já criada anteriormente"
CREATED = "Corrida criada com sucesso"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Status(StrEnum):
    """Where a ride stands."""

    REQUESTED = "requested"
    ACCEPTED = "accepted"
    STARTED = "started"
    FINISHED = "finished"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered: status and body, and whether it was answered before."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A change of status: the engine's name for it, where it may start, where it leads."""

    operation: str
    start: tuple[Status, ...]
    target: Status

    @property
    def frees(self) -> bool:
        """Whether the driver is free afterwards."""
        return self.target in (Status.FINISHED, Status.CANCELLED)


STEPS = {
    "accept": Step("aceitar_corrida", (Status.REQUESTED,), Status.ACCEPTED),
    "start": Step("iniciar_corrida", (Status.ACCEPTED,), Status.STARTED),
    "finish": Step("finalizar_corrida", (Status.STARTED,), Status.FINISHED),
    "cancel": Step("cancelar_corrida", (Status.REQUESTED, Status.ACCEPTED), Status.CANCELLED),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The ride a passenger asks for."""

    passenger: str
    kind: str
    lat: float
    lng: float
    origin: str | None
    destination: str | None
    price: Decimal | None

    def payload(self) -> dict[str, Any]:
        """What the wish says, to be compared with another under the same key; money is no float."""
        return {
            "passenger": self.passenger,
            "kind": self.kind,
            "lat": self.lat,
            "lng": self.lng,
            "origin": self.origin,
            "destination": self.destination,
            "price": None if self.price is None else str(self.price),
        }

    @classmethod
    def stored(cls, passenger: str, data: Any) -> Wish:
        """The wish in a confirmation's `ride_data`, which was validated before it was kept. Raises a 422 problem."""
        try:
            texts = (data.get("origin"), data.get("destination"))
            place = (float(data["passengerLat"]), float(data["passengerLng"]))
            return cls(passenger, data["type"], *place, *texts, exact_price(data.get("price")))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise invalid("Os dados guardados com o token não podem ser lidos; solicite a corrida de novo.") from error


@dataclass(frozen=True, slots=True)
class Ride:
    """A ride as it is now."""

    id: str
    wish: Wish
    status: Status
    out_of_fence: bool
    community: str | None
    driver: str | None
    principal: str
    created_at: str
    updated_at: str

    def shown(self) -> dict[str, Any]:
        """The body of an answer."""
        return {
            "id": self.id,
            "passengerId": self.wish.passenger,
            "type": self.wish.kind,
            "status": self.status.value,
            "outOfFence": self.out_of_fence,
            "communityId": self.community,
            "driverId": self.driver,
            "passengerLat": self.wish.lat,
            "passengerLng": self.wish.lng,
            "origin": self.wish.origin,
            "destination": self.wish.destination,
            "price": self.wish.price,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
        }


def exact_price(value: object) -> Decimal | None:
    """A price in reais and centavos. Raises a 422 problem; nothing is ever rounded."""
    if value is None:
        return None
    exact = decimal_of(value)
    if exact is None:
        raise invalid("price deve ser um número, por exemplo 15.50.")
    if exact.is_signed() or exact > LARGEST:
        raise invalid(f"price deve estar entre 0.00 e {LARGEST}.")
    if exact != exact.quantize(Decimal("0.01")):
        raise invalid("price tem mais de duas casas decimais; envie reais e centavos.")
    return exact.quantize(Decimal("0.01"))


def invalid(detail: str) -> Problem:
    """The 422 of data that cannot be used, in the shape that the seed's clients read."""
    return refusal(422, "dados-invalidos", "Dados inválidos", detail, error="invalid_request")


def refusal(
    status: int, kind: str, title: str, message: str, *, error: str, retry: bool = False, **extra: Any
) -> Problem:
    """A problem that also says `success`, a machine-readable `error`, `message` and `shouldRetry`."""
    return Problem(
        status, kind, title, message, success=False, error=error, message=message, shouldRetry=retry, **extra
    )


def conflict(kind: str, detail: str, **extra: Any) -> Problem:
    """The 409 of a ride that is not where the caller thinks."""
    return refusal(409, kind, "Conflito", detail, error=kind.replace("-", "_"), **extra)


def new_id() -> str:
    """A new id in the shape of a cuid: 25 lower-case characters that begin with c and sort by time."""
    tail = "".join(secrets.choice(_DIGITS) for _ in range(16))
    return f"c{_base36(int(time.time() * 1000)):0>8}{tail}"


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text


def moment(millis: int) -> str:
    """An instant as both databases take it; as text it sorts by time."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def iso(millis: int) -> str:
    """An instant as the seed shows it: 2024-01-01T10:05:00Z."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
