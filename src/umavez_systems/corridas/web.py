"""Routes of rides: thin. They read the request, call a use case and show its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from umavez.http import replay_marks
from umavez_systems.complaints import Flag, Number, complaint
from umavez_systems.corridas.database import shown_driver
from umavez_systems.corridas.domain import (
    LARGEST,
    STEPS,
    TYPES,
    Answer,
    Wish,
    exact_price,
    invalid,
    iso,
    refusal,
)
from umavez_systems.corridas.geojson import GEOJSON, communities_of
from umavez_systems.corridas.operations import Corridas
from umavez_systems.database import shown_instant
from umavez_systems.front.pages import add_page
from umavez_systems.money import ExactJson, amount_schema, exact_json
from umavez_systems.openapi import LATER, answers
from umavez_systems.problems import Problem
from umavez_systems.web import body_schema, carrier_of, key_of

LARGEST_WISH = 16_000
PRICE: dict[str, Any] = {"anyOf": [*amount_schema(LARGEST)["anyOf"], {"type": "null"}]}
router = APIRouter(tags=["corridas"])
PREFIX = "/api/governance"


class Pedido(BaseModel):
    """A ride asked for, or a token that confirms one: then passengerId and confirmationToken are enough."""

    model_config = ConfigDict(
        extra="allow",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {
                    "passengerId": "passenger123",
                    "type": "comunidade",
                    "passengerLat": -23.5505,
                    "passengerLng": -46.6333,
                    "origin": "Origem",
                    "destination": "Destino",
                    "price": 15.50,
                }
            ]
        },
    )
    passengerId: str = Field(min_length=1, max_length=200)  # noqa: N815  # the seed's spelling
    confirmationToken: str | None = Field(None, max_length=200)  # noqa: N815  # the same
    type: str | None = Field(None, max_length=40, json_schema_extra={"enum": [*TYPES, None]})
    passengerLat: Number | None = Field(None, ge=-90, le=90)  # noqa: N815  # the same
    passengerLng: Number | None = Field(None, ge=-180, le=180)  # noqa: N815  # the same
    origin: str | None = Field(None, max_length=500)
    destination: str | None = Field(None, max_length=500)
    price: Any = Field(None, json_schema_extra=PRICE)


class Portador(BaseModel):
    """Who holds which token."""

    passengerId: str = Field(min_length=1, max_length=200)  # noqa: N815  # the seed's spelling
    confirmationToken: str = Field(max_length=200)  # noqa: N815  # the same


class Motorista(BaseModel):
    """A driver, new or changed."""

    model_config = ConfigDict(allow_inf_nan=False)
    name: str = Field(min_length=1, max_length=255)
    lat: Number = Field(ge=-90, le=90)
    lng: Number = Field(ge=-180, le=180)
    available: Flag = True
    communityId: str | None = Field(None, min_length=1, max_length=60)  # noqa: N815  # as its neighbours


class Posicao(BaseModel):
    """Where a driver is now."""

    model_config = ConfigDict(allow_inf_nan=False)
    id: str = Field(min_length=1, max_length=60)
    lat: Number = Field(ge=-90, le=90)
    lng: Number = Field(ge=-180, le=180)


class Posicoes(BaseModel):
    """Many drivers' positions."""

    positions: list[Posicao] = Field(min_length=1, max_length=5_000)


class Passo(BaseModel):
    """Who takes a ride further."""

    driverId: str | None = Field(None, min_length=1, max_length=60)  # noqa: N815  # as its neighbours
    passengerId: str | None = Field(None, min_length=1, max_length=200)  # noqa: N815  # the same
    reason: str | None = Field(None, max_length=2000)


async def _principal(request: Request) -> str:
    return carrier_of(request).principals.of(request.headers.get("authorization"))


