"""SEFIN Nacional and São Paulo on paper: their decision tables over dictionaries, the key theirs to give."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from chaos.fiscal_paper import CNPJ, Papel
from umavez_systems.fiscal.domain import Acao
from umavez_systems.fiscal.ports import Ato, Evento, Montado, Numerado, Resposta, SemResposta
from umavez_systems.fiscal.rules.identifiers import id_idempotencia_adn, id_idempotencia_sp


@dataclass
class PapelNacional(Papel):
    """A repeated DPS is refused with E0014; a cancellation is an event beside the note."""

    nome: str = "adn"
    names: dict[str, list[str]] = field(default_factory=dict)
    """The keys of the notes made of a name, in order."""

    def montar(self, numerado: Numerado) -> Montado:
        """Bytes that say what they are."""
        name = self._name(numerado)
        return Montado(f"<nota>{name}</nota>".encode(), name, None, name, f"d{name}", f"{numerado.pedido.total:.2f}")

    def _name(self, numerado: Numerado) -> str:
        return id_idempotencia_adn("3550308", CNPJ, numerado.pedido.serie, numerado.numero)

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """A cancellation."""
        name = f"CANC{ato.chave}"
        return replace(ato, acao=Acao.CANCELAR, nome=name, xml=name.encode(), texto=justificativa)

    def _made(self, ato: Ato) -> str:
        made = self.names.setdefault(ato.nome, [])
        chave = f"{len(self.notes) + 1:050d}"
        made.append(chave)
        self.notes[chave], self.digests[chave] = "AUTORIZADO", ato.digest or ""
        return chave

    def _note(self, ato: Ato) -> Resposta:
        if ato.nome in self.names:
            return Resposta("autorizacao", "E0014", "", b"")
        return Resposta("autorizacao", "201", "", b"", self._made(ato), "1", ato.digest, sobre=ato.nome)

    def _process(self, ato: Ato) -> Resposta:
        self.processed += 1
        if ato.acao is Acao.EMITIR:
            return self._note(ato)
        chave = ato.chave or ""
        if self.notes.get(chave) != "AUTORIZADO":
            return self._already(chave)
        self.notes[chave] = "CANCELADO"
        self.events[ato.nome] = Evento("101101", 1, "registrado", "1", ato.texto)
        return Resposta("evento", "201", "", b"", chave=chave, protocolo="1")

    def _already(self, chave: str) -> Resposta:
        return Resposta("evento", "E0840", "", b"", chave=chave)

    def consultar(self, ato: Ato) -> Resposta:
        """HEAD, GET, the note and its events, in one."""
        if (self.asks.pop(0) if self.asks else "ok") == "muda":
            raise SemResposta("no answer")
        name = ato.documento or ato.nome
        made = self.names.get(name)
        return self._told(ato, name, made) if made else self._absent()

    def _absent(self) -> Resposta:
        return Resposta("consulta", "404", "", b"")

    def _told(self, ato: Ato, name: str, made: list[str]) -> Resposta:
        chave = made[-1]
        events = tuple(event for act, event in self.events.items() if act == f"CANC{chave}")
        return Resposta(
            "consulta", "200", "", b"", chave, "1", self.digests[chave], eventos=events, sobre=name, documento="<x/>"
        )


@dataclass
class PapelPaulistana(PapelNacional):
    """A re-sent RPS cancels the note that is there and issues another."""

    nome: str = "sp"
    pontual: bool = True
    destroyed: list[str] = field(default_factory=list)

    def _name(self, numerado: Numerado) -> str:
        return id_idempotencia_sp("12345678", str(numerado.pedido.serie), numerado.numero)

    def _note(self, ato: Ato) -> Resposta:
        lost = tuple(chave for chave in self.names.get(ato.nome, []) if self.notes[chave] == "AUTORIZADO")
        for chave in lost:
            self.notes[chave] = "CANCELADO"
        self.destroyed += lost
        code = "217" if lost else "200"
        return Resposta("autorizacao", code, "", b"", self._made(ato), "1", sobre=ato.nome, anteriores=lost)

    def _process(self, ato: Ato) -> Resposta:
        found = super()._process(ato)
        return replace(found, codigo="200") if found.servico == "evento" and found.codigo == "201" else found

    def _already(self, chave: str) -> Resposta:
        return Resposta("evento", "1301", "", b"", chave=chave)

    def _absent(self) -> Resposta:
        return Resposta("consulta", "1106", "", b"")

    def _told(self, ato: Ato, name: str, made: list[str]) -> Resposta:
        chave = made[-1]
        lost = {one for one in (made if ato.insistir else [*made[-1:], ato.chave or chave]) if one != chave}
        code = "N" if self.notes[chave] == "AUTORIZADO" else "C"
        digest = self.digests[chave]
        return Resposta("consulta", code, "", b"", chave, "1", digest, sobre=name, anteriores=tuple(sorted(lost)))
