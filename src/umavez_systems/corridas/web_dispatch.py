"""Routes of dispatch: what drivers answer to offers, what waits for them, and what operators look at. Thin."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from umavez_systems.complaints import Flag
from umavez_systems.corridas.database import shown_driver
from umavez_systems.corridas.domain import Answer
from umavez_systems.corridas.web import PREFIX, Id, Principal, answered, body_of, run
from umavez_systems.database import shown_instant
from umavez_systems.money import ExactJson
from umavez_systems.web import body_schema

router = APIRouter(tags=["corridas"])


class Recusa(BaseModel):
    """Which driver hands an offer back, and why."""

    driverId: str = Field(min_length=1, max_length=60)  # noqa: N815  # as its neighbours
    reason: str | None = Field(None, max_length=2000)


class Disponibilidade(BaseModel):
    """Whether a driver may be given rides."""

    available: Flag


@router.post(f"{PREFIX}/rides/{{ride_id}}/decline", openapi_extra=body_schema(Recusa))
async def decline(request: Request, ride_id: Id, principal: Principal) -> Response:
    """Hand an offer back; the next driver gets it. Doing so again changes nothing."""
    data, _ = await body_of(request, Recusa)
    ride, replayed = await run(
        request, lambda case: case.dispatch.decline(principal, ride_id, data.driverId, data.reason)
    )
    return answered(Answer(200, {"success": True, "ride": ride.shown()}, replayed))


@router.put(f"{PREFIX}/drivers/{{driver_id}}/availability", openapi_extra=body_schema(Disponibilidade))
async def set_available(request: Request, driver_id: Id, _: Principal) -> Response:
    """Let a driver be given rides, or no more; who comes free gets the ride that waits longest."""
    data, _raw = await body_of(request, Disponibilidade)
    row = await run(request, lambda case: case.set_available(driver_id, data.available))
    return ExactJson({"success": True, "driver": shown_driver(row)})


@router.get(f"{PREFIX}/drivers/{{driver_id}}/waiting")
async def waiting(
    request: Request, driver_id: Id, principal: Principal, limit: int = Query(50, ge=1, le=500)
) -> Response:
    """The waiting rides that a driver may accept, the nearest first."""
    items = await run(request, lambda case: case.dispatch.waiting_for(principal, driver_id, limit))
    return ExactJson({"items": items}, headers={"Cache-Control": "no-store"})


@router.get(f"{PREFIX}/ride/confirmations")
async def confirmations(
    request: Request,
    principal: Principal,
    passenger: str | None = Query(None, alias="passengerId", max_length=200),
    state: Literal["unused", "used", "superseded", "expired"] | None = None,
    after: str = Query("", max_length=30),
    limit: int = Query(100, ge=1, le=1000),
) -> Response:
    """A page of confirmations for operators; `after` is the last id of the page before. Tokens by digest only."""
    rows = await run(request, lambda case: case.confirmations.pending(principal, passenger, state, after, limit))
    times = ("created_at", "expires_at", "used_at")
    items = [{**row, **{name: row[name] and shown_instant(row[name]) for name in times}} for row in rows]
    return ExactJson(
        {"items": items, "next": rows[-1]["id"] if len(rows) == limit else None}, headers={"Cache-Control": "no-store"}
    )
