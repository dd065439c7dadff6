"""Partial glosas, demonstrativos and recursos: told by the payer, kept once, appealed against once and in time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from httpx import Client, Response
from typer.testing import CliRunner

from tests.umavez_systems.processos.conftest import Payer, claim
from tests.umavez_systems.processos.test_tiss import glosa, guia, statement
from tests.umavez_systems.processos.worlds import LOCAL, Died, World
from umavez.cli.app import app
from umavez_systems.processos.attempts import Step
from umavez_systems.processos.contas.database import Glosas, today
from umavez_systems.processos.contas.domain import Demonstrativo, GlosaItem, Recurso, Tipo, recurso_of
from umavez_systems.processos.contas.operations import Recursos
from umavez_systems.processos.portal.client import HttpPortal
from umavez_systems.processos.ports import ForaDoPrazo, JaRecorrida
from umavez_systems.settings import Settings

ANS = "326305"
CLAIM = "CLM-000001"
ACCOUNT = f"/api/v1/contas/{CLAIM}?operadora={ANS}"
APPEAL = f"/api/v1/recursos/{{}}?operadora={ANS}&claimId={CLAIM}"


def post(client: Client, name: str, instance: str = "i-1", **more: Any) -> Response:
    place = {"processInstanceId": instance, "activityId": "Task_Conta", "operadora": ANS, "claimId": CLAIM}
    return client.post(f"/api/v1/{name}", json={**place, **more})


def appealed(client: Client, valor: str = "50.00", numero: str = "R-1", instance: str = "i-1", **more: Any) -> Response:
    item = {"numeroGuiaPrestador": "G-1", "codigoGlosa": "1801", "valorRecursado": valor, "justificativa": "Há senha."}
    return post(client, "submit_appeal", instance, numeroRecurso=numero, itens=[{**item, **more}])


def kind(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition("/")[2]


@pytest.fixture
def denied(client: Client, payer: Payer) -> Client:
    """A client whose lote was analysed: 50 of its 150 reais are not paid."""
    body = {"processInstanceId": "i-1", "activityId": "Task_SubmitClaim", "claimData": claim()}
    assert client.post("/api/v1/submit_claim", json=body).status_code == 201
    payer.denies(CLAIM, "G-1", "1801", "50.00")
    return client


@pytest.fixture
def told(denied: Client) -> Client:
    """The same, with the demonstrativo received."""
    assert post(denied, "request_statement").status_code == 201
    return denied


def test_a_demonstrativo_tells_a_partial_glosa_by_item_once(denied: Client) -> None:
    first, again = post(denied, "request_statement"), post(denied, "request_statement")
    other = post(denied, "request_statement", instance="i-2")
    listed = denied.get("/api/v1/glosas", params={"protocolo": CLAIM}).json()["itens"]
    account = denied.get(ACCOUNT).json()

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201)
    told = {name: first.json()[name] for name in ("valorInformado", "valorLiberado", "valorGlosado", "glosas")}
    assert told == {"valorInformado": "150.00", "valorLiberado": "100.00", "valorGlosado": "50.00", "glosas": 1}
    assert [
        (row["numeroGuiaPrestador"], row["codigoGlosa"], row["valorGlosado"], row["situacao"]) for row in listed
    ] == [("G-1", "1801", "50.00", "aberta")]
    assert listed[0]["prazo"] == (date.fromisoformat(first.json()["emissao"]) + timedelta(days=30)).isoformat()
    assert len(account["demonstrativos"]) == 1
    assert [event["evento"] for event in account["historico"]] == ["demonstrativo recebido"]


def test_before_the_analysis_and_the_payment_there_is_no_demonstrativo(denied: Client, payer: Payer) -> None:
    payer.places(CLAIM, 2)
    early = post(denied, "request_statement")
    payer.places(CLAIM, 3)
    unpaid = post(denied, "request_statement", tipo="pagamento")
    pay = {"processInstanceId": "i-1", "activityId": "p", "operadora": ANS, "claimId": CLAIM, "valor": "100.00"}
    assert denied.post("/api/v1/process_payment", json=pay).status_code == 201
    paid = post(denied, "request_statement", tipo="pagamento")

    assert kind(early) == kind(unpaid) == (409, "sem-demonstrativo")
    assert int(early.headers["retry-after"]) > 0
    assert (paid.status_code, paid.json()["valorLiberado"], paid.json()["tipo"]) == (201, "100.00", "pagamento")
    assert paid.json()["dataPagamento"]


def test_an_appeal_is_sent_once_and_its_repeats_get_the_same_answer(told: Client, payer: Payer) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: appealed(told), range(8)))
    again = appealed(told)
    (row,) = told.get("/api/v1/glosas", params={"situacao": "recorrida"}).json()["itens"]
    events = [event["evento"] for event in told.get(ACCOUNT).json()["historico"]]

    assert {answer.status_code for answer in answers} <= {200, 201, 409}
    assert [answer.status_code for answer in answers].count(201) == 1
    assert (again.status_code, again.json()["appealId"], again.json()["valorRecursado"]) == (200, "REC-1", "50.00")
    assert (row["appealId"], row["numeroRecurso"], row["situacaoRecurso"]) == ("REC-1", "R-1", "em_analise")
    assert events == ["demonstrativo recebido", "recurso em_analise"]
    assert len(payer.appeals) == 1


def test_a_lost_answer_to_an_appeal_is_asked_for_and_not_sent_again(told: Client, payer: Payer) -> None:
    payer.meets("lose_after")
    lost = appealed(told)
    again = appealed(told)

    assert kind(lost) == (503, "resultado-desconhecido")
    assert (again.status_code, again.json()["appealId"]) == (200, "REC-1")
    assert len(payer.appeals) == 1


def test_an_appeal_that_never_arrived_is_sent_when_it_is_repeated(told: Client, payer: Payer) -> None:
    payer.meets("lose_before")
    lost = appealed(told)
    again = appealed(told)

    assert kind(lost) == (503, "resultado-desconhecido")
    assert (again.status_code, len(payer.appeals)) == (201, 1)


def test_a_glosa_is_one_appeals_only_and_for_no_more_than_it_is(told: Client, payer: Payer) -> None:
    assert kind(appealed(told, "50.01")) == (422, "glosa-desconhecida")
    assert kind(appealed(told, codigoGlosa="2607")) == (422, "glosa-desconhecida")
    assert kind(appealed(told, numeroGuiaPrestador="G-2")) == (422, "glosa-desconhecida")
    assert kind(appealed(told, sequencialItem=2)) == (422, "glosa-desconhecida")
    assert appealed(told, "20.00").status_code == 201
    assert kind(appealed(told, "30.00", "R-2")) == (409, "glosa-recorrida")
    assert kind(appealed(told, "20.00", "R-1", instance="i-9")) == (409, "glosa-recorrida")
    assert len(payer.appeals) == 1


def test_a_refused_appeal_frees_its_glosas_for_another(told: Client, payer: Payer) -> None:
    """R-1 is taken at the payer by somebody else: that refusal is final, and another number goes through."""
    payer.refuses_duplicates()
    payer.appeals_elsewhere(ANS, CLAIM, "R-1")
    taken = appealed(told)
    assert (kind(taken), taken.json()["codigo"]) == ((422, "glosa"), "1308")
    assert kind(appealed(told)) == (422, "glosa")
    assert appealed(told, numero="R-2").status_code == 201
    assert [row["numero"] for row in payer.appeals] == ["R-1", "R-2"]


def test_the_payers_decision_is_asked_for_and_kept(told: Client, payer: Payer) -> None:
    assert appealed(told, numero="R/1").status_code == 201
    payer.decides("REC-1", "acatado_parcial", "30.00")
    path = APPEAL.format("R/1")
    shown, again = told.get(path), told.get(path)
    (row,) = told.get("/api/v1/glosas").json()["itens"]
    history = told.get(ACCOUNT).json()["historico"]

    assert (shown.json()["status"], shown.json()["valorAcatado"]) == ("acatado_parcial", "30.00")
    assert again.json() == shown.json()
    assert row["situacaoRecurso"] == "acatado_parcial"
    assert [event["evento"] for event in history][1:] == ["recurso em_analise", "recurso acatado_parcial"]
    assert told.get(APPEAL.format("R-7")).status_code == 404


def test_one_principal_sees_nothing_of_another(settings: Settings, serving: Any, payer: Payer) -> None:
    keys = "ana:0123456789abcdef,bia:fedcba9876543210"
    with serving(Settings.model_validate({**settings.model_dump(), "api_keys": keys})) as client:
        ana = {"Authorization": "Bearer 0123456789abcdef"}
        client.headers.update(ana)
        body = {"processInstanceId": "i-1", "activityId": "s", "claimData": claim()}
        client.post("/api/v1/submit_claim", json=body)
        payer.denies(CLAIM, "G-1", "1801", "50.00")
        assert post(client, "request_statement").status_code == 201
        assert appealed(client).status_code == 201
        client.headers["Authorization"] = "Bearer fedcba9876543210"

        assert client.get("/api/v1/glosas").json() == {"itens": []}
        assert client.get(APPEAL.format("R-1")).status_code == 404
        assert client.get(ACCOUNT).json() == {"demonstrativos": [], "historico": []}
        assert kind(appealed(client)) == (422, "glosa-desconhecida")


def test_a_file_is_kept_once_and_a_bad_one_not_at_all(client: Client) -> None:
    day = today().isoformat()
    whole = guia("G-1", "150.00", "100.00", glosa("1801", "50.00"))
    good = statement(whole, informado="150.00", liberado="100.00", day=day)
    other = statement(guia("G-1", "150.00", "150.00"), informado="150.00", liberado="150.00", day=day)

    def send(data: bytes, content: str = "application/xml") -> Response:
        place = {"processInstanceId": "i-1", "activityId": "a"}
        headers = {"Content-Type": content}
        return client.post("/api/v1/import_statement", params=place, content=data, headers=headers)

    first, again = send(good), send(good, "text/xml; charset=ISO-8859-1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert kind(send(other)) == (409, "demonstrativo-divergente")
    assert kind(send(good.replace(b"50.00", b"51.00"))) == (422, "dados-invalidos")
    assert kind(send(b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>')) == (422, "dados-invalidos")
    assert send(good, "application/json").status_code == 415
    assert len(client.get("/api/v1/glosas").json()["itens"]) == 1


def test_glosas_are_paged_filtered_and_on_a_page_without_patients(told: Client) -> None:
    (row,) = told.get("/api/v1/glosas").json()["itens"]
    page = told.get("/glosas", params={"situacao": "aberta"})

    assert told.get("/api/v1/glosas", params={"depois": row["id"]}).json()["itens"] == []
    assert told.get("/api/v1/glosas", params={"situacao": "vencida"}).json()["itens"] == []
    assert kind(told.get("/api/v1/glosas", params={"situacao": "x"})) == (422, "dados-invalidos")
    assert (page.status_code, "G-1" in page.text, "Maria" in page.text) == (200, True, False)
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_command_line_writes_reads_and_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMAVEZ_DATABASE", f"sqlite:///{tmp_path}/c.db")
    lote, file = tmp_path / "lote.json", tmp_path / "d.xml"
    lote.write_text('{"operadora": "326305"}')
    day = today().isoformat()
    whole = guia("G-1", "150.00", "100.00", glosa("1801", "50.00"))
    file.write_bytes(statement(whole, informado="150.00", liberado="100.00", day=day))

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["processos", *words], prog_name="umavez")

    assert run("tiss", str(lote)).exit_code == 1
    import json

    lote.write_text(json.dumps(claim()))
    assert run("tiss", str(lote)).stdout_bytes.startswith(b'<?xml version="1.0"')
    for _ in range(2):
        assert '"valorGlosado": "50.00"' in run("statement", str(file), "--instance", "i").stdout
    assert "1801" in run("glosas", "--situacao", "aberta").stdout
    assert len(json.loads(run("glosas", "--json").stdout)["itens"]) == 1
    assert run("glosas", "--situacao", "x").exit_code == 2


DAY = date(2026, 11, 1)


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.close()


def shop(world: World, nth: int = 0, day: date = DAY, database: Any = None) -> tuple[Recursos, Any]:
    worker = world.worker(nth)
    return Recursos(worker.faturamento, worker.portal, Glosas(database or world.database, 30, lambda: day)), worker


RECURSO = recurso_of(
    ANS,
    CLAIM,
    "R-1",
    [{"numeroGuiaPrestador": "G-1", "codigoGlosa": "1801", "valorRecursado": "50.00", "justificativa": "Há senha."}],
)
STEP = Step(LOCAL, "i-1", "Task_Recurso")


def keep(recursos: Recursos, *glosas: GlosaItem) -> None:
    valor = sum((glosa.valor for glosa in glosas), start=RECURSO.valor * 0)
    recursos.glosas.keep(LOCAL, Demonstrativo(Tipo.ANALISE, ANS, "D-1", str(DAY), CLAIM, valor, valor * 0, glosas))


ITEM = GlosaItem("G-1", 1, "1801", RECURSO.valor)


def test_an_appeal_is_refused_after_its_last_day_and_what_was_sent_in_time_is_replayed(world: World) -> None:
    last = DAY + timedelta(days=30)
    keep(shop(world)[0], ITEM)
    with pytest.raises(ForaDoPrazo):
        shop(world, day=last + timedelta(days=1))[0].submit_appeal(STEP, RECURSO)
    assert world.appeals == []
    sent = shop(world, day=last)[0].submit_appeal(STEP, RECURSO)
    late = shop(world, day=last + timedelta(days=1))[0].submit_appeal(STEP, RECURSO)

    assert (sent.replayed, late.replayed, sent.value) == (False, True, late.value)
    assert len(world.appeals) == 1


def test_a_worker_killed_at_every_moment_of_an_appeal_leaves_one_at_the_payer(world: World) -> None:
    """Every moment in turn; afterwards the appeal is repeated, also when its term is over, and never sent again."""
    moments = 0
    keep(shop(world)[0], *(GlosaItem(f"G-{n}", 1, "1801", RECURSO.valor) for n in range(1, 60)))
    for nth in range(1, 60):
        item = {"numeroGuiaPrestador": f"G-{nth}", "codigoGlosa": "1801", "valorRecursado": "50.00"}
        recurso = recurso_of(ANS, CLAIM, f"R-{nth}", [{**item, "justificativa": "Há senha."}])
        recursos, _ = shop(world, nth)
        try:
            recursos.submit_appeal(STEP, recurso)
        except Died:
            moments += 1
        else:
            break
        world.clock.advance(60)
        before = len([row for row in world.appeals if row["numero"] == f"R-{nth}"])
        if before:
            done = shop(world, day=DAY + timedelta(days=300))[0].submit_appeal(STEP, recurso)
        else:
            done = shop(world)[0].submit_appeal(STEP, recurso)
        rows = [row for row in world.appeals if row["numero"] == f"R-{nth}"]
        assert (len(rows), done.value["numeroRecurso"]) == (1, f"R-{nth}"), nth
    assert moments > 4
    shown = shop(world)[0].glosas.glosas(LOCAL, CLAIM, "recorrida", limit=1000)
    assert {row["situacaoRecurso"] for row in shown} == {"em_analise"}


def test_the_reconciler_asks_about_an_appeal_that_nobody_repeats(world: World) -> None:
    keep(shop(world)[0], ITEM)
    recursos, worker = shop(world)

    def dies(recurso: Recurso, referencia: str) -> None:
        HttpPortal.appeal(worker.portal, recurso, referencia)
        raise Died

    worker.portal.appeal = dies
    with pytest.raises(Died):
        recursos.submit_appeal(STEP, RECURSO)
    assert len(world.appeals) == 1
    world.clock.advance(60)
    fresh, worker = shop(world)

    report = worker.faturamento.reconciler(patience=10).run()

    assert report.asked == 1
    (row,) = fresh.glosas.glosas(LOCAL, CLAIM, None)
    assert (row["appealId"], row["situacaoRecurso"]) == ("REC-1", "em_analise")
    assert fresh.submit_appeal(STEP, RECURSO).replayed
    assert len(world.appeals) == 1


def test_two_appeals_that_share_a_glosa_take_all_or_nothing(world: World) -> None:
    keep(shop(world)[0], ITEM, GlosaItem("G-2", 1, "1801", RECURSO.valor))
    glosas = Glosas(world.database, 30, lambda: DAY)
    both = recurso_of(
        ANS,
        CLAIM,
        "R-2",
        [
            {"numeroGuiaPrestador": f"G-{n}", "codigoGlosa": "1801", "valorRecursado": "1.00", "justificativa": "x"}
            for n in (2, 1)
        ],
    )
    glosas.reserve(LOCAL, RECURSO, "first")
    with pytest.raises(JaRecorrida):
        glosas.reserve(LOCAL, both, "second")
    glosas.reserve(LOCAL, RECURSO, "first")

    assert [row["situacao"] for row in glosas.glosas(LOCAL, CLAIM, None)] == ["recorrida", "aberta"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sequencialItem": 0}, "sequencialItem"),
        ({"sequencialItem": True}, "sequencialItem"),
        ({"sequencialItem": 10_000}, "sequencialItem"),
        ({"codigoGlosa": "18"}, "codigoGlosa"),
        ({"codigoGlosa": "١٢٣٤"}, "codigoGlosa"),
        ({"valorRecursado": "0.00"}, "valor"),
        ({"valorRecursado": "1.001"}, "valor"),
        ({"valorRecursado": None}, "valor"),
        ({"justificativa": ""}, "justificativa"),
        ({"justificativa": "x" * 501}, "justificativa"),
        ({"numeroGuiaPrestador": "G 1"}, "numeroGuiaPrestador"),
    ],
)
def test_what_an_appeal_cannot_be_is_named(changed: dict[str, Any], why: str) -> None:
    item = {"numeroGuiaPrestador": "G-1", "codigoGlosa": "1801", "valorRecursado": "1.00", "justificativa": "x"}
    with pytest.raises(Exception, match=why):
        recurso_of(ANS, CLAIM, "R-1", [{**item, **changed}])
    assert isinstance(recurso_of(ANS, CLAIM, "R-1", [item]), Recurso)
    with pytest.raises(Exception, match="mais de uma vez"):
        recurso_of(ANS, CLAIM, "R-1", [item, item])
