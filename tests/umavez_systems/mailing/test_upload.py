"""Upload: the same file is the same mailing, whatever happens on the way."""

from __future__ import annotations

import asyncio
import re
import socket
import time
import unicodedata
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.umavez_systems.mailing.conftest import client_settings as settings
from tests.umavez_systems.mailing.conftest import query, send
from tests.umavez_systems.mailing.far import Far, mailed, work
from umavez_systems.mailing.ingest.uploads import receive, spooled
from umavez_systems.mailing.ports import Answer, Fate
from umavez_systems.problems import Problem
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

__all__ = ["settings"]
LIST = "email\nuser@test.com\n"


class TestMailingUploadIdempotency:
    """The seed's first group."""

    def test_should_return_same_mailing_for_duplicate_filename(self, client: httpx.Client, settings: Settings) -> None:
        first = send(client, "test.csv", LIST)
        again = send(client, "test.csv", LIST)

        assert (first.status_code, first.json()["created"], first.json()["status"]) == (201, True, "QUEUED")
        assert (again.status_code, again.json()["created"]) == (200, False)
        assert again.json()["mailingId"] == first.json()["mailingId"]
        assert query(settings, "SELECT count(*) FROM mailings WHERE filename = 'test.csv'") == [(1,)]


def test_s2_01_concurrent_uploads_make_one_mailing_one_file_and_one_message(
    client: httpx.Client, settings: Settings
) -> None:
    """S2.06."""
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: send(client, "test.csv", LIST), range(16)))

    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    assert len({answer.json()["mailingId"] for answer in answers}) == 1
    assert query(settings, "SELECT count(*) FROM umavez_outbox") == [(1,)]
    assert len(list((Path(settings.storage)).iterdir())) == 1


def test_s2_01_a_name_with_composed_or_decomposed_letters_is_one_name(client: httpx.Client, settings: Settings) -> None:
    composed, decomposed = (unicodedata.normalize(form, "relatório.csv") for form in ("NFC", "NFD"))
    first = send(client, decomposed, LIST)
    again = [send(client, name, LIST) for name in (composed, decomposed)]

    assert (first.status_code, [answer.status_code for answer in again]) == (201, [200, 200])
    assert {answer.json()["mailingId"] for answer in again} == {first.json()["mailingId"]}
    assert query(settings, "SELECT filename FROM mailings") == [(composed,)]
    # One that was taken as it came, before names were composed.
    query(settings, f"UPDATE mailings SET filename = '{decomposed}', content_hash = ''")
    assert send(client, composed, LIST).json()["mailingId"] == first.json()["mailingId"]


def test_s2_02_other_content_under_the_same_name_is_said_and_under_conteudo_is_another_mailing(
    client: httpx.Client,
) -> None:
    first = send(client, "a.csv", LIST).json()
    other = send(client, "a.csv", "email\nx@test.com\n").json()
    assert (other["mailingId"], other["created"], other["conteudoDiferente"]) == (first["mailingId"], False, True)
    assert not send(client, "a.csv", LIST).json()["conteudoDiferente"]

    new = send(client, "a.csv", "email\nx@test.com\n", identidade="conteudo").json()
    assert new["created"]
    assert send(client, "a.csv", "email\nx@test.com\n", identidade="conteudo").json()["mailingId"] == new["mailingId"]
    # The first content again, however it is asked for, is the first mailing.
    assert send(client, "a.csv", LIST, identidade="conteudo").json()["mailingId"] == first["mailingId"]


def test_s2_02_the_tables_have_the_seeds_names(client: httpx.Client, settings: Settings) -> None:
    if settings.database.startswith("sqlite"):
        found = " ".join(row[0] for row in query(settings, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))
        assert "unique_mailing_email" in found
    else:
        found = " ".join(row[0] for row in query(settings, "SELECT indexdef FROM pg_indexes"))
        kinds = dict(
            query(
                settings,
                "SELECT column_name, data_type || coalesce(character_maximum_length::text, '')"
                " FROM information_schema.columns WHERE table_name = 'mailing_entries'",
            )
        )
        assert (kinds["id"], kinds["mailing_id"], kinds["token"]) == (
            "uuid",
            "character varying255",
            "character varying255",
        )
    for name in ("idx_mailings_filename", "idx_mailing_entries_mailing_id", "idx_mailing_entries_status"):
        assert name in found


