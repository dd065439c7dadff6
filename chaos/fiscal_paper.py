"""An authority on paper, for the search over faults and crashes: SEFAZ's decision table over a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from umavez_systems.fiscal.domain import Acao, Tipo
from umavez_systems.fiscal.ports import Ato, Evento, Montado, NadaEnviado, Numerado, Ocupada, Resposta, SemResposta
from umavez_systems.fiscal.rules.identifiers import Chave, id_evento, id_inutilizacao

CNPJ = "11222333000181"
EPEC = "110140"


@dataclass
class Papel:
    """An authority on paper: the decision table of SEFAZ over a dictionary. It has no wire and loses nothing."""

    notes: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    events: dict[str, Evento] = field(default_factory=dict)
    voided: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)
    asks: list[str] = field(default_factory=list)
    late: list[Ato] = field(default_factory=list)
    refuse: bool = False
    processed: int = 0
    nome: str = "sefaz"
    pontual: bool = False
    """Whether what is late arrives before anybody has waited out a pause."""

    def montar(self, numerado: Numerado) -> Montado:
        """Bytes that say what they are."""
        month = numerado.emissao[2:4] + numerado.emissao[5:7]
        order = numerado.pedido
        chave = Chave(
            "35", month, CNPJ, order.tipo.modelo, order.serie, numerado.numero, numerado.tp_emis, numerado.cnf
        )
        xml = f"<nota>{chave}</nota>".encode()
        names = (chave.id_idempotencia, str(chave), chave.natural("2"))
        return Montado(xml, *names, f"d{chave}", f"{numerado.pedido.total:.2f}")

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """A cancellation."""
        name = id_evento("110111", ato.chave or "", 1)
        return replace(ato, acao=Acao.CANCELAR, nome=name, xml=name.encode(), texto=justificativa)

    def montar_correcao(self, ato: Ato, texto: str, sequencia: int, quando: str) -> Ato:
        """A letter."""
        name = id_evento("110110", ato.chave or "", sequencia)
        return replace(ato, acao=Acao.CORRIGIR, nome=name, xml=name.encode(), texto=texto, sequencia=sequencia)

    def montar_epec(self, ato: Ato, quando: str) -> Ato:
        """An advance notice."""
        return replace(ato, acao=Acao.EPEC, nome=id_evento(EPEC, ato.chave or "", 1))

    def montar_inutilizacao(
        self, tipo: Tipo, ano: str, serie: int, primeiro: int, ultimo: int, justificativa: str
    ) -> Ato:
        """A voiding."""
        name = id_inutilizacao("35", ano, CNPJ, tipo.modelo, serie, primeiro, ultimo)
        return Ato(Acao.INUTILIZAR, name, name.encode(), tipo, texto=justificativa)

    def transmitir(self, ato: Ato) -> Resposta:
        """One send, through its fault."""
        self.arrive()
        fault = self.sends.pop(0) if self.sends else "ok"
        match fault:
            case "antes":
                raise SemResposta("lost before")
            case "nada":
                raise NadaEnviado("never sent")
            case "ocupada":
                raise Ocupada("busy", 0.0)
            case "tarde":
                self.late.append(ato)
                raise SemResposta("still on its way")
        answer = self._process(ato)
        if fault == "duplicada":
            answer = self._process(ato)
        if fault == "depois":
            raise SemResposta("lost after")
        if fault == "feita e ocupada":
            raise Ocupada("busy, says a gateway, after it was processed", 0.0)
        return answer

    def arrive(self) -> None:
        """What was on its way gets there."""
        while self.late:
            self._process(self.late.pop())

    def _process(self, ato: Ato) -> Resposta:
        self.processed += 1
        if ato.acao is Acao.EMITIR:
            return self._note(ato)
        if ato.acao is Acao.INUTILIZAR:
            first = ato.nome not in self.voided
            if first:
                self.voided.append(ato.nome)
            return Resposta("inutilizacao", "102" if first else "563", "", b"", protocolo="1")
        code = self._event(ato)
        protocol = "1" if code in ("135", "136") else None
        return Resposta("evento", code, "", b"", chave=ato.chave, protocolo=protocol)

    def _note(self, ato: Ato) -> Resposta:
        chave = ato.chave or ""
        code = {"AUTORIZADO": "204", "CANCELADO": "218"}.get(self.notes.get(chave, ""), "100")
        if code == "100" and self.refuse:
            code = "233"
        if code == "100" and ato.tp_emis == "4" and id_evento(EPEC, chave, 1) not in self.events:
            code = "691"
        if code == "100":
            self.notes[chave], self.digests[chave] = "AUTORIZADO", ato.digest or ""
        return Resposta("autorizacao", code, "", b"", chave, "1" if code == "100" else None, ato.digest)

    def _event(self, ato: Ato) -> str:
        if ato.nome in self.events:
            return "573"
        if ato.acao is Acao.EPEC:
            self.events[ato.nome] = Evento(EPEC, 1, "136", "1")
            return "136"
        if self.notes.get(ato.chave or "") != "AUTORIZADO":
            return "580"
        kind = ato.nome[2:8]
        self.events[ato.nome] = Evento(kind, ato.sequencia, "135", "1", ato.texto)
        if kind == "110111":
            self.notes[ato.chave or ""] = "CANCELADO"
        return "135"

    def consultar(self, ato: Ato) -> Resposta:
        """The situation of a note."""
        if (self.asks.pop(0) if self.asks else "ok") == "muda":
            raise SemResposta("no answer")
        chave = ato.chave or ""
        state = self.notes.get(chave)
        code = {"AUTORIZADO": "100", "CANCELADO": "101", None: "217"}[state]
        events = tuple(event for name, event in self.events.items() if name[8:52] == chave)
        return Resposta("consulta", code, "", b"", chave, "1" if state else None, self.digests.get(chave), None, events)

    def situacao(self, tp_emis: str = "1") -> Resposta:
        """Up."""
        return Resposta("status", "107", "", b"")

    def close(self) -> None:
        """Nothing to close."""
