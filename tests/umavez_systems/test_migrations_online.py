"""Callers of the systems' tables pass while a migration waits for its moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from umavez import StoreUnavailable
from umavez.migration import migrate
from umavez.stores.postgres import upgrade as online
from umavez_systems import migrations

pytestmark = pytest.mark.postgres
LONGEST = 1.5
"""Seconds that a caller may have to wait: a moment of 0.3 s, on a machine that does other things."""
LOOK = "SELECT count(*) FROM documentos_fiscais"


@pytest.fixture
def url(empty_database: Callable[[str], str]) -> str:
    """Tables of an earlier version."""
    url = empty_database("postgres")
    migrate(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with migrations._server(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0010")
    return url


def test_callers_pass_while_the_systems_tables_wait_for_a_transaction(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "PATIENCE", 1.2)
    slowest: list[float] = [0.0]
    ended = threading.Event()

    def looking() -> None:
        with psycopg.connect(url, autocommit=True) as caller:
            while not ended.is_set():
                began = time.monotonic()
                caller.execute(LOOK)
                slowest.append(time.monotonic() - began)

    with psycopg.connect(url) as holder:
        holder.execute(LOOK)
        caller = threading.Thread(target=looking)
        caller.start()
        with pytest.raises(StoreUnavailable, match="run umavez migrate again"):
            migrations.migrate(url)
        ended.set()
        caller.join(60)

    assert max(slowest) < LONGEST
    assert len(slowest) > 5
    assert migrations.migrate(url).startswith("The tables of the systems are now at version")
