"""The search language: what it says, and that nothing that is typed can break it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import pytest

from tests.console.browser import Browser
from tests.console.conftest import doubt
from umavez import Once
from umavez.console.search import MOST_TEXT, Comparison, Unreadable, parsed
from umavez.core.key import Key
from umavez.core.record import Query, Record, Status
from umavez.tokens import Tokens

KEY = Key("loja", "charge", "A-17")
RECORD = Record(KEY, "4b7f-1/2", 5, Status.FAILED, 2, 1_000_000, 1_500_000, error="Timeout: the bank said nothing")


def test_every_field_of_the_language_is_understood() -> None:
    search = parsed(
        "status:unknown op:charge scope:loja key:A-17 attempt:>1 age:>2h updated:<10m error:Timeout "
        "process:p-9 holder:web-3 -status:success -op:lease"
    )

    assert (search.status, search.operation, search.scope, search.key) == (Status.UNKNOWN, "charge", "loja", "A-17")
    assert (search.attempt, search.updated) == (Comparison(">", 1), Comparison("<", 600_000))
    assert (search.error, search.process, search.holder) == ("Timeout", "p-9", "web-3")
    assert search.not_status == {Status.SUCCESS}
    assert search.not_operation == {"lease"}
    assert search.query(50) == Query(
        "loja", "charge", "A-17", "p-9", Status.UNKNOWN, 7_200_000, limit=50, newest_first=True
    )


def test_values_may_be_quoted_and_words_stand_alone() -> None:
    assert parsed('op:"POST /orders"').operation == "POST /orders"
    assert parsed(r'key:"a \"b\" \\ c"').key == 'a "b" \\ c'
    assert parsed('"two words"').alone == "two words"
    assert parsed("8f3a90c1d2e4").alone == "8f3a90c1d2e4"
    assert parsed("urn:isbn:1").alone == "urn:isbn:1", "a key with a colon is a word"
    assert parsed("-17").alone == "-17"
    assert parsed("").alone is None
    assert parsed("status:lapsed").query(1).lapsed


def test_what_the_store_cannot_filter_by_is_sifted_afterwards() -> None:
    now = 2_000_000
    for text, wanted in (
        ("error:timeout", True),
        ("error:refused", False),
        ("attempt:2", True),
        ("attempt:>2", False),
        ("updated:<10m", True),
        ("updated:>10m", False),
        ("holder:4b7f", True),
        ("holder:web", False),
        ("-status:failed", False),
        ("-status:success", True),
        ("-op:charge", False),
    ):
        search = parsed(text)
        assert search.sifts, text
        assert search.wanted(RECORD, now) is wanted, text
    assert not parsed("op:charge age:<1h").sifts


@pytest.mark.parametrize(
    "text",
    [
        "status:done",
        "age:2h",
        "age:>2",
        "age:>2w",
        "attempt:many",
        "updated:x",
        "key:",
        '""',
        'key:"open',
        "-key:a",
        "two words",
        "word op:charge",
        "x" * (MOST_TEXT + 1),
        " ".join(["op:a"] * 21),
        "a\0b",
    ],
)
def test_what_cannot_be_understood_is_said_in_a_sentence(text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        parsed(text)

    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 200


def random_searches(chance: random.Random) -> Iterator[str]:
    """Ten thousand: half of them made of the language's own words and of odd characters, half of any characters."""
    words = "status: op: -op: -status: key: age:> updated:< attempt: error: 2h 99999999999d unknown lapsed a 0"
    parts = [*words.split(), *"\"\\:-><é\u202e\ud800%';(\t\n\x1f\ufffd💥 "]
    for number in range(10_000):
        if number % 2:
            yield "".join(chance.choice(parts) for _ in range(chance.randrange(30)))
        else:
            yield "".join(
                chr(chance.choice((chance.randrange(128), chance.randrange(0x11_0000))))
                for _ in range(chance.randrange(60))
            )


def test_ten_thousand_random_searches_are_understood_or_refused() -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # noqa: T201  # to repeat it
    understood = 0
    for text in random_searches(random.Random(seed)):
        try:
            search = parsed(text)
        except Unreadable:
            continue
        understood += 1
        search.query(50)
        search.wanted(RECORD, 2_000_000)
        assert parsed(search.text) == search, "a search that is shared means the same"
    assert understood


@pytest.mark.slow
def test_ten_thousand_random_searches_get_a_page(browser: Browser, sqlite_once: Once) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # noqa: T201  # to repeat it
    doubt(sqlite_once, "A-17")
    answers = Counter[int]()
    for text in random_searches(random.Random(seed)):
        asked = quote(text.encode("utf-8", "surrogatepass"), safe="")
        answer = browser.client.get(f"/records?q={asked}", follow_redirects=False)
        answers[answer.status_code] += 1
        assert answer.status_code in (200, 303, 400), (seed, text, answer.text)
    assert answers[200] > 1000
    assert answers[400] > 1000, "what cannot be understood is said so, with what it finds without it"


def test_what_failed_is_not_a_key_that_is_free_or_a_token_that_waits(once: Once) -> None:
    with suppress(ValueError):
        once.run("charge", key="tried", call=lambda: int("x"), free=(ValueError,), unknown="hold")
    with suppress(ValueError):
        once.run("charge", key="freed", call=lambda: int("x"), free=(ValueError,), unknown="hold")
    once.release("charge", "freed", by="ana", reason="nothing was sent to the bank")
    Tokens(once, "confirm", unknown="hold").issue("ana", {"ride": 1})
    search = parsed(f'status:failed scope:"{once.scope}"')
    now = once.store.read(Key(once.scope, "clock", "now")).now
    found = [record for record in once.store.find(search.query(50)) if search.wanted(record, now)]
    assert search.sifts
    assert [record.key.value for record in found] == ["tried"]
