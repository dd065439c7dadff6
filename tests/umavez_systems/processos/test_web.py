"""Seed 003 over HTTP: submit_claim against a payer that answers, loses its answers, refuses and is busy."""

from __future__ import annotations

import base64
import logging
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from httpx import Client, Response

from tests.umavez_systems.processos.conftest import Payer, claim
from umavez_systems.problems import Problem
from umavez_systems.processos.attempts import Step
from umavez_systems.settings import Settings

INSTANCE = "a3f2e1d4-5c6b-7a8b-9c0d-1e2f3a4b5c6d"


def submit(client: Client, data: dict[str, Any] | None = None, instance: str = INSTANCE) -> Response:
    body = {"processInstanceId": instance, "activityId": "Task_SubmitClaim", "claimData": data or claim()}
    return client.post("/api/v1/submit_claim", json=body)


def record(client: Client, key: str, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/v1/idempotency_records/{key}", params=query).json()
    return found


def records(client: Client, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/v1/idempotency_records", params=query).json()["records"]
    return found


def query(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    if settings.database.startswith("sqlite"):
        connection = sqlite3.connect(settings.database.removeprefix("sqlite:///"))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(settings.database) as server:
        return server.execute(sql.encode()).fetchall()


def test_s3_11_a_claim_is_submitted_once_and_repeats_get_the_same_answer(client: Client, payer: Payer) -> None:
    first, second = submit(client), submit(client)

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["idempotent-replayed"] == "true"
    assert first.json() == second.json()
    assert first.json()["claimId"] == "CLM-000001"
    assert len(payer.submissions) == 1


def test_s3_01_the_record_has_every_field_of_the_seed(client: Client, settings: Settings) -> None:
    key = submit(client).json()["idempotencyKey"]
    shown = record(client, key, result=True)

    assert shown["idempotencyKey"] == key
    assert shown["processInstanceId"] == INSTANCE
    assert (shown["activityId"], shown["operationName"]) == ("Task_SubmitClaim", "submit_claim")
    assert (shown["status"], shown["retryCount"], shown["errorMessage"]) == ("SUCCESS", 0, None)
    assert shown["resultData"] == {"claimId": "CLM-000001", "status": "recebido", "lote": "L-1", "valor": "150.00"}
    assert shown["createdAt"] <= shown["updatedAt"] < shown["expiresAt"]
    columns = (
        "idempotency_key, process_instance_id, activity_id, operation_name, status, result_data, error_message,"
        " retry_count, created_at, updated_at, expires_at"
    )
    assert len(query(settings, f"SELECT {columns} FROM idempotency_records")) == 1
    assert query(settings, "SELECT id FROM idempotency_records") == [(shown["id"],)]


def test_s3_01_the_id_stays_while_an_operation_is_tried_again(client: Client, payer: Payer) -> None:
    payer.meets("busy")
    assert submit(client).status_code == 503
    (before,) = records(client)
    assert submit(client).status_code == 201
    (after,) = records(client)

    assert (before["status"], after["status"]) == ("FAILED", "SUCCESS")
    assert before["id"] == after["id"]


@pytest.mark.parametrize(("instance", "activity"), [("x" * 65, "a"), ("i", "x" * 256), ("", "a"), ("i", "")])
def test_s3_01_an_instance_or_activity_beyond_the_seeds_columns_is_refused_whoever_asks(
    instance: str, activity: str
) -> None:
    with pytest.raises(Problem, match="caracteres"):
        Step("local", instance, activity)
    assert Step("local", "x" * 64, "x" * 255).key("submit_claim", {})


def test_s3_02_the_key_is_that_of_the_content_in_any_order(client: Client) -> None:
    data = claim()
    turned = dict(reversed([(name, value) for name, value in data.items() if name != "guias"]))
    turned["guias"] = [dict(reversed(data["guias"][0].items()))]
    key = submit(client, data).json()["idempotencyKey"]

    assert submit(client, turned).json()["idempotencyKey"] == key
    assert key.startswith(f"{INSTANCE}_Task_SubmitClaim_submit_claim_")
    assert len(key) <= 255
    assert submit(client, claim("2")).json()["idempotencyKey"] != key


def test_s3_03_a_failure_is_recorded_and_the_same_row_runs_again(
    client: Client, payer: Payer, settings: Settings
) -> None:
    payer.meets("busy")
    failed = submit(client)
    (row,) = records(client, process_instance_id=INSTANCE)

    assert (failed.status_code, failed.headers["retry-after"]) == (503, "1")
    assert (row["status"], row["retryCount"], row["hasResult"]) == ("FAILED", 0, False)
    assert "429" in row["errorMessage"]
    assert submit(client).status_code == 201
    (row,) = records(client, process_instance_id=INSTANCE)
    assert (row["status"], row["retryCount"], row["errorMessage"]) == ("SUCCESS", 1, None)
    assert query(settings, "SELECT count(*) FROM idempotency_records") == [(1,)]
    assert len(payer.submissions) == 1


def test_s3_03_a_refusal_of_the_payer_is_final_and_replayed(client: Client, payer: Payer) -> None:
    refused = [submit(client, claim(procedimento="00000000")) for _ in range(3)]

    assert [answer.status_code for answer in refused] == [422, 422, 422]
    assert all(answer.json()["codigo"] == "1801" for answer in refused)
    (row,) = records(client, process_instance_id=INSTANCE)
    assert (row["status"], row["retryCount"]) == ("FAILED", 0)
    assert payer.submissions == []


def test_s3_04_a_second_caller_meanwhile_is_told_that_it_is_in_progress(client: Client, payer: Payer) -> None:
    payer.meets("hang_after")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(submit, client)
        while not records(client, status="PENDING"):
            pass
        second = submit(client)
    assert second.status_code == 409
    assert second.json()["type"].endswith("em-andamento")
    assert second.json()["retryable"] is True
    assert slow.result().json()["type"].endswith("resultado-desconhecido")
    assert submit(client).status_code == 200
    assert len(payer.submissions) == 1


def test_s3_04_used_up_retries_are_another_error_until_somebody_frees_the_key(client: Client, payer: Payer) -> None:
    payer.meets(*["busy"] * 4)
    for _ in range(4):
        assert submit(client).json()["type"].endswith("portal-ocupado")
    spent = submit(client)

    assert spent.status_code == 409
    assert spent.json()["type"].endswith("tentativas-esgotadas")
    assert spent.json()["retryable"] is False
    assert payer.submissions == []
    key = spent.json()["idempotencyKey"]
    freed = client.post(
        f"/api/v1/idempotency_records/{key}/resolve",
        json={"happened": False, "reason": "portal voltou"},
        headers={"X-Usuario": "ana"},
    )
    assert freed.json()["evidence"][-1] == {
        "at": freed.json()["evidence"][-1]["at"],
        "what": "released",
        "by": "local (em nome de ana)",
        "reason": "portal voltou",
    }
    assert submit(client).status_code == 201


@pytest.mark.parametrize("fault", ["lose_after", "hang_after", "error_after"])
def test_s3_05_an_answer_lost_after_acting_is_adopted_and_never_sent_again(
    client: Client, payer: Payer, fault: str
) -> None:
    payer.meets(fault)
    lost = submit(client)
    (row,) = records(client, status="UNKNOWN")

    assert lost.status_code == 503
    assert lost.json()["type"].endswith("resultado-desconhecido")
    assert row["expiresAt"] is None
    again = submit(client)
    assert (again.status_code, again.json()["claimId"]) == (200, "CLM-000001")
    assert record(client, row["idempotencyKey"])["evidence"][-1]["what"] == "adopted"
    assert len(payer.submissions) == 1


@pytest.mark.parametrize("fault", ["lose_before", "hang_before", "error_before"])
def test_s3_05_an_answer_lost_before_acting_is_sent_again_with_evidence(
    client: Client, payer: Payer, fault: str
) -> None:
    payer.meets(fault)
    assert submit(client).status_code == 503
    again = submit(client)

    assert again.status_code == 201
    shown = record(client, again.json()["idempotencyKey"])
    assert (shown["evidence"][-1]["what"], shown["retryCount"]) == ("not happened", 1)
    assert len(payer.submissions) == 1


def test_s3_05_while_the_payer_cannot_be_asked_the_outcome_stays_unknown(client: Client, payer: Payer) -> None:
    # Each question is asked three times at once before it counts as unanswered.
    payer.meets("lose_after", *["lose_before"] * 3, *["error_before"] * 3)
    for _ in range(3):
        assert submit(client).json()["type"].endswith("resultado-desconhecido")
    assert submit(client).status_code == 200
    assert len(payer.submissions) == 1


def test_not_there_means_nothing_while_the_request_may_be_on_its_way(
    serving: Any, settings: Settings, payer: Payer
) -> None:
    """A request that is handled late: asking too early finds nothing, and sending again would make two."""
    patient = settings.model_copy(update={"portal_quiet_seconds": 60})
    with serving(patient) as client:
        payer.meets("late")
        assert submit(client).status_code == 503
        early = submit(client)
        while not payer.submissions:
            pass
        late = submit(client)
    assert early.status_code == 503
    assert late.json()["claimId"] == "CLM-000001"
    assert len(payer.submissions) == 1


def test_s3_07_results_live_for_24_hours_from_completion(client: Client, settings: Settings) -> None:
    submit(client)
    lasts = (
        "expires_at - updated_at"
        if settings.database.startswith("sqlite")
        else ("extract(epoch from expires_at - updated_at) * 1000")
    )
    ((found,),) = query(settings, f"SELECT {lasts} FROM idempotency_records")

    assert int(found) == 24 * 3600 * 1000
    assert settings.sweep_seconds == 3600


def test_s3_08_stuck_operations_are_found_by_status_and_age(client: Client, payer: Payer) -> None:
    payer.meets("lose_after", "ok")
    submit(client)
    submit(client, claim("2"), instance="other")

    assert [row["processInstanceId"] for row in records(client, status="UNKNOWN", older_than=0)] == [INSTANCE]
    assert records(client, status="UNKNOWN", older_than=3600) == []
    assert [row["status"] for row in records(client, process_instance_id="other")] == ["SUCCESS"]
    assert client.get("/api/v1/idempotency_records/nada").status_code == 404


def test_s3_08_a_key_with_slashes_is_found_and_resolved(client: Client, payer: Payer) -> None:
    payer.meets("lose_after")
    submit(client, instance="ward/7/resolve")
    (row,) = records(client, status="UNKNOWN")
    path = f"/api/v1/idempotency_records/{row['idempotencyKey']}"

    assert client.get(path).json()["processInstanceId"] == "ward/7/resolve"
    assert client.get(path.replace("ward/7", "ward%2F7")).status_code == 200
    assert client.post(f"{path}/resolve", json={"happened": False, "reason": "visto"}).status_code == 200


def test_s3_08_an_unknown_outcome_can_be_closed_by_decision(client: Client, payer: Payer) -> None:
    payer.meets("lose_after")
    submit(client)
    (row,) = records(client, status="UNKNOWN")
    path = f"/api/v1/idempotency_records/{row['idempotencyKey']}/resolve"
    said = {"happened": True, "result": {"claimId": "CLM-9", "valor": "10.00"}, "reason": "visto no extrato"}

    assert client.post(path, json=said).json()["status"] == "SUCCESS"
    assert client.post(path, json=said).status_code == 409
    assert submit(client).json()["claimId"] == "CLM-9"


@pytest.mark.parametrize("result", [None, {}, {"claimId": "CLM-9"}, {"claimId": 9, "valor": "10.00"}])
def test_s3_08_a_decision_that_nobody_could_go_on_with_is_refused(client: Client, payer: Payer, result: Any) -> None:
    payer.meets("lose_after")
    submit(client)
    (row,) = records(client, status="UNKNOWN")
    path = f"/api/v1/idempotency_records/{row['idempotencyKey']}/resolve"

    refused = client.post(path, json={"happened": True, "result": result, "reason": "visto no extrato"})

    assert refused.status_code == 422
    assert "claimId" in refused.json()["detail"]
    assert [row["status"] for row in records(client)] == ["UNKNOWN"]


def test_a_decision_keeps_its_numbers_exact(client: Client, payer: Payer) -> None:
    payer.meets("lose_after")
    submit(client)
    (row,) = records(client, status="UNKNOWN")
    path = f"/api/v1/idempotency_records/{row['idempotencyKey']}"
    said = '{"happened": true, "result": {"claimId": "CLM-9", "valor": "1", "pago": 150.10}, "reason": "visto"}'

    assert client.post(f"{path}/resolve", content=said, headers={"Content-Type": "application/json"}).status_code == 200
    assert '"pago": 150.10' in client.get(path, params={"result": True}).text
    assert '"pago": 150.10' in submit(client).text


def test_s3_09_results_are_sealed_at_rest_and_open_for_who_asks(
    serving: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", f"k1:{base64.b64encode(bytes(32)).decode()}")
    with serving(settings) as client:
        key = submit(client).json()["idempotencyKey"]
        started = client.post("/api/v1/processos", json={"id": "p1", "claimData": claim("2"), "prazo": "PT0S"})
        assert started.json().get("estado") == "encerrado", started.text
        assert submit(client).json()["claimId"] == "CLM-000001"
        assert record(client, key, result=True)["resultData"]["claimId"] == "CLM-000001"
    stored = query(settings, "SELECT result_data FROM idempotency_records")
    stored += query(settings, "SELECT conteudo FROM processos")

    assert len(stored) == 5
    assert all(text.startswith('{"$sealed"') for (text,) in stored)


@pytest.mark.parametrize("later", ["", f"k2:{base64.b64encode(bytes([7]) * 32).decode()}"], ids=["no key", "another"])
def test_s3_09_what_cannot_be_opened_is_neither_shown_nor_run_again(
    serving: Any, settings: Settings, payer: Payer, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """A server restarted without the keys, or with others, says so: no sealed text, no traceback, no second run."""
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", f"k1:{base64.b64encode(bytes(32)).decode()}")
    with serving(settings) as client:
        key = submit(client).json()["idempotencyKey"]
        client.post("/api/v1/processos", json={"id": "p1", "claimData": claim("2"), "prazo": "PT0S"})
        sent = len(payer.submissions)
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", later)
    paths = [f"/api/v1/idempotency_records/{key}?result=true", "/api/v1/processos/p1", "/processos/p1"]
    with serving(settings) as client:
        answers = [submit(client), *(client.get(path) for path in paths)]
        again = client.post("/api/v1/processos", json={"id": "p1", "claimData": claim("2"), "prazo": "PT0S"})
        resumed = client.post("/api/v1/processos/p1/retomar")
        lists = [client.get(path) for path in ("/api/v1/processos", "/processos", "/api/v1/idempotency_records")]

    for answer in (*answers, again, resumed):
        assert "$sealed" not in answer.text
        assert "erro-interno" not in answer.text, (answer.request.url, answer.text)
    assert answers[0].status_code == 503
    assert {answer.status_code for answer in lists} == {200}
    assert len(payer.submissions) == sent


def test_s3_09_unsealed_patient_data_is_warned_of(
    serving: Any, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(settings):
        pass
    assert [entry.levelname for entry in caplog.records if "unsealed" in entry.getMessage()] == ["WARNING"]


def test_s3_09_retries_are_logged_and_no_patient_is(
    client: Client, payer: Payer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    payer.meets("busy")
    submit(client)
    submit(client)
    client.post("/api/v1/processos", json={"claimData": claim("2"), "prazo": "PT0S"})

    logged = [f"{entry.getMessage()} {vars(entry)}" for entry in caplog.records]
    assert any("Retry 1 of submit_claim" in text for text in logged)
    assert not [text for text in logged if "Maria" in text or "00123456789" in text]


def test_a_guia_the_payer_knows_from_us_is_recognised_and_from_others_refused(
    serving: Any, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.umavez_systems.processos.conftest import simulated

    for payer in simulated(tmp_path_factory.mktemp("strict"), "--refuse-duplicates"):
        with serving(settings.model_copy(update={"portal_url": payer.url})) as client:
            assert submit(client).status_code == 201
            other = submit(client, instance="another")
        assert (other.status_code, other.json()["codigo"]) == (422, "1308")
        assert len(payer.submissions) == 1


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"guias": []}, "guias"),
        ({"guias": claim()["guias"] * 101}, "100"),
        ({"guias": claim()["guias"] * 2}, "mais de uma vez"),
        ({"tipoGuia": "outra"}, "tipoGuia"),
        ({"numeroLote": "1234567890123"}, "numeroLote"),
        ({"operadora": "12"}, "operadora"),
        ({"guias": [{**claim()["guias"][0], "tipoGuia": "consulta"}]}, "um tipo"),
        ({"guias": [{**claim()["guias"][0], "valor": "1.001"}]}, "casas decimais"),
        ({"guias": [{**claim()["guias"][0], "dataAtendimento": "ontem"}]}, "dataAtendimento"),
        ({"guias": [{**claim()["guias"][0], "dataAtendimento": "2026-W01-1"}]}, "dataAtendimento"),
        ({"guias": [{**claim()["guias"][0], "dataAtendimento": "2999-01-01"}]}, "futuro"),
        ({"guias": [{**claim()["guias"][0], "dataAtendimento": "٢٠٢٦-٠٧-٠١"}]}, "dataAtendimento"),
        ({"guias": [{**claim()["guias"][0], "procedimento": "1010101"}]}, "8 dígitos"),
        ({"guias": [{**claim()["guias"][0], "procedimento": "١٠١٠١٠١٢"}]}, "8 dígitos"),
        ({"guias": [{**claim()["guias"][0], "valor": "١٥٠.٠٠"}]}, "valor"),
        ({"prestador": "20774\x0069"}, ""),
        ({"guias": [{**claim()["guias"][0], "beneficiario": "Maria\x00Souza"}]}, ""),
    ],
)
def test_a_lote_that_breaks_the_rules_is_refused_without_naming_a_patient(
    client: Client, payer: Payer, changed: dict[str, Any], named: str
) -> None:
    refused = submit(client, {**claim(), **changed})

    assert refused.status_code == 422
    assert named in refused.json()["detail"]
    assert "Maria" not in refused.text
    assert payer.submissions == []


def test_a_payment_is_asked_for_once(client: Client, payer: Payer) -> None:
    protocolo = submit(client).json()["claimId"]
    body = {"processInstanceId": INSTANCE, "activityId": "process_payment", "operadora": "326305", "claimId": protocolo}
    payer.meets("ok", "lose_after")
    answers = [client.post("/api/v1/process_payment", json={**body, "valor": "150.00"}) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert answers[1].json()["paymentId"] == "PAG-1"
    assert len(payer.payments) == 1


def pay(client: Client, protocolo: str, instance: str = INSTANCE, valor: str = "150.00") -> Response:
    body = {"processInstanceId": instance, "activityId": "process_payment", "operadora": "326305", "claimId": protocolo}
    return client.post("/api/v1/process_payment", json={**body, "valor": valor})


@pytest.mark.parametrize(("fault", "status"), [("lose_after", "SUCCESS"), ("lose_before", "FAILED")])
def test_s3_05_the_server_asks_about_a_claim_that_nobody_repeats(
    serving: Any, settings: Settings, payer: Payer, fault: str, status: str
) -> None:
    with serving(settings.model_copy(update={"processos_round_seconds": 0.1})) as client:
        payer.meets(fault)
        assert submit(client).status_code == 503
        deadline = time.monotonic() + 20
        while records(client)[0]["status"] != status and time.monotonic() < deadline:
            time.sleep(0.05)
        (row,) = records(client)
        assert (row["status"], row["retryCount"]) == (status, 0)
        assert submit(client).json()["claimId"] == "CLM-000001"
    assert len(payer.submissions) == 1


def test_a_payment_waits_for_the_release_of_its_protocolo_and_uses_up_no_retry(client: Client, payer: Payer) -> None:
    protocolo = submit(client).json()["claimId"]
    payer.places(protocolo, 2)
    early = [pay(client, protocolo) for _ in range(5)]

    assert {answer.status_code for answer in early} == {409}
    assert early[0].json()["type"].endswith("protocolo-em-analise")
    assert early[0].json()["retryable"] is True
    assert [row["operationName"] for row in records(client)] == ["submit_claim"]
    payer.places(protocolo, 3)
    assert pay(client, protocolo).status_code == 201
    assert pay(client, protocolo).status_code == 200
    assert len(payer.payments) == 1


@pytest.mark.parametrize("situacao", [4, 9])
def test_a_protocolo_that_is_closed_is_not_paid(client: Client, payer: Payer, situacao: int) -> None:
    protocolo = submit(client).json()["claimId"]
    payer.places(protocolo, situacao)
    refused = pay(client, protocolo)

    assert (refused.status_code, refused.json()["retryable"]) == (409, False)
    assert refused.json()["type"].endswith("nao-pagavel")
    assert pay(client, "CLM-999999").json()["type"].endswith("nao-pagavel")
    assert payer.payments == []


def test_one_protocolo_is_paid_once_whichever_instances_ask(client: Client, payer: Payer) -> None:
    protocolo = submit(client).json()["claimId"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: pay(client, protocolo, f"instance-{number}"), range(8)))

    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 7]
    assert pay(client, protocolo, "later").status_code == 409
    assert pay(client, protocolo, "instance-0", valor="149.00").status_code == 409
    assert len(payer.payments) == 1
