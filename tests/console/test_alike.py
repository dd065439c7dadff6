"""What hangs together is shown together: failures with one error, messages behind a dead one, a host (X.04)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import pytest

from tests.console.browser import Browser, Forms
from tests.console.conftest import Lost, place, seen
from umavez import Key, Once
from umavez.console.history import by_host
from umavez.console.search import parsed
from umavez.core.record import Draft, Status
from umavez.core.telling.events import Process
from umavez.messaging import Message, Outbox
from umavez.sql.database import writing
from umavez.stores import Chronicle

Opened = Callable[..., Browser]


def text_of(page: str) -> str:
    return " ".join("".join(Forms(page).text).split())


def fails(once: Once, operation: str, key: str, error: str) -> None:
    def call() -> None:
        raise Lost(error)

    with suppress(Lost):
        once.run(operation, key=key, call=call, unknown="rerun", free=(Lost,))


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_failures_that_look_alike_are_one_line(once: Once, opened: Opened) -> None:
    error = f'no "answer" {once.scope} ' + "x" * 200
    for number in range(3):
        fails(once, f"pay {once.scope}", str(number), f"{error}{number}")
    fails(once, f"pay {once.scope}", "9", f"refused {once.scope}")

    browser = opened("look")
    page = browser.get("/records?q=status%3Afailed")
    assert "Failures that look alike" in page
    groups = [link for link in Forms(page).links if "error%3A" in link and once.scope in link]
    assert f"3 pay {once.scope}" in text_of(page)
    assert len(groups) == 2
    found = browser.get(f"/records{next(link for link in groups if 'answer' in link)}")
    assert found.count('<a class="key"') == 3
    assert "look alike" not in found


def test_a_host_finds_the_records_that_its_processes_wrote(once: Once, opened: Opened) -> None:
    assert isinstance(once.store, Chronicle)
    host = f"web-{once.scope}"
    once.store.announce(Process(f"feed{once.scope}", host, 412, "loja", "0.1.0", 1000))
    for key, holder in (("1", f"feed{once.scope}-1"), ("2", "other-1")):
        once.store.swap(None, Draft(Key(once.scope, "charge", key), holder, Status.UNKNOWN, False))

    for word in (host, f"{host}/412", f"feed{once.scope}"):
        page = opened("look").get(f"/records?q={quote(f'status:unknown holder:{word}')}")
        assert place(seen(once, "charge", "1")) in page, word
        assert place(seen(once, "charge", "2")) not in page
        assert f"{host}/412" in page, "and the list says who"
    search = parsed(f"status:unknown holder:{host}")
    assert by_host(once.store, search).holders == (f"feed{once.scope}-",)
    assert by_host(once.store, parsed("status:unknown holder:nobody")).holders == ()


def test_a_bulk_order_means_the_host_that_the_list_means(browser: Browser, sqlite_once: Once) -> None:
    assert isinstance(sqlite_once.store, Chronicle)
    sqlite_once.store.announce(Process("feed", "web-3", 412, "loja", "0.1.0", 1000))
    for key, holder in (("1", "feed-1"), ("2", "other-1")):
        sqlite_once.store.swap(None, Draft(Key("loja", "charge", key), holder, Status.UNKNOWN, False))
    page = browser.get("/bulk?q=status%3Aunknown+holder%3Aweb-3&action=not-happened")
    assert place(seen(sqlite_once, "charge", "1")) in page
    assert place(seen(sqlite_once, "charge", "2")) not in page


def test_messages_behind_a_dead_one_are_told_with_it_and_topics_can_be_chosen(
    browser: Browser, sqlite_once: Once
) -> None:
    url = str(sqlite_once.url)
    with writing(url, "messages") as connection:
        for number in range(4):
            about = "order-7" if number < 3 else "order-8"
            Outbox().append(connection, Message("pedido.pago", "{}", id=f"m-{number}", aggregate=about))
        Outbox().append(connection, Message("pedido.cancelado", "{}", id="other"))
        connection.execute("UPDATE umavez_outbox SET state = 'DEAD' WHERE id IN ('m-0', 'm-3')")

    page = text_of(browser.get("/messages"))
    assert "m-0 pedido.pago · order-7: 2 wait" in page
    assert "order-8:" not in page, "nothing waits behind it"
    chosen_ = browser.get("/messages?topic=pedido.cancelado")
    assert "id=other" in chosen_
    assert "id=m-1" not in chosen_


def test_a_long_timeline_shows_what_is_asked_for(browser: Browser, sqlite_once: Once) -> None:
    for _ in range(12):
        with suppress(Lost):
            sqlite_once.run("pay", key="1", call=_lost, unknown="rerun", free=(Lost,), max_retries=20)
    page = browser.get(place(seen(sqlite_once, "pay", "1")))
    assert page.count("<time>") > 12
    assert "only=failed" in page
    some = browser.get(f"{place(seen(sqlite_once, 'pay', '1'))}?only=failed")
    assert 0 < some.count("<time>") < page.count("<time>")
    assert browser.get(f"{place(seen(sqlite_once, 'pay', '1'))}?only=%3Cb%3E").count("<time>") == page.count("<time>")


def _lost() -> None:
    raise Lost("no answer")
