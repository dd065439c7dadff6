"""Whoever is called may answer in drops or without end: each system that calls others is done in time all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.umavez_systems.outgoing.counter import Counter
from umavez_systems.mailing.ports import Fate, Mail
from umavez_systems.mailing.providers import http as provider
from umavez_systems.outgoing import connections
from umavez_systems.outgoing.connections import BadStatus, Connections, TooLarge
from umavez_systems.processos.camunda import CamundaTasks
from umavez_systems.processos.portal.client import HttpPortal
from umavez_systems.processos.ports import PortalSemResposta

PIECE = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + PIECE * 4
DROPS = b"HTTP/1.1 200 OK\r\nX-Wait: " + b"x" * 1000


@pytest.fixture
def counter() -> Iterator[Counter]:
    made = Counter()
    yield made
    made.close()


@pytest.fixture(params=["drops", "without end"])
def strange(request: pytest.FixtureRequest, counter: Counter) -> Counter:
    """One that answers in drops, or with more than anybody asked for."""
    if request.param == "drops":
        counter.answers, counter.drops = [b""], DROPS
    else:
        counter.answers = [ENDLESS]
    return counter


def test_an_answer_of_any_status_is_given_with_its_headers(counter: Counter) -> None:
    counter.answers = [b"HTTP/1.1 404 No\r\nX-A: b\r\nContent-Length: 3\r\n\r\nnao"]
    calling = Connections()
    answer = calling.call("GET", counter.address, 5)
    assert answer == (404, {"x-a": "b", "content-length": "3"}, b"nao")
    with pytest.raises(BadStatus, match="HTTP 404"):
        answer.successful()
    calling.close()


def test_an_answer_above_its_bound_is_not_read_to_its_end(counter: Counter) -> None:
    counter.answers = [ENDLESS]
    with pytest.raises(TooLarge, match="more than 100 bytes") as found:
        Connections().call("GET", counter.address, 5, largest=100)
    assert len(found.value.begun) == 1000


def test_closing_leaves_a_call_under_way_its_answer(counter: Counter) -> None:
    """Whoever holds them may go on, too; nothing is kept any more."""
    calling = Connections()
    counter.before = calling.close
    assert calling.call("GET", counter.address, 5).body == b"ok"
    assert calling.call("GET", counter.address, 5).body == b"ok"
    assert counter.connections == 2


def test_the_payers_portal_holds_nobody(strange: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LARGEST", 100_000)
    portal = HttpPortal(strange.address, timeout=0.5)
    began = time.monotonic()
    with pytest.raises(PortalSemResposta):
        portal.eligible("1", "2")
    assert time.monotonic() - began < 5
    portal.close()


def test_another_process_engine_holds_nobody(strange: Counter) -> None:
    tasks = CamundaTasks(strange.address, "w", timeout=0.5)
    began = time.monotonic()
    with pytest.raises(Exception, match=r"time is over|timed out|bytes|JSON"):
        tasks.fetch(("t",), most=1, lock=1)
    assert time.monotonic() - began < 5
    tasks.close()


def test_a_mail_service_holds_no_worker(strange: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in drops may be to a mail that went out: nobody knows."""
    monkeypatch.setattr(provider, "TIMEOUT", 0.5)

    async def told() -> Fate:
        service = provider.HttpProvider(strange.address, "re_123")
        try:
            mail = Mail("e", "k", "<m>", "a@x.com", "b@x.com", "oi", b"", "texto")
            return (await service.send([mail], _proved))[0].fate
        finally:
            await service.close()

    began = time.monotonic()
    assert asyncio.run(told()) is Fate.UNKNOWN
    assert time.monotonic() - began < 5


async def _proved() -> None:
    pass
