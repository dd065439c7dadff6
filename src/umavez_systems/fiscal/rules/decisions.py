"""Decisions: what an answer makes of a document. The catalogue gives the code's meaning; here it meets the evidence.

Every decision names its rule, so that the proof log can say why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from umavez_systems.fiscal.domain import Acao, Desfecho, Estado
from umavez_systems.fiscal.ports import Ato, Evento, Resposta
from umavez_systems.fiscal.rules.catalogue import Catalogo, Regra

CANCELAMENTOS = ("110111", "110112", "101101", "105102", "105104", "305101")
"""Cancellation and cancellation by substitution: of NF-e and NFC-e, then of the national NFS-e, which a city cancels
also after the fiscal analysis that was asked for (105104) and by its own office (305101)."""
CORRECAO = "110110"
EVENTO_FEITO = frozenset({"135", "136", "155", "registrado"})
"""Codes of an event that stands; the national NFS-e has none, what is found there stands."""
D = Desfecho


@dataclass(frozen=True, slots=True)
class Decisao:
    """What was decided, by which rule, and what the answer said in words."""

    desfecho: Desfecho
    regra: str
    fonte: str
    acao: str
    motivo: str
    protocolo: str | None = None
    outra_chave: str | None = None
    anomalia: bool = False

    @property
    def estado(self) -> Estado | None:
        """The document's state that this proves; None when it proves none."""
        return _ESTADOS.get(self.desfecho)


_ESTADOS = {
    D.AUTORIZADO: Estado.AUTORIZADO,
    D.CANCELADO: Estado.CANCELADO,
    D.DENEGADO: Estado.DENEGADO,
    D.REJEITADO: Estado.REJEITADO,
    D.INUTILIZADO: Estado.INUTILIZADO,
    D.DIVERGENTE: Estado.DIVERGENTE,
}


def decidir_emissao(resposta: Resposta, ato: Ato, catalogo: Catalogo, autoridade: str) -> Decisao:
    """What the answer to an emission means. Authorisation counts only for our key and our bytes."""
    decided = _by_code(resposta, catalogo, autoridade)
    if decided.desfecho is D.LER_DENTRO:
        return _changed(decided, D.INDETERMINADO, "envelope-sem-protocolo", "O lote foi processado sem protocolo.")
    if _about_another(resposta, ato):
        return _changed(decided, D.INDETERMINADO, "outra-chave", "A resposta fala de outra chave.")
    proven = _proven(decided, resposta, ato)
    if proven.desfecho is D.AUTORIZADO and _half(resposta):
        return _changed(decided, D.INDETERMINADO, "incompleta", "A autorização veio sem chave ou sem protocolo.")
    return proven


def decidir_consulta(resposta: Resposta, ato: Ato, catalogo: Catalogo, autoridade: str) -> Decisao:
    """What a situation query says about the document, its events included."""
    decided = _by_code(resposta, catalogo, autoridade)
    if _about_another(resposta, ato) and decided.desfecho is not D.DIVERGENTE:
        return _changed(decided, D.INDETERMINADO, "outra-chave", "A resposta fala de outra chave.")
    if decided.desfecho is D.AUTORIZADO and cancelamento_de(resposta):
        decided = _changed(decided, D.CANCELADO, "evento-de-cancelamento", "Há evento de cancelamento vinculado.")
    if decided.desfecho is D.JA_EXISTE:
        decided = _by_evidence(decided, resposta)
    return _proven(decided, resposta, ato)


def _by_evidence(decided: Decisao, resposta: Resposta) -> Decisao:
    """A code that says "an event is linked" where the state of the note is asked for (135 in the query).

    With a protocol or an event the note exists. With neither, the manual gives the code no meaning here and the
    specification 1.0 reads "does not exist"; that is safe because only the same stored bytes are ever sent again: if
    the note exists, they are answered with 204.
    """
    if cancelamento_de(resposta):
        return _changed(decided, D.CANCELADO, "evento-de-cancelamento", "Há evento de cancelamento vinculado.")
    if resposta.protocolo or resposta.eventos:
        return _changed(decided, D.AUTORIZADO, "evento-vinculado", "Há protocolo ou evento: a nota existe.")
    bare = _changed(decided, D.NAO_EXISTE, "135-sem-prova", "Sem protocolo nem evento: leitura da especificação 1.0.")
    return replace(bare, anomalia=True)