Principal = Annotated[str, Depends(_principal)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", description="1 a 255 caracteres; repetir é seguro")]
Id = Annotated[str, Path(min_length=1, max_length=60)]


@router.post(f"{PREFIX}/ride/request", status_code=201, responses=LATER, openapi_extra=body_schema(Pedido))
async def request_ride(
    request: Request,
    principal: Principal,
    idempotency_key: Key = None,  # noqa: ARG001  # to be described; read by the contract's own rules
) -> Response:
    """Ask for a ride (201, or 202 with a token), or confirm one with its token (201, then 200 for ever)."""
    # Bounded before it is parsed too: numbers written out take more room than they came in.
    raw = await _json(request, 4 * LARGEST_WISH)
    if isinstance(raw, dict) and raw.get("confirmationToken") is not None:
        # Before the rest is looked at (seed 001): the ride is made from what was asked for first.
        holder = _valid(Portador, raw)
        return answered(
            await run(request, lambda case: case.confirm(principal, holder.passengerId, holder.confirmationToken))
        )
    key = key_of(request)
    wish = _wish(_valid(Pedido, raw))
    text = bytes(ExactJson(raw).body).decode()
    if len(text) > LARGEST_WISH:
        raise invalid(f"O pedido tem mais de {LARGEST_WISH} caracteres.")
    return answered(await run(request, lambda case: case.request(principal, key, wish, text)))


def _wish(data: Pedido) -> Wish:
    if data.type not in TYPES:
        raise invalid(f"type deve ser um destes: {', '.join(TYPES)}.")
    if data.passengerLat is None or data.passengerLng is None:
        raise invalid("passengerLat e passengerLng são obrigatórios sem confirmationToken.")
    return Wish(
        data.passengerId,
        data.type,
        data.passengerLat,
        data.passengerLng,
        data.origin,
        data.destination,
        exact_price(data.price),
    )


@router.post(f"{PREFIX}/ride/confirmation/status", openapi_extra=body_schema(Portador))
async def token_status(request: Request, principal: Principal) -> Response:
    """Where a token stands; changes nothing. POST, so that the token stands in no address and no log."""
    data, _ = await body_of(request, Portador)
    view = await run(request, lambda case: case.confirmations.look(principal, data.passengerId, data.confirmationToken))
    ride = view.outcome["rideId"] if view.outcome else None
    return ExactJson(
        {"success": True, "state": view.state.value, "expiresAt": iso(view.expires_at), "rideId": ride},
        headers=_PRIVATE,
    )


@router.post(f"{PREFIX}/ride/confirmation/cancel", openapi_extra=body_schema(Portador))
async def cancel_token(request: Request, principal: Principal) -> Response:
    """Close an unused token; doing so again is no error."""
    data, _ = await body_of(request, Portador)
    await run(request, lambda case: case.confirmations.cancel(principal, data.passengerId, data.confirmationToken))
    return ExactJson({"success": True, "state": "cancelled"}, headers=_PRIVATE)


@router.get(f"{PREFIX}/ride/confirmation/audit")
async def audit(
    request: Request,
    principal: Principal,
    passenger: str = Query(alias="passengerId", max_length=200),
    limit: int = Query(100, ge=1, le=1000),
) -> Response:
    """Every confirmation operation of a passenger, the newest first; tokens by digest only."""
    rows = await run(request, lambda case: case.confirmations.audit(principal, passenger, limit))
    return ExactJson({"items": [{**row, "created_at": shown_instant(row["created_at"])} for row in rows]})


@router.get(f"{PREFIX}/ride/confirmation/metrics", **answers("text/plain"))
async def metrics(request: Request, _: Principal) -> Response:
    """How often each thing happened to a token, and how often one was refused, as Prometheus reads it."""
    outcomes = await run(request, lambda case: case.confirmations.outcomes())
    told = {name: many for name, many in outcomes.items() if not name.startswith("refused_")}
    refused = {name.removeprefix("refused_"): many for name, many in outcomes.items() if name not in told}
    text = _counter("tokens_total", "What happened to confirmation tokens.", "outcome", told)
    text += _counter("token_refusals_total", "Who was refused a token, by reason.", "reason", refused)
    return Response(text, media_type="text/plain; version=0.0.4")


def _counter(name: str, about: str, label: str, counts: dict[str, int]) -> str:
    lines = [f'umavez_corridas_{name}{{{label}="{value}"}} {many}\n' for value, many in counts.items()]
    head = f"# HELP umavez_corridas_{name} {about}\n# TYPE umavez_corridas_{name} counter\n"
    return f"{head}{''.join(lines)}"


@router.get(f"{PREFIX}/rides/{{ride_id}}")
async def get_ride(request: Request, ride_id: Id, principal: Principal) -> Response:
    """One ride and how it came to where it is."""
    ride, rows = await run(request, lambda case: case.ride(principal, ride_id))
    history = [{**row, "created_at": shown_instant(row["created_at"])} for row in rows]
    return ExactJson({"success": True, "ride": ride.shown(), "history": history}, headers=_PRIVATE)


@router.get(f"{PREFIX}/rides")
async def list_rides(
    request: Request,
    principal: Principal,
    passenger: str = Query(alias="passengerId", max_length=200),
    limit: int = Query(50, ge=1, le=500),
) -> Response:
    """A passenger's rides, the newest first."""
    rides = await run(request, lambda case: case.rides(principal, passenger, limit))
    return ExactJson({"items": [ride.shown() for ride in rides]}, headers=_PRIVATE)


def _step_route(name: str) -> None:
    @router.post(f"{PREFIX}/rides/{{ride_id}}/{name}", name=name, openapi_extra=body_schema(Passo))
    async def step(request: Request, ride_id: Id, principal: Principal) -> Response:
        data, _ = await body_of(request, Passo)
        ride, replayed = await run(
            request, lambda case: case.step(principal, ride_id, name, data.driverId, data.passengerId, data.reason)
        )
        return answered(Answer(200, {"success": True, "ride": ride.shown()}, replayed))

    step.__doc__ = f"{name.capitalize()} the ride; doing so again does not run again and shows it as it is now."


for _name in STEPS:
    _step_route(_name)


@router.put(f"{PREFIX}/communities", openapi_extra=GEOJSON)
async def put_communities(request: Request, _: Principal) -> Response:
    """Keep communities from GeoJSON, new or changed: all of them, or none when one is not valid."""
    body = await carrier_of(request).body(request)

    def keep(case: Corridas) -> list[str]:
        # Read and checked in the thread, too: a body full of corners would hold up everybody else.
        found = communities_of(exact_json(body))
        case.fleet.put_communities(found)
        return [community.id for community in found]

    return ExactJson({"success": True, "communities": await run(request, keep)})


@router.get(f"{PREFIX}/communities")
async def get_communities(request: Request, _: Principal) -> Response:
    """Every community as a GeoJSON FeatureCollection."""
    text = await run(request, lambda case: _collection(case.fleet.communities()))
    return Response(text, media_type="application/json")


def _collection(rows: list[dict[str, Any]]) -> bytes:
    """The FeatureCollection of communities, in whose rows the geometry is JSON already."""
    features = []
    for row in rows:
        rest = {"type": "Feature", "id": row["id"], "properties": {"name": row["name"], "priority": row["priority"]}}
        features.append(f'{json.dumps(rest, ensure_ascii=False)[:-1]}, "geometry": {row["geometry"]}}}')
    return f'{{"type": "FeatureCollection", "features": [{", ".join(features)}]}}'.encode()


@router.delete(f"{PREFIX}/communities/{{community_id}}")
async def delete_community(request: Request, community_id: Id, _: Principal) -> Response:
    """Forget a community."""
    await run(request, lambda case: case.fleet.remove_community(community_id))
    return ExactJson({"success": True})


@router.post(f"{PREFIX}/drivers/positions", openapi_extra=body_schema(Posicoes))
async def move_drivers(request: Request, _: Principal) -> Response:
    """Keep many drivers' positions at once; says which ids are not known."""
    data, _raw = await body_of(request, Posicoes)
    places = [(place.id, place.lat, place.lng) for place in data.positions]
    lost = await run(request, lambda case: case.fleet.move(places))
    return ExactJson({"success": True, "moved": len(places) - len(lost), "unknown": lost})


@router.put(f"{PREFIX}/drivers/{{driver_id}}", openapi_extra=body_schema(Motorista))
async def put_driver(request: Request, driver_id: Id, _: Principal) -> Response:
    """Keep a driver: name, position, availability and community."""
    data, _raw = await body_of(request, Motorista)
    values = (driver_id, data.name, data.communityId, data.lat, data.lng, data.available)
    row = await run(request, lambda case: case.put_driver(*values))
    return ExactJson({"success": True, "driver": shown_driver(row)})


@router.get(f"{PREFIX}/drivers/{{driver_id}}")
async def get_driver(request: Request, driver_id: Id, _: Principal) -> Response:
    """One driver."""
    return ExactJson(shown_driver(await run(request, lambda case: case.fleet.driver(driver_id))))


@router.get(f"{PREFIX}/drivers")
async def list_drivers(
    request: Request,
    _: Principal,
    after: str = Query("", max_length=60),
    limit: int = Query(500, ge=1, le=5000),
) -> Response:
    """A page of drivers; `after` is the last id of the page before."""
    rows = await run(request, lambda case: case.fleet.drivers(after, limit))
    return ExactJson(
        {"items": [shown_driver(row) for row in rows], "next": rows[-1]["id"] if len(rows) == limit else None}
    )


_PRIVATE = {"Cache-Control": "no-store"}
add_page(router, "/corridas", "umavez_systems.corridas")


async def body_of(request: Request, model: type[BaseModel], largest: int | None = None) -> tuple[Any, Any]:
    """The request's body as `model`, and as it came, its numbers exact. Raises 400, 413 or 422 problems."""
    raw = await _json(request, largest)
    return _valid(model, raw), raw


def _valid(model: type[BaseModel], raw: Any) -> Any:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise invalid(complaint(error.errors())) from error


async def _json(request: Request, largest: int | None = None) -> Any:
    """The body's value. What is refused is refused in the shape that the seed's clients read."""
    body = await carrier_of(request).body(request)
    if largest is not None and len(body) > largest:
        raise invalid(f"O pedido tem mais de {largest} bytes.")
    try:
        return exact_json(body)
    except Problem as problem:
        raise refusal(
            problem.status, problem.name, problem.kind.title, problem.detail, error="invalid_request"
        ) from problem


async def run(request: Request, case: Callable[[Corridas], Any]) -> Any:
    """What a use case gives, run in a thread of the server."""
    carrier = carrier_of(request)
    return await carrier.run(case, carrier.corridas)


def answered(answer: Answer) -> Response:
    """The response that shows `answer`, marked when it is a replay."""
    headers = replay_marks(answer.replayed)
    return ExactJson(answer.body, answer.status, headers=headers)
