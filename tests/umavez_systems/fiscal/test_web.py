"""The routes of fiscal documents, on each database, against the simulator that the server starts itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.umavez_systems.fiscal.conftest import _SERIES, Mundo, prepared
from umavez_systems.fiscal.assembly import DEMO_DATA
from umavez_systems.fiscal.simulador import keeper
from umavez_systems.fiscal.web import BATCH, EXAMPLE
from umavez_systems.settings import Settings

API = "/api/v1/fiscal"


def order(**more: Any) -> dict[str, Any]:
    """The example in a series of its own, since the simulator keeps its books for the whole run."""
    return {**EXAMPLE, "serie": next(_SERIES), **more}


@pytest.fixture
def web(database: str, mundo: Mundo, serving: Any) -> Iterator[httpx.Client]:
    """A client of a server on each database."""
    chosen = {"fiscal_settle_seconds": 0.0, "fiscal_first_seconds": 0.2, "fiscal_sweep_seconds": 0.2}
    prepared(database, mundo.folder)
    settings = Settings(database=database, fiscal_dir=str(mundo.folder), fiscal_envio_seconds=1.0, **chosen)
    with serving(settings) as client:
        yield client


def test_s4_13_the_first_call_starts_simulator_and_demonstration_from_nothing(tmp_path: Path, serving: Any) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/x.db", fiscal_dir=str(tmp_path / "fiscal"))
    with serving(settings) as client:
        assert not (tmp_path / "fiscal").exists()
        made = client.post(f"{API}/documentos", json=EXAMPLE)
        assert (made.status_code, made.json()["estado"]) == (201, "AUTORIZADO"), made.text
    found = keeper.em_pe(tmp_path / "fiscal")
    assert found is not None
    keeper.parar(found)


def test_s4_02_a_document_from_its_emission_to_its_cancellation(web: httpx.Client) -> None:
    body = order()
    where = web.get(f"{API}/ambiente").json()
    assert where["ambiente"] == "simulador"
    control = where["simulador"]["controle"]

    first = web.post(f"{API}/documentos", json=body, headers={"Idempotency-Key": "pedido-1"})
    again = web.post(f"{API}/documentos", json=body, headers={"Idempotency-Key": "pedido-1"})
    made = first.json()

    assert first.status_code == 201, first.text
    names = {"id", "id_idempotencia", "chave_acesso", "estado", "protocolo", "origem", "versao"}
    assert names <= made.keys()
    assert (made["estado"], made["origem"]) == ("AUTORIZADO", "emissao")
    assert (again.status_code, again.json()["origem"], again.json()["id"]) == (200, "cache", made["id"])
    assert again.headers["Idempotent-Replayed"] == "true"

    httpx.post(f"{control}/_sim/falhas", json={"servico": "autorizacao", "quando": "depois", "tipo": "queda"})
    lost = web.post(f"{API}/documentos", json=body).json()
    assert (lost["estado"], lost["origem"], lost["numero"]) == ("AUTORIZADO", "conciliacao", 2)
    book = httpx.get(f"{control}/_sim/livro").json()
    ours = [row["chave"] for row in book["documentos"] if row["serie"] == body["serie"]]
    assert ours == [made["chave_acesso"], lost["chave_acesso"]]

    look_around(web, made)
    cancel_and_void(web, made)


def test_s4_02_a_batch_of_sao_paulo_by_its_route(web: httpx.Client) -> None:
    service: dict[str, Any] = {**BATCH["documentos"][0], "serie": next(_SERIES)}
    body = {"transacao": True, "documentos": [service, {**service, "servico": {**service["servico"], "valor": "7.00"}}]}
    first = web.post(f"{API}/lotes", json=body, headers={"Idempotency-Key": "lote-1"})
    again = web.post(f"{API}/lotes", json=body, headers={"Idempotency-Key": "lote-1"})

    assert first.status_code == 201, first.text
    assert [(one["estado"], one["numero"], one["total"]) for one in first.json()["itens"]] == [
        ("AUTORIZADO", 1, "100.00"),
        ("AUTORIZADO", 2, "7.00"),
    ]
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert [one["id"] for one in again.json()["itens"]] == [one["id"] for one in first.json()["itens"]]
    alone = web.post(f"{API}/documentos", json=service, headers={"Idempotency-Key": "lote-1.0"})
    assert (alone.status_code, alone.json()["id"]) == (200, first.json()["itens"][0]["id"])
    for wrong in ({}, {"documentos": []}, {"documentos": [service] * 51}, {**body, "transacao": "sim"}, [service]):
        refused = web.post(f"{API}/lotes", json=wrong)
        assert refused.status_code == 422, refused.text
    assert web.post(f"{API}/lotes", json={"documentos": [order()]}).status_code == 422
    assert web.post(f"{API}/lotes", json=body, headers={"Idempotency-Key": "k" * 253}).status_code == 422


def look_around(web: httpx.Client, made: dict[str, Any]) -> None:
    listed = web.get(f"{API}/documentos").json()["itens"]
    assert [row["numero"] for row in listed] == [2, 1]
    one = web.get(f"{API}/documentos/{made['id']}")
    assert one.headers["ETag"] == f'"{made["versao"]}"'
    xml = web.get(f"{API}/documentos/{made['id']}/xml")
    assert xml.text.startswith('<?xml version="1.0"')
    assert made["protocolo"] in xml.text
    assert web.get(f"{API}/documentos/{made['id']}/pdf").content.startswith(b"%PDF")
    proof = web.get(f"{API}/documentos/{made['id']}/prova").json()
    assert (proof["falhas"], proof["cabeca"]) == ([], proof["entradas"][-1]["resumo"])
    assert web.get(f"{API}/pendencias").json() == {"itens": []}
    page = web.get(f"{API}/documentos", params={"limite": 1}).json()
    rest = web.get(f"{API}/documentos", params={"limite": 5, "antes": page["proximo"]}).json()
    assert [row["numero"] for row in (*page["itens"], *rest["itens"])] == [2, 1]
    assert web.get(f"{API}/documentos/%00").status_code == 400
    for wrong in ("nada", f"{made['id']}x", "0" * 32):
        assert web.get(f"{API}/documentos/{wrong}").status_code == 404
    for query in ("antes=x", "limite=0", "estado=X"):
        assert web.get(f"{API}/documentos?{query}").status_code == 422, query


def cancel_and_void(web: httpx.Client, made: dict[str, Any]) -> None:
    path = f"{API}/documentos/{made['id']}"
    letter = web.post(f"{path}/carta-correcao", json={"texto": "O endereco correto e Rua Dois, 2"})
    assert (letter.status_code, letter.json()["sequencia"]) == (201, 1)
    stale = web.post(f"{path}/cancelar", json={"justificativa": "Pedido desfeito pelo cliente", "versao": 1})
    assert (stale.status_code, stale.json()["versao"]) == (409, made["versao"])
    short = web.post(f"{path}/cancelar", json={"justificativa": "curta", "versao": made["versao"]})
    assert short.status_code == 422
    wanted = {"justificativa": "Pedido desfeito pelo cliente", "versao": made["versao"]}
    done = web.post(f"{path}/cancelar", json=wanted)
    again = web.post(f"{path}/cancelar", json=wanted)
    assert (done.status_code, done.json()["estado"]) == (200, "CANCELADO")
    assert (again.json()["origem"], again.headers["Idempotent-Replayed"]) == ("cache", "true")
    assert web.post(f"{path}/conciliar").json()["estado"] == "CANCELADO"
    (series,) = web.get(f"{API}/numeracao").json()["itens"]
    assert series["contagem"] == {"cancelado": 1, "autorizado": 1}
    void = {"organizacao": "demo", "tipo": "NFE", "serie": made["serie"], "primeiro": 1, "ultimo": 1}
    refused = web.post(f"{API}/inutilizacoes", json={**void, "justificativa": "Numero pulado por engano"})
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")


SERVICE: dict[str, Any] = {
    "tipo": "NFSE_ADN",
    "organizacao": "demo",
    "destinatario": {"nome": "Maria Souza", "cpf": "529.982.247-25"},
    "servico": {"descricao": "Consultoria", "codigo": "010101", "valor": "100.00", "aliquota": "2.00"},
}
CITY = {**SERVICE, "tipo": "NFSE_SP", "servico": {**SERVICE["servico"], "codigo": "02919", "deducoes": "10.00"}}


def test_s4_13_the_demonstration_emits_all_four_kinds_into_one_list(web: httpx.Client) -> None:
    serie = next(_SERIES)
    bodies = [{**body, "serie": serie} for body in (EXAMPLE, {**EXAMPLE, "tipo": "NFCE"}, SERVICE, CITY)]
    made = [web.post(f"{API}/documentos", json=body, headers={"Idempotency-Key": body["tipo"]}) for body in bodies]

    assert [(one.status_code, one.json()["estado"]) for one in made] == [(201, "AUTORIZADO")] * 4
    kinds = ["NFE", "NFCE", "NFSE_ADN", "NFSE_SP"]
    assert [row["tipo"] for row in web.get(f"{API}/documentos").json()["itens"]] == kinds[::-1]
    assert {series["modelo"] for series in web.get(f"{API}/numeracao").json()["itens"]} == {"55", "65", *kinds[2:]}
    assert set(web.get(f"{API}/ambiente").json()["autoridades"]) == {"sefaz", "adn", "sp"}
    nacional, city = (f"{API}/documentos/{one.json()['id']}" for one in made[2:])
    assert web.get(f"{nacional}/pdf").content.startswith(b"%PDF")
    assert "<infNFSe" in web.get(f"{nacional}/xml").text
    assert (web.get(f"{city}/pdf").status_code, "PedidoEnvioRPS" in web.get(f"{city}/xml").text) == (404, True)
    assert web.get(f"{nacional}/prova").json()["falhas"] == []
    assert web.post(f"{nacional}/carta-correcao", json={"texto": "O endereco e outro, corrija"}).status_code == 422
    for path, one in ((nacional, made[2]), (city, made[3])):
        wanted = {"justificativa": "Pedido desfeito pelo cliente", "versao": one.json()["versao"]}
        assert web.post(f"{path}/cancelar", json=wanted).json()["estado"] == "CANCELADO"
        assert web.post(f"{path}/conciliar").json()["estado"] == "CANCELADO"


def service(**more: Any) -> dict[str, Any]:
    return {**SERVICE, "servico": {**SERVICE["servico"], **more}}


BAD_SERVICES: list[dict[str, Any]] = [
    {**SERVICE, "servico": None},
    {**SERVICE, "serie": 0},
    {**SERVICE, "serie": 50_000},
    {**SERVICE, "modo": "svc", "justificativa": "Sem conexao na loja agora"},
    {**SERVICE, "itens": EXAMPLE["itens"]},
    service(codigo="0101"),
    service(valor="0.00"),
    service(valor="1.001"),
    service(valor=1e400),
    service(aliquota="5.01"),
    service(deducoes="1.00"),
    service(iss_retido="sim"),
    service(tributacao="T"),
    service(substitui="123"),
    service(descricao="a\x00b"),
    {**CITY, "servico": {**CITY["servico"], "aliquota": None}},
    {**CITY, "servico": {**CITY["servico"], "deducoes": "100.01"}},
    {**CITY, "servico": {**CITY["servico"], "tributacao": "1"}},
    {**CITY, "servico": {**CITY["servico"], "substitui": "3" * 50}},
]


def test_a_mistake_in_a_service_is_a_problem_and_takes_no_number(web: httpx.Client) -> None:
    serie = next(_SERIES)
    for body in BAD_SERVICES:
        content = json.dumps({"serie": serie, **body}).encode()
        refused = web.post(f"{API}/documentos", content=content, headers={"Content-Type": "application/json"})
        assert refused.status_code in (400, 422), body
        assert refused.headers["content-type"] == "application/problem+json"
    for body in (SERVICE, CITY):
        assert web.post(f"{API}/documentos", json={**body, "serie": serie}).json()["numero"] == 1


def test_s4_05_nobody_knows_is_202_and_the_server_closes_it_by_itself(web: httpx.Client) -> None:
    control = web.get(f"{API}/ambiente").json()["simulador"]["controle"]
    for service, when, times in (("autorizacao", "depois", 1), ("consulta", "antes", 3)):
        fault = {"servico": service, "quando": when, "tipo": "queda", "vezes": times}
        httpx.post(f"{control}/_sim/falhas", json=fault).raise_for_status()
    made = web.post(f"{API}/documentos", json=order(), headers={"Idempotency-Key": "k"})
    assert (made.status_code, made.json()["estado"]) == (202, "INDETERMINADO")
    assert made.json()["proxima_consulta_em"]
    assert int(made.headers["Retry-After"]) >= 1
    import time

    deadline = time.monotonic() + 30
    while (found := web.get(f"{API}/documentos/{made.json()['id']}").json())["estado"] != "AUTORIZADO":
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert found["origem"] == "conciliacao"


def test_s4_10_a_refused_note_is_not_printed_and_its_number_is_voided(web: httpx.Client) -> None:
    control = web.get(f"{API}/ambiente").json()["simulador"]["controle"]
    irregular = {"destinatario": "11144477735", "marca": "irregular"}
    httpx.post(f"{control}/_sim/marcas", json=irregular).raise_for_status()
    buyer = {**EXAMPLE["destinatario"], "cpf": "11144477735"}
    made = web.post(f"{API}/documentos", json=order(destinatario=buyer)).json()
    assert (made["estado"], made["codigo"]) == ("REJEITADO", "302")
    printed = web.get(f"{API}/documentos/{made['id']}/pdf")
    assert (printed.status_code, printed.json()["estado"]) == (409, "REJEITADO")

    place = {name: made[name] for name in ("organizacao", "tipo", "serie")}
    span = {**place, "primeiro": made["numero"], "ultimo": made["numero"], "justificativa": "Nota recusada pela SEFAZ"}
    answers = [web.post(f"{API}/inutilizacoes", json=span) for _ in range(2)]
    assert [(answer.status_code, answer.json()["estado"]) for answer in answers] == [(201, "FEITO"), (200, "FEITO")]
    wider = web.post(f"{API}/inutilizacoes", json={**span, "ultimo": made["numero"] + 1})
    assert wider.status_code == 409, "the range overlaps, and ends at a number that was not given"
    assert web.get(f"{API}/documentos/{made['id']}").json()["estado"] == "INUTILIZADO"


def test_what_is_printed_before_it_is_sent_has_its_pdf(web: httpx.Client) -> None:
    mode = {"tipo": "NFCE", "modo": "offline", "justificativa": "Sem conexao com a internet na loja"}
    offline = web.post(f"{API}/documentos", json=order(**mode)).json()
    assert web.get(f"{API}/documentos/{offline['id']}/pdf").content.startswith(b"%PDF")


BAD_SERIES = next(_SERIES)
BAD: list[tuple[Any, int]] = [
    (b"{", 400),
    (b"[]", 422),
    ({**EXAMPLE, "tipo": "NFSE_SP"}, 422),
    ({**EXAMPLE, "tipo": "X"}, 422),
    ({**EXAMPLE, "serie": 1000}, 422),
    ({**EXAMPLE, "serie": True}, 422),
    ({**EXAMPLE, "itens": []}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "quantidade": "1e400"}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "quantidade": -1}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "quantidade": "9" * 15, "valor_unitario": "9" * 15}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "impostos": {"ICMS": {"ICMS00": {"vBC": []}}}}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "valor_unitario": "0.123456789012"}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "descricao": "a\x00b"}]}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "impostos": {"ICMS": {"ICMS99": {"x": 1}}}}]}, 422),
    ({**EXAMPLE, "destinatario": None}, 422),
    ({**EXAMPLE, "destinatario": {**EXAMPLE["destinatario"], "cpf": "111.111.111-11"}}, 422),
    ({**EXAMPLE, "pagamentos": [{"forma": "01", "valor": "0.01"}]}, 422),
    ({**EXAMPLE, "itens": EXAMPLE["itens"] * 991}, 422),
    ({**EXAMPLE, "itens": [{**EXAMPLE["itens"][0], "descricao": "x" * 1_000_000}]}, 413),
    (b'{"tipo": "NFE", "serie": NaN}', 400),
    (b'{"tipo": "NFE", "tipo": "NFCE"}', 400),
    ({**EXAMPLE, "destinatario": {**EXAMPLE["destinatario"], "nome": "Maria\u0007"}}, 422),
    ({**EXAMPLE, "organizacao": "outra"}, 404),
    ({**EXAMPLE, "modo": "offline", "justificativa": "Sem internet na loja"}, 422),
]


def test_a_clients_mistake_is_a_problem_and_takes_no_number(web: httpx.Client) -> None:
    for body, status in BAD:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        refused = web.post(f"{API}/documentos", content=content, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json"), body
    assert web.post(f"{API}/documentos", json=EXAMPLE, headers={"Idempotency-Key": "x" * 256}).status_code == 400
    last = {**BAD[2][0], "tipo": "NFE", "serie": BAD_SERIES}
    assert web.post(f"{API}/documentos", json=last).json()["numero"] == 1


def test_amounts_as_exact_json_numbers_are_the_same_order_as_texts(web: httpx.Client) -> None:
    item = {**EXAMPLE["itens"][0], "quantidade": 0.1, "valor_unitario": 0.7}
    body = order(itens=[item], pagamentos=[{"forma": "01", "valor": 0.07}])
    assert web.post(f"{API}/documentos", json=body).json()["total"] == "0.07"


def test_an_organisation_is_created_with_its_certificate_which_is_never_shown(web: httpx.Client, mundo: Mundo) -> None:
    data = {**DEMO_DATA, "id": "loja", "cnpj": "11.222.333/0001-81"}
    made = web.post(f"{API}/organizacoes", json=data)
    assert (made.status_code, made.json()["cnpj"]) == (201, "11222333000181")
    foreign = {**data, "certificado": base64.b64encode(mundo.pfx).decode(), "senha": "segredo", "id": "outra"}
    refused = web.post(f"{API}/organizacoes", json=foreign)
    assert (refused.status_code, refused.json()["detail"]) == (422, "O certificado é de outro CNPJ.")
    wrong = web.post(f"{API}/organizacoes", json={**foreign, "senha": "hunter2"})
    assert (wrong.status_code, "hunter2" in wrong.text) == (422, False)
    for pfx, status in ((b"", 422), (b"no PKCS#12", 422), (b"x" * 200_000, 422), (b"x" * 1_000_000, 413)):
        upload = {**foreign, "certificado": base64.b64encode(pfx).decode()}
        assert web.post(f"{API}/organizacoes", json=upload).status_code == status, len(pfx)
    listed = web.get(f"{API}/organizacoes").json()["itens"]
    assert {row["id"] for row in listed} == {"demo", "loja"}
    assert "certificado" not in listed[0]


def test_organisations_are_paged_by_their_ids(web: httpx.Client) -> None:
    names = ["Zé & Filhos", "a/b", "loja 10", "loja-2", "loja_3", "á", "ÿ-last"]
    for name in names:
        made = web.post(f"{API}/organizacoes", json={**DEMO_DATA, "id": name, "cnpj": "11.222.333/0001-81"})
        assert made.status_code == 201, name
    seen: list[str] = []
    where: dict[str, Any] = {"limite": 3}
    while True:
        page = web.get(f"{API}/organizacoes", params=where).json()
        assert len(page["itens"]) <= 3
        seen += [row["id"] for row in page["itens"]]
        if page["proximo"] is None:
            break
        where["depois"] = page["proximo"]
    assert sorted(seen) == sorted([*names, "demo"])
    assert len(web.get(f"{API}/organizacoes").json()["itens"]) == 8
    for wrong in ({"limite": 0}, {"limite": 501}, {"depois": ""}, {"depois": "x" * 61}, {"depois": "a\tb"}):
        assert web.get(f"{API}/organizacoes", params=wrong).status_code == 422, wrong
    told = web.get("/openapi.json").json()["paths"][f"{API}/organizacoes"]["get"]["parameters"]
    assert {"depois", "limite"} <= {parameter["name"] for parameter in told}


def test_one_principal_never_sees_anothers_documents(database: str, mundo: Mundo, serving: Any) -> None:
    keys = "ana:0123456789abcdef,bia:fedcba9876543210"
    settings = Settings(database=database, fiscal_dir=str(mundo.folder), api_keys=keys)
    body = order()
    ana, bia = ({"Authorization": f"Bearer {pair.partition(':')[2]}"} for pair in keys.split(","))
    with serving(settings) as client:
        assert client.get(f"{API}/documentos").status_code == 401
        made = client.post(f"{API}/documentos", json=body, headers={**ana, "Idempotency-Key": "k"}).json()
        other = client.post(f"{API}/documentos", json=body, headers={**bia, "Idempotency-Key": "k"})
        assert (other.status_code, other.json()["id"] != made["id"]) == (201, True)
        about = f"{API}/documentos/{made['id']}"
        for part in ("", "/xml", "/pdf", "/prova"):
            assert client.get(f"{about}{part}", headers=bia).status_code == 404, part
        reason = {"justificativa": "Pedido desfeito pelo cliente", "versao": made["versao"]}
        asked = {"cancelar": reason, "carta-correcao": {"texto": "O endereco e Rua Dois, 2"}, "conciliar": {}}
        for verb, sent in asked.items():
            assert client.post(f"{about}/{verb}", json=sent, headers=bia).status_code == 404, verb
        assert client.get(about, headers=ana).json()["estado"] == "AUTORIZADO"