def test_an_idempotency_key_works_too_and_refuses_other_content(client: httpx.Client) -> None:
    first = send(client, "k.csv", LIST, key="k1")
    again = send(client, "k.csv", LIST, key="k1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["mailingId"] == first.json()["mailingId"]
    refused = send(client, "k2.csv", "email\nz@test.com\n", key="k1")
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")


def test_a_request_with_a_key_that_reads_again_reads_once(
    client: httpx.Client, beside: Carrier, settings: Settings
) -> None:
    mailing = mailed(client, beside, LIST, Far(user=Answer(Fate.REFUSED, "554 no")))
    again = {"reingestao": "repor", "key": "r1"}
    assert send(client, "a.csv", LIST, **again).json()["status"] == "QUEUED"
    work(beside, mailing, Far(user=Answer(Fate.REFUSED, "554 no")))
    replayed = send(client, "a.csv", LIST, **again)
    assert (replayed.status_code, replayed.json()["status"]) == (200, "SENT")
    assert query(settings, "SELECT status FROM mailing_entries") == [("FAILED",)]
    assert len(list(Path(settings.storage).iterdir())) == 2  # what it was read from first, and again
    # The same key with another wish is another request.
    assert send(client, "a.csv", LIST, key="r1", duvida="reenviar").status_code == 422


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "vazio"),
        (b"\n\r\n;;\n", "vazio"),
        (b"nome,cidade\nAna,Natal\n", "sem-email"),
        (b"x" * (1 << 21), "linha-longa"),
        (b"email," + b",".join(b"c%d" % number for number in range(9_999)) + b"\na@b.com\n", "colunas-demais"),
        ("email\na@b.com\n".encode("utf-16"), "codificacao"),
        (b"PK\x03\x04 planilha", "formato"),
    ],
    ids=["empty", "blank", "no e-mail", "one endless line", "10000 columns", "utf-16", "spreadsheet"],
)
def test_a_list_that_cannot_be_read_is_refused_with_a_reason(
    client: httpx.Client, settings: Settings, content: bytes, reason: str
) -> None:
    refused = send(client, "a.csv", content)
    assert (refused.status_code, refused.json()["arquivo"]) == (422, reason)
    assert query(settings, "SELECT count(*) FROM mailings") == [(0,)]
    assert list((Path(settings.storage)).iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"assunto": "Oi\r\nBcc: todos@x.com"}, "quebras de linha"),
        ({"remetente": "a@b.com\nBcc: c@d.com"}, "quebras de linha"),
        ({"remetente": "ninguém"}, "endereço válido"),
        ({"texto": "{{ nome }}"}, "nome"),
        ({"texto": "{% for a in range(9) %}{% endfor %}"}, "não é aceito"),
        ({"texto": "{{ 'a' * 99999999 }}"}, "não é aceito"),
        ({"texto": "{{ email"}, "linha 1"),
        ({"template": "nenhum"}, "modelo"),
        ({"template": "a\x00b"}, "NUL"),
        ({"identidade": "hash"}, "identidade"),
        ({"outro": "x"}, "outro"),
    ],
)
def test_a_field_that_cannot_be_taken_is_refused(client: httpx.Client, fields: dict[str, str], words: str) -> None:
    refused = send(client, "a.csv", LIST, **fields)
    assert refused.status_code == 422, refused.text
    assert words in refused.json()["detail"]


@pytest.mark.parametrize("name", ["a" * 256 + ".csv", "..", "a\x00b.csv"])
def test_a_name_that_cannot_be_kept_is_refused_or_is_a_name(client: httpx.Client, name: str) -> None:
    assert send(client, name, LIST).status_code in (201, 400, 422)


@pytest.mark.parametrize("name", ["../../etc/passwd", "C:\\dados\\passwd", "/passwd"])
def test_a_name_with_folders_is_its_last_part_and_no_path(client: httpx.Client, settings: Settings, name: str) -> None:
    made = send(client, name, LIST)
    assert (made.status_code, made.json()["filename"]) == (201, "passwd")
    assert made.headers["location"] == f"/mailings/{made.json()['mailingId']}"
    (kept,) = (path.name for path in Path(settings.storage).iterdir())
    assert re.fullmatch(rf"{made.json()['mailingId']}\.[0-9a-f]{{8}}\.csv", kept)