def decidir_evento(resposta: Resposta, ato: Ato, catalogo: Catalogo, autoridade: str) -> Decisao:
    """What the answer to an event or a voiding means by itself."""
    decided = _by_code(resposta, catalogo, autoridade)
    if _about_another(resposta, ato):
        return _changed(decided, D.INDETERMINADO, "outra-chave", "A resposta fala de outra chave.")
    if decided.desfecho in (D.REGISTRADO, D.INUTILIZADO) and _of_another_act(resposta, ato):
        return _changed(decided, D.INDETERMINADO, "outro-ato", "A resposta fala de outro evento ou de outra faixa.")
    if decided.desfecho is D.LER_DENTRO:
        return _changed(
            decided, D.INDETERMINADO, "envelope-sem-evento", "O lote foi processado sem resposta do evento."
        )
    return replace(decided, protocolo=resposta.protocolo)


def cancelamento_de(resposta: Resposta) -> Evento | None:
    """The cancellation among the events that a query brought."""
    return next((e for e in resposta.eventos if e.tipo in CANCELAMENTOS and e.codigo in EVENTO_FEITO), None)


def correcao_de(resposta: Resposta, sequencia: int) -> Evento | None:
    """The correction letter with this sequence among the events."""
    for event in resposta.eventos:
        if event.tipo == CORRECAO and event.sequencia == sequencia and event.codigo in EVENTO_FEITO:
            return event
    return None


def _by_code(resposta: Resposta, catalogo: Catalogo, autoridade: str) -> Decisao:
    rule: Regra = catalogo.regra(autoridade, resposta.servico, resposta.codigo)
    return Decisao(
        rule.desfecho,
        rule.nome,
        rule.fonte,
        rule.acao,
        resposta.motivo,
        resposta.protocolo,
        resposta.outra_chave,
    )


def _about_another(resposta: Resposta, ato: Ato) -> bool:
    if resposta.sobre is not None and ato.documento is not None:
        return resposta.sobre != ato.documento  # the key is the authority's, and São Paulo may change it
    return resposta.chave is not None and ato.chave is not None and resposta.chave != ato.chave


def _of_another_act(resposta: Resposta, ato: Ato) -> bool:
    """Whether an answer names an event or a voiding that is not the one that was sent."""
    if ato.acao is Acao.INUTILIZAR:
        return resposta.sobre is not None and resposta.sobre != ato.nome
    told = ({f"ID{one.tipo}{ato.chave}{one.sequencia:02d}", f"PRE{ato.chave}{one.tipo}"} for one in resposta.eventos)
    return any(ato.nome not in names for names in told)


def _half(resposta: Resposta) -> bool:
    """Whether an authorisation does not say of what, or under which protocol; SEFIN's has the key alone."""
    return resposta.chave is None or (resposta.sobre is None and resposta.protocolo is None)


def _proven(decided: Decisao, resposta: Resposta, ato: Ato) -> Decisao:
    """An authorisation joined to our bytes by their digest, where the answer carries one."""
    if decided.desfecho not in (D.AUTORIZADO, D.CANCELADO) or ato.digest is None:
        return decided
    if resposta.dig_val is None:
        return replace(decided, regra=f"{decided.regra}+sem-digVal")
    if resposta.dig_val != ato.digest:
        return _changed(decided, D.DIVERGENTE, "digVal-diferente", "A autoridade tem esta chave com outro conteúdo.")
    return replace(decided, regra=f"{decided.regra}+digVal")


def _changed(decided: Decisao, desfecho: Desfecho, rule: str, why: str) -> Decisao:
    return replace(decided, desfecho=desfecho, regra=f"{decided.regra}+{rule}", acao=why)
