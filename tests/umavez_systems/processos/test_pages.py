"""Processes over HTTP, as pages and from the command line (S3.08, S3.11)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from httpx import Client
from pydantic import SecretStr
from typer.testing import CliRunner

from tests.umavez_systems.processos.conftest import Payer, claim
from umavez.cli.app import app
from umavez_systems.processos.engine import builtin, parsed
from umavez_systems.processos.pagina.drawing import drawing
from umavez_systems.settings import Settings


def started(client: Client, number: str, **more: Any) -> dict[str, Any]:
    made = client.post("/api/v1/processos", json={"id": number, "claimData": claim(), "prazo": "PT0S", **more})
    assert made.status_code in (200, 201), made.text
    found: dict[str, Any] = made.json()
    return found


def test_s3_10_an_instance_goes_through_the_payers_lost_answers_to_its_end(client: Client, payer: Payer) -> None:
    payer.meets("ok", "lose_after", "ok", "lose_after")
    shown = started(client, "p1")
    for _ in range(4):
        shown = client.post("/api/v1/processos/p1/retomar").json()
    detail = client.get("/api/v1/processos/p1").json()

    assert (shown["estado"], shown["desfecho"]) == ("encerrado", "End_Paid")
    assert started(client, "p1")["estado"] == "encerrado"
    assert [record["operationName"] for record in detail["registros"]] == [
        "check_eligibility",
        "submit_claim",
        "process_payment",
    ]
    assert [step["evento"] for step in detail["historico"] if step["atividade"] == "Task_SubmitClaim"] == [
        "adiada",
        "concluída",
    ]
    assert detail["tarefas"]["process_payment"] == "COMPLETED"
    assert len(payer.submissions) == len(payer.payments) == 1


def test_lists_pages_and_details_show_no_patient(client: Client, payer: Payer) -> None:
    payer.meets("ok", "lose_after")
    started(client, "p1")
    paths = ("/api/v1/processos", "/api/v1/processos/p1", "/processos", "/processos/p1", "/api/v1/idempotency_records")
    for path in paths:
        shown = client.get(path)
        assert shown.status_code == 200
        assert "Maria" not in shown.text
        assert "00123456789" not in shown.text
    assert client.get("/api/v1/processos", params={"estado": "ativo"}).json()["itens"][0]["id"] == "p1"
    assert client.get("/api/v1/processos/nada").status_code == 404
    assert client.get("/processos/nada").status_code == 404


def test_the_page_draws_the_process_with_the_state_and_the_record_of_each_task(client: Client, payer: Payer) -> None:
    payer.meets("ok", "lose_after")
    started(client, "p1")
    page = client.get("/processos/p1")
    picture = parsed(page.text[page.text.index("<svg") : page.text.index("</svg>") + 6])
    tasks = {"".join(group.find("title").itertext()): group for group in picture.iter("g")}

    assert "script-src" not in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert "Conferir elegibilidade: feito" in tasks
    assert "started" in tasks["Enviar lote: em curso"].get("class", "")
    assert "UNKNOWN" in "".join(tasks["Enviar lote: em curso"].itertext())
    assert "future" in tasks["Pago: não alcançado"].get("class", "")


def test_every_shape_is_drawn_where_the_diagram_puts_it() -> None:
    picture = parsed(drawing(builtin(), {}, {}))
    (task,) = [rect for rect in picture.iter("rect") if rect.get("x") == "440"]

    assert (task.get("y"), task.get("width"), task.get("height")) == ("80", "120", "80")
    assert len(list(picture.iter("rect"))) == 3
    assert len(list(picture.iter("circle"))) == 6
    assert len(list(picture.iter("polyline"))) == 8


def test_names_from_outside_are_escaped(client: Client) -> None:
    assert "<b>" not in client.get("/processos/<b>x</b>").text
    assert started(client, "a:b.c_d-e")["estado"] == "encerrado"
    assert client.get("/processos/a:b.c_d-e").status_code == 200
    assert client.post("/api/v1/processos", json={"id": "<script>", "claimData": claim()}).status_code == 422


def test_a_principal_does_not_see_anothers_processes_and_records(serving: Any, settings: Settings) -> None:
    keys = "ana:0123456789abcdef,bia:fedcba9876543210"
    ana, bia = ({"Authorization": f"Bearer {key.partition(':')[2]}"} for key in keys.split(","))
    with serving(settings.model_copy(update={"api_keys": SecretStr(keys)})) as client:
        body = {"id": "p1", "claimData": claim(), "prazo": "PT0S"}
        assert client.post("/api/v1/processos", json=body).status_code == 401
        assert client.get("/processos/p1").status_code == 401
        assert client.post("/api/v1/processos", json=body, headers=ana).status_code == 201
        (key, *_) = [
            record["idempotencyKey"]
            for record in client.get("/api/v1/idempotency_records", headers=ana).json()["records"]
        ]
        assert client.get(f"/api/v1/idempotency_records/{key}", headers=bia).status_code == 404
        assert client.get("/api/v1/idempotency_records", headers=bia).json()["records"] == []
        assert client.get("/api/v1/processos/p1", headers=bia).status_code == 404


@pytest.fixture
def command(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`umavez processos …` on the test's database."""
    for name in ("database", "portal_url", "portal_quiet_seconds", "portal_timeout_seconds"):
        monkeypatch.setenv(f"UMAVEZ_{name.upper()}", str(getattr(settings, name)))
    (tmp_path / "lote.json").write_text(json.dumps(claim()))

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["processos", *arguments])

    return run