def test_a_cut_upload_leaves_nothing(client: httpx.Client, settings: Settings) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="cut.csv"\r\n\r\nemail\na@b.com\n'
    cut = client.post("/mailings", content=head, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert (cut.status_code, cut.json()["type"].rpartition("/")[2]) == (400, "formulario")
    assert client.post("/mailings", json={}).status_code == 415
    assert query(settings, "SELECT count(*) FROM mailings") == [(0,)]
    assert list((Path(settings.storage)).iterdir()) == []


def test_a_client_that_leaves_in_the_middle_leaves_nothing(client: httpx.Client, settings: Settings) -> None:
    head = b"POST /mailings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="half.csv"\r\n\r\nemail\n'
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), 20) as half:
        half.sendall(head + b"Content-Length: 100000\r\n\r\n" + part + b"a@b.com\n" * 100)
        spooled = Path(settings.storage)
        while not list(spooled.iterdir()):
            assert client.get("/health").status_code == 200
    deadline = time.monotonic() + 20
    while list(spooled.iterdir()):
        assert time.monotonic() < deadline, list(spooled.iterdir())
    assert query(settings, "SELECT count(*) FROM mailings") == [(0,)]


def test_a_line_without_end_is_refused_at_its_beginning(tmp_path: Path) -> None:
    sent: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
        for _ in range(2_000):
            sent.append(1_000_000)
            yield b"x" * 1_000_000

    with spooled(tmp_path) as spool, pytest.raises(Problem, match="primeira linha"):
        asyncio.run(receive("multipart/form-data; boundary=b", endless(), spool, 2 << 30))
    assert sum(sent) <= 3_000_000
    assert list(tmp_path.iterdir()) == []


def test_a_list_above_the_limit_is_refused(database: str, tmp_path: Path, serving: Any) -> None:
    settings = Settings(database=database, storage=f"{tmp_path}/lists", mailing_max_bytes=1000, mailing_embedded="off")
    with serving(settings) as client:
        assert send(client, "a.csv", "email\n" + "a@b.com\n" * 200).status_code == 413


def test_one_principal_never_sees_anothers_mailing(database: str, tmp_path: Path, serving: Any) -> None:
    keys = "ana:0123456789abcdef,bia:fedcba9876543210"
    settings = Settings(database=database, storage=f"{tmp_path}/lists", api_keys=keys, mailing_embedded="off")
    with serving(settings) as client:
        assert send(client, "a.csv", LIST).status_code == 401
        client.headers["Authorization"] = "Bearer 0123456789abcdef"
        ana = send(client, "a.csv", LIST).json()["mailingId"]
        client.headers["Authorization"] = "Bearer fedcba9876543210"
        bia = send(client, "a.csv", LIST)
        assert (bia.status_code, bia.json()["filename"]) == (201, "a.csv")
        assert client.get(f"/mailings/{ana}").status_code == 404
        assert client.get(f"/mailings/{ana}/entries").status_code == 404
        assert client.post(f"/mailings/{ana}/cancelar").status_code == 404
        assert [item["mailingId"] for item in client.get("/mailings").json()["itens"]] == [bia.json()["mailingId"]]


def test_a_page_of_another_site_cannot_upload(client: httpx.Client) -> None:
    form = {"file": ("a.csv", b"email\na@b.com\n")}
    assert client.post("/mailings", files=form, headers={"Origin": "https://mau.example"}).status_code == 403
    own = f"http://{client.base_url.netloc.decode()}"
    assert client.post("/mailings", files=form, headers={"Origin": own}).status_code == 201


def test_mailings_are_paged_newest_first(client: httpx.Client) -> None:
    made = [send(client, f"{number}.csv", LIST).json()["mailingId"] for number in range(5)]
    first = client.get("/mailings", params={"limite": 3}).json()
    rest = client.get("/mailings", params={"limite": 3, "depois": first["proximo"]}).json()
    assert [item["mailingId"] for item in first["itens"] + rest["itens"]] == made[::-1]
    assert rest["proximo"] is None
    assert client.get("/mailings/nada").status_code == 404
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", first["itens"][0]["contentHash"])
