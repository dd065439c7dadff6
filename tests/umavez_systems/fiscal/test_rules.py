"""States, codes, decisions, retry, deadlines, ledger and proof: the rules without any I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umavez.failures import Phase
from umavez_systems.fiscal.domain import TRANSICOES, Acao, Desfecho, Estado, Tipo, pode_passar
from umavez_systems.fiscal.ports import (
    Ato,
    AutoridadeError,
    Evento,
    NadaEnviado,
    Ocupada,
    Recusada,
    Resposta,
    SemResposta,
)
from umavez_systems.fiscal.rules import deadlines, retrying
from umavez_systems.fiscal.rules.catalogue import MANUAL, PERFIS, SPEC, catalogo
from umavez_systems.fiscal.rules.decisions import decidir_consulta, decidir_emissao
from umavez_systems.fiscal.rules.ledger import Destino, livro
from umavez_systems.fiscal.rules.proof import INICIO, Entrada, bruto, escrita, falhas
from umavez_systems.fiscal.wire import soap
from umavez_systems.outgoing.connections import Answer

QUICK = settings(deadline=None, max_examples=60)
"""A loaded machine is no fault of the code."""
CHAVE = "35261112ABC34501DE35550010000000121408172630"
ATO = Ato(Acao.EMITIR, "id", b"<x/>", Tipo.NFE, chave=CHAVE, digest="abc=")


def answer(codigo: str, servico: str = "consulta", **more: object) -> Resposta:
    return replace(Resposta(servico, codigo, "motivo", b"<r/>", chave=CHAVE), **more)


def test_every_state_has_its_transitions_and_none_leads_out_of_an_end() -> None:
    assert set(TRANSICOES) == set(Estado)
    for end in (Estado.CANCELADO, Estado.INUTILIZADO, Estado.DENEGADO):
        assert not TRANSICOES[end]
    assert not pode_passar(Estado.AUTORIZADO, Estado.TRANSMITIDO)
    assert not pode_passar(Estado.AUTORIZADO, Estado.REJEITADO)


@pytest.mark.parametrize("perfil", PERFIS)
def test_no_code_of_the_table_is_without_a_decision(perfil: str) -> None:
    for (autoridade, servico, codigo), regra in catalogo(perfil).regras.items():
        assert isinstance(regra.desfecho, Desfecho)
        assert regra.acao
        assert regra.fonte
        assert regra.nome == f"{autoridade}/{servico}/{codigo}"


def test_the_catalogue_knows_the_codes_that_decide() -> None:
    for servico, codes in {
        "autorizacao": "100 150 103 104 105 106 108 109 110 204 205 206 218 301 302 303 539 635 656 897 999",
        "consulta": "100 101 110 135 150 151 155 205 217 526 561 562 613 635 656 999",
        "evento": "128 135 136 155 218 220 420 494 501 573 580 594 656 999",
        "inutilizacao": "102 206 241 256 563 656 999",
    }.items():
        for code in codes.split():
            assert ("sefaz", servico, code) in catalogo().regras, (servico, code)


@QUICK
@given(st.text(max_size=6))
def test_a_code_that_is_not_catalogued_is_undetermined_and_never_guessed(codigo: str) -> None:
    if ("sefaz", "autorizacao", codigo) not in catalogo().regras:
        decided = decidir_emissao(answer(codigo, "autorizacao"), ATO, catalogo(), "sefaz")
        assert decided.desfecho is Desfecho.INDETERMINADO
        assert decided.estado is None


@pytest.mark.parametrize(
    ("codigo", "desfecho"),
    [
        ("100", Desfecho.AUTORIZADO),
        ("150", Desfecho.AUTORIZADO),
        ("101", Desfecho.CANCELADO),
        ("155", Desfecho.CANCELADO),
        ("217", Desfecho.NAO_EXISTE),
        ("110", Desfecho.DENEGADO),
        ("561", Desfecho.DIVERGENTE),
        ("562", Desfecho.DIVERGENTE),
        ("613", Desfecho.DIVERGENTE),
        ("526", Desfecho.INDETERMINADO),
        ("656", Desfecho.CONSUMO_INDEVIDO),
        ("236", Desfecho.INDETERMINADO),
    ],
)
def test_s4_05_the_query_reads_official_codes(codigo: str, desfecho: Desfecho) -> None:
    assert decidir_consulta(answer(codigo), ATO, catalogo(), "sefaz").desfecho is desfecho


def test_s4_05_135_with_a_protocol_or_an_event_means_that_the_note_exists() -> None:
    linked = answer("135", eventos=(Evento("110110", 1, "135"),))
    cancelled = answer("135", eventos=(Evento("110110", 1, "135"), Evento("110111", 1, "155")))
    assert decidir_consulta(linked, ATO, catalogo(), "sefaz").desfecho is Desfecho.AUTORIZADO
    assert decidir_consulta(answer("135", protocolo="1"), ATO, catalogo(), "sefaz").estado is Estado.AUTORIZADO
    assert decidir_consulta(cancelled, ATO, catalogo(), "sefaz").estado is Estado.CANCELADO


def test_s4_05_135_bare_is_read_as_the_seed_does_and_marked_as_an_anomaly() -> None:
    decided = decidir_consulta(answer("135"), ATO, catalogo(MANUAL), "sefaz")
    assert (decided.desfecho, decided.anomalia) == (Desfecho.NAO_EXISTE, True)
    assert decidir_consulta(answer("135", protocolo="1"), ATO, catalogo(SPEC), "sefaz").desfecho is Desfecho.NAO_EXISTE


def test_an_authorised_answer_about_another_key_or_other_bytes_is_not_ours() -> None:
    foreign = decidir_emissao(answer("100", "autorizacao", chave="1" * 44), ATO, catalogo(), "sefaz")
    other = decidir_emissao(answer("100", "autorizacao", dig_val="xyz="), ATO, catalogo(), "sefaz")
    ours = decidir_emissao(answer("100", "autorizacao", dig_val="abc=", protocolo="1"), ATO, catalogo(), "sefaz")
    assert foreign.desfecho is Desfecho.INDETERMINADO
    assert other.desfecho is Desfecho.DIVERGENTE
    assert (ours.desfecho, ours.regra) == (Desfecho.AUTORIZADO, "sefaz/autorizacao/100+digVal")


def test_an_authorised_note_with_a_cancellation_among_its_events_is_cancelled() -> None:
    late = answer("100", eventos=(Evento("110111", 1, "135"),))
    assert decidir_consulta(late, ATO, catalogo(), "sefaz").estado is Estado.CANCELADO
    refused = answer("100", eventos=(Evento("110111", 1, "501"),))
    assert decidir_consulta(refused, ATO, catalogo(), "sefaz").estado is Estado.AUTORIZADO


def test_an_envelope_without_a_protocol_proves_nothing() -> None:
    assert decidir_emissao(answer("104", "autorizacao"), ATO, catalogo(), "sefaz").desfecho is Desfecho.INDETERMINADO


def test_s4_04_the_pauses_are_the_seeds() -> None:
    assert [retrying.BACKOFF.pause(attempt) for attempt in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert retrying.BACKOFF.attempts == 3


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        (500, Phase.MAYBE_SENT),  # "verificar + retry": asked first, then sent again
        (599, Phase.MAYBE_SENT),
        (429, Phase.NEVER_SENT),  # "respeitar Retry-After"
        (400, Phase.REFUSED),
        (422, Phase.REFUSED),
        (401, Phase.REFUSED),
        (403, Phase.REFUSED),
        (404, Phase.REFUSED),
        (409, Phase.REFUSED),
    ],
)
def test_s4_04_the_seeds_table_row_by_row(status: int, phase: Phase) -> None:
    with pytest.raises(AutoridadeError) as failed:
        soap._refuse_status(Answer(status, {"retry-after": "7"}, b""))

    assert retrying.trouble_of(failed.value).phase is phase
    assert getattr(failed.value, "retry_after", None) == (7.0 if status == 429 else None)


def test_s4_04_only_what_never_left_is_sent_again_without_asking() -> None:
    assert retrying.trouble_of(NadaEnviado("x")).phase is Phase.NEVER_SENT
    assert retrying.trouble_of(Ocupada("x", 7.0)) == (Phase.NEVER_SENT, 429, 7.0)
    assert retrying.trouble_of(SemResposta("x")).phase is Phase.MAYBE_SENT
    assert retrying.trouble_of(Recusada("x", 403)).phase is Phase.REFUSED
    assert retrying.trouble_of(ValueError()).phase is Phase.REFUSED


def test_deadlines_come_in_the_order_in_which_rights_are_lost() -> None:
    hour = deadlines.HORA
    nfce = deadlines.Situacao("c", "65", "SP", Estado.CANCELAMENTO_PENDENTE, "1", 0, 0)
    nfe = deadlines.Situacao("n", "55", "SP", Estado.CANCELAMENTO_PENDENTE, "1", 0, 0)
    mt = deadlines.Situacao("m", "55", "MT", Estado.CANCELAMENTO_PENDENTE, "1", 0, 0)
    epec = deadlines.Situacao("e", "55", "SP", Estado.RASCUNHO, "4", 0, None, epec_em=0)
    offline = deadlines.Situacao("o", "65", "SP", Estado.RASCUNHO, "9", hour, None)
    found = deadlines.pendencias([epec, nfe, offline, mt, nfce])
    assert [pending.documento for pending in found][:4] == ["c", "m", "n", "o"]
    assert found[0].vence_em == hour // 2
    assert not found[0].vencida(hour // 2 - 1)
    assert found[0].vencida(hour // 2)


@pytest.mark.parametrize("estado", [Estado.AUTORIZADO, Estado.CANCELADO, Estado.INUTILIZADO, Estado.DENEGADO])
def test_an_epec_whose_note_is_decided_has_no_deadline(estado: Estado) -> None:
    note = deadlines.Situacao("e", "55", "SP", estado, "4", 0, None, epec_em=0)
    assert deadlines.pendencias([note]) == []
    assert deadlines.pendencias([replace(note, estado=Estado.REJEITADO)])[0].direito in ("EPEC", "inutilizar")


def test_numbers_may_be_voided_until_the_tenth_of_the_next_month_in_brasilia() -> None:
    from datetime import datetime

    december = int(datetime.fromisoformat("2026-12-31T23:30:00-03:00").timestamp() * 1000)
    end = int(datetime.fromisoformat("2027-01-11T00:00:00-03:00").timestamp() * 1000)
    assert deadlines.fim_da_inutilizacao(december) == end


def test_the_ledger_explains_every_number_and_proposes_only_what_is_proven_absent() -> None:
    book = livro(
        1,
        7,
        {1: Estado.AUTORIZADO, 2: Estado.REJEITADO, 3: Estado.REJEITADO, 4: Estado.INDETERMINADO, 6: Estado.RASCUNHO},
        provados={2, 6},
        anulados={7},
    )
    assert book.destinos[5] is Destino.LACUNA
    assert book.destinos[7] is Destino.INUTILIZADO
    assert book.inutilizaveis == [(2, 2), (5, 6)]
    assert book.abertos == [2, 3, 4, 5, 6]
    assert book.contagem["rejeitado"] == 2


def chain(length: int) -> list[Entrada]:
    entries: list[Entrada] = []
    for number in range(1, length + 1):
        before = entries[-1].resumo if entries else INICIO
        entries.append(escrita("d", number, "passo", number, {"n": number}, before))
    return entries


@QUICK
@given(st.integers(1, 8), st.data())
def test_s4_06_a_changed_removed_or_moved_entry_breaks_the_chain(length: int, data: st.DataObject) -> None:
    entries = chain(length)
    head = entries[-1].resumo
    assert falhas(entries, head) == []
    place = data.draw(st.integers(0, length - 1))
    changed = [*entries]
    changed[place] = replace(entries[place], conteudo='{"n":0}')
    assert falhas(changed, head)
    assert falhas(entries[:place] + entries[place + 1 :], head)
    forged = [*entries]
    forged[place] = escrita("d", place + 1, "outro", 1, {}, entries[place].anterior)
    assert falhas(forged, head)


def told(*steps: tuple[str, dict[str, str]]) -> list[str]:
    """What is wrong with a chain that was written whole, and so breaks nowhere."""
    entries: list[Entrada] = []
    for number, (kind, content) in enumerate(steps, 1):
        entries.append(escrita("d", number, kind, number, content, entries[-1].resumo if entries else INICIO))
    return falhas(entries, entries[-1].resumo)


def test_s4_06_a_whole_chain_that_cannot_have_happened_is_noticed() -> None:
    stored, sent = ("bytes", {"sha256": "a"}), ("envio", {"sha256": "a"})
    left, done = (
        ("estado", {"de": "RASCUNHO", "para": "TRANSMITIDO"}),
        ("estado", {"de": "TRANSMITIDO", "para": "AUTORIZADO"}),
    )
    assert told(stored, sent, left, done, sent) == []
    assert told(stored, sent, ("envio", {"sha256": "b"})), "other bytes on the second send"
    assert told(sent, stored), "sent before they were stored"
    assert told(stored, done), "a step is missing"
    assert told(stored, left, done, ("estado", {"de": "AUTORIZADO", "para": "REJEITADO"}))


def test_a_long_answer_is_kept_by_digest_and_beginning() -> None:
    kept = bruto(b"\x00\xff" * 200_000)
    assert kept["bytes"] == 400_000
    assert "\x00" not in kept["texto"]
