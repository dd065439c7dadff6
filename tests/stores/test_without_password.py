"""A store's URL as it may be shown: never with a password, however it is written."""

from __future__ import annotations

import random

import pytest

from umavez.stores import without_password

SEED = 20262


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory:", "memory:"),
        ("sqlite:///dir/a.db?journal=wal", "sqlite:///dir/a.db?journal=wal"),
        ("postgresql://host:5432/x?lanes=2", "postgresql://host:5432/x?lanes=2"),
        ("postgresql://[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql://[::1]/x", "postgresql://[::1]/x"),
        ("postgresql://ana@host/x", "postgresql://ana@host/x"),
        ("postgresql://ana:a@b@host/x", "postgresql://ana:***@host/x"),
        ("postgresql://host/x?password=a&lanes=2", "postgresql://host/x?password=***"),
        ("postgresql://host/x?pass%77ord=a", "postgresql://host/x?pass%77ord=***"),
        ("postgresql://host/x?password=a@b", "postgresql://***"),
        ("ana:a@host/x", "ana:***@host/x"),
        ("redis://:a", "redis://:***"),
        ("redis://:a/0", "redis://:***"),
        ("host=h password='a b'", "host=h password=***"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_no_password_is_shown_wherever_it_stands_and_whatever_is_in_it() -> None:
    chance = random.Random(SEED)
    for _ in range(5000):
        pieces = ["".join(chance.choices("abcdefgh0123", k=8)) for _ in range(chance.randrange(1, 4))]
        word = chance.choice(["@", ":", "/", "?", "#", "&", "=", "%", " ", "://", "?token=", "&key="]).join(pieces)
        for url in (
            f"postgresql://ana:{word}@host:5432/x",
            f"redis://:{word}@host",
            f"postgresql://host:5432/x?password={word}",
            f"postgresql://ana@host/x?lanes=2&sslpassword={word}",
            f"ana:{word}@host/x",
        ):
            shown = without_password(url)
            assert not [piece for piece in pieces if piece in shown], f"seed {SEED}: {url} → {shown}"