def test_the_command_line_starts_resumes_lists_and_shows_a_timeline(command: Any, payer: Payer, tmp_path: Path) -> None:
    payer.meets("ok", "lose_after")
    begun = command("start", str(tmp_path / "lote.json"), "--id", "p1", "--prazo", "PT0S")
    assert begun.output.split() == ["p1", "ativo"]
    assert command("resume", "p1").output.split() == ["p1", "encerrado", "End_Paid"]
    assert command("list").output.split() == ["p1", "encerrado", "End_Paid"]
    assert json.loads(command("list", "--json").output)["itens"][0]["desfecho"] == "End_Paid"
    shown = command("show", "p1").output
    lines = [line.split() for line in shown.splitlines()]

    assert ["SUCCESS", "submit_claim", "repetições", "0"] in lines
    assert [line[1:3] for line in lines if "concluída" in line] == [
        ["Task_CheckEligibility", "concluída"],
        ["Task_SubmitClaim", "concluída"],
        ["process_payment", "concluída"],
    ]
    assert "adopted (far side)" in shown
    assert "Maria" not in shown
    assert len(payer.submissions) == 1


def test_the_command_line_works_on_what_is_due_and_says_errors_in_one_sentence(
    command: Any, payer: Payer, tmp_path: Path
) -> None:
    assert command("work", "--once").output == "0 instance(s) moved on.\n"
    missing = command("show", "nada")
    assert (missing.exit_code, missing.output) == (1, "umavez: Não há processo 'nada'.\n")
    (tmp_path / "lote.json").write_text("{")
    assert command("start", str(tmp_path / "lote.json")).exit_code == 2


def test_s3_09_a_sealed_result_is_opened_from_the_command_line(
    serving: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", f"k1:{base64.b64encode(bytes(32)).decode()}")
    body = {"processInstanceId": "ward/7", "activityId": "Task_SubmitClaim", "claimData": claim()}
    with serving(settings) as client:
        key = client.post("/api/v1/submit_claim", json=body).json()["idempotencyKey"]
    words = ["processos", "record", key, "--database", settings.database]

    assert "resultData" not in json.loads(CliRunner().invoke(app, words).stdout)
    assert json.loads(CliRunner().invoke(app, [*words, "--result"]).stdout)["resultData"]["claimId"] == "CLM-000001"
