"""The same small shop three times: for uvicorn (FastAPI), gunicorn (Flask) and either (Django).

Every run of the handler leaves one line in the file EFFECTS names. STORE names the store, UNKNOWN what an unknown
outcome means, LEASE the lease in seconds, PAUSE how long the handler takes.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from fastapi import FastAPI, Header, Response
from pydantic import BaseModel

from umavez import AsyncOnce, Once
from umavez.http import Route, from_header

STORE = os.environ.get("STORE", "memory:")
PAUSE = float(os.environ.get("PAUSE", "0.002"))
OPTIONS: dict[str, Any] = {
    "unknown": os.environ.get("UNKNOWN", "rerun"),
    "lease": float(os.environ.get("LEASE", "30")),
    "wait": float(os.environ.get("WAIT", "0")),
}


class Order(BaseModel):
    """What a client orders."""

    item: str
    amount: int = 1


def effect(line: str) -> None:
    """One effect: a line that is on its way to the disk whole, whatever happens to this process afterwards."""
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def fastapi_app() -> Any:
    from umavez.http.fastapi import idempotent, protect

    app = FastAPI()
    once = AsyncOnce(STORE, scope="shop")

    @app.post("/orders", status_code=201)
    @idempotent(required=True, **OPTIONS)
    async def order(order: Order, response: Response, x_user: str = Header("ana", max_length=50)) -> dict[str, Any]:
        effect(order.item)
        await asyncio.sleep(PAUSE)
        response.headers["location"] = "/orders/1"
        response.set_cookie("session", "secret")
        return {"item": order.item, "amount": order.amount, "user": x_user}

    @app.post("/orders/{number}/refunds", status_code=201)
    @idempotent(**OPTIONS)
    async def refund(number: int) -> dict[str, int]:
        return {"number": number}

    @app.get("/orders/{number}")
    async def look(number: int) -> dict[str, int]:
        return {"number": number}

    protect(app, once=once, principal=lambda request: request.headers.get("x-user", "ana"))
    return app


def flask_app() -> Any:
    from flask import Flask, jsonify, request

    from umavez.http.wsgi import Idempotency

    app = Flask(__name__)

    @app.post("/orders")
    def order() -> Any:
        item = request.get_json()["item"]
        effect(item)
        time.sleep(PAUSE)
        answer = jsonify(item=item, user=request.headers.get("x-user"))
        answer.set_cookie("session", "secret")
        return answer, 201, {"Location": "/orders/1"}

    once = Once(STORE, scope="shop")
    routes = [Route("POST", "/orders", required=True, **OPTIONS)]
    app.wsgi_app = Idempotency(app.wsgi_app, once=once, principal=from_header("x-user"), routes=routes)  # type: ignore[method-assign]
    return app


def _django(**engines: Any) -> None:
    import sys

    from django.conf import settings

    from umavez.http.django import middleware

    module = sys.modules[__name__]
    module.Idempotency = middleware(  # type: ignore[attr-defined]
        principal=lambda request: request.headers.get("x-user"),
        routes=[Route("POST", "/orders", required=True, **OPTIONS)],
        **engines,
    )
    settings.configure(
        SECRET_KEY="for tests only",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[f"{__name__}.Idempotency"],
        LOGGING_CONFIG=None,
    )
    import django

    django.setup()


def _order(request: Any) -> Any:
    import json

    from django.http import JsonResponse

    item = json.loads(request.body)["item"]
    effect(item)
    answer = JsonResponse({"item": item, "user": request.headers.get("x-user")}, status=201)
    answer["Location"] = "/orders/1"
    answer.set_cookie("session", "secret")
    return answer


def django_wsgi() -> Any:
    from django.core.wsgi import get_wsgi_application
    from django.urls import path

    def view(request: Any) -> Any:
        time.sleep(PAUSE)
        return _order(request)

    globals()["urlpatterns"] = [path("orders", view)]
    _django(once=Once(STORE, scope="shop"))
    return get_wsgi_application()


def django_asgi() -> Any:
    from django.core.asgi import get_asgi_application
    from django.urls import path

    async def view(request: Any) -> Any:
        await asyncio.sleep(PAUSE)
        return _order(request)

    globals()["urlpatterns"] = [path("orders", view)]
    _django(async_once=AsyncOnce(STORE, scope="shop"))
    return get_asgi_application()
