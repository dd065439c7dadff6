"""PayerPortal: what the system needs from a payer, and what each way of failing means for a retry."""

from __future__ import annotations

from typing import Protocol, TypeVar

from umavez_systems.processos.contas.domain import Recebido, Recurso, Tipo
from umavez_systems.processos.domain import Lote, Pagamento, Protocolo, Remessa
from umavez_systems.processos.tiss.tables import Situacao

ANALYSIS = 900.0
"""Seconds between two looks at a protocolo that the payer is still analysing: that takes days."""


class PortalError(Exception):
    """The portal did not do what was asked. Its message never holds patient data."""


class PortalOcupado(PortalError):
    """The portal said "not now" before doing anything; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PortalInalcancavel(PortalError):
    """Nothing was sent: sending again is safe."""


class PortalSemResposta(PortalError):
    """It was sent and no usable answer came: the portal may have acted. Ask before sending again."""


class Duplicado(PortalError):
    """The portal has it already: from us earlier, or from somebody else. Ask which."""


class EmAnalise(PortalOcupado):
    """The protocolo is not released yet: nothing was asked for."""

    def __init__(self, situacao: Situacao) -> None:
        super().__init__(f"O protocolo ainda não foi liberado (situação {situacao}, {situacao.name}).", ANALYSIS)
        self.situacao = situacao


class EmAndamento(PortalOcupado):
    """Part of what is to be asked was asked and noted; the next attempt goes on behind it."""

    def __init__(self, asked: int, of: int) -> None:
        super().__init__(f"A operadora respondeu por {asked} de {of} carteiras; a consulta continua.", 0.0)


class NaoPagavel(PortalError):
    """The protocolo will not be paid as it stands: closed, cancelled, paid, or another's to pay."""


class Alheio(PortalError):
    """The payer has something under the same name that is not ours."""


class SemDemonstrativo(PortalOcupado):
    """The payer has not issued it yet: nothing was asked for."""

    def __init__(self, tipo: Tipo) -> None:
        super().__init__(f"A operadora ainda não emitiu o demonstrativo de {tipo.value} deste protocolo.", ANALYSIS)


class DemonstrativoInvalido(PortalError):
    """What the payer sent as a demonstrativo cannot be relied on; nothing of it was kept."""


class Recusado(PortalError):
    """We do not ask the payer at all, and nothing was sent."""


class GlosaDesconhecida(Recusado):
    """No demonstrativo that was received has this glosa, or not for so much."""


class ForaDoPrazo(Recusado):
    """The day until which the glosa could be appealed against is over."""


class JaRecorrida(Recusado):
    """The glosa is another recurso's."""


class PayerPortal(Protocol):
    """A payer's portal. Each verb raises PortalError kinds; `submit`, `pay` and `appeal` also Glosa, which is final."""

    def eligible(self, operadora: str, carteira: str) -> bool:
        """Whether the patient is covered. Changes nothing."""
        ...

    def submit(self, lote: Lote, referencia: str) -> Protocolo:
        """Hand in a lote (ENVIO_LOTE_GUIAS)."""
        ...

    def protocol_of(self, remessa: Remessa) -> Protocolo | None:
        """The protocolo of a lote, by its natural key (SOLIC_STATUS_PROTOCOLO); None: não localizado."""
        ...

    def situation_of(self, operadora: str, protocolo: str) -> Situacao:
        """Where a protocolo stands (SOLIC_STATUS_PROTOCOLO). Changes nothing."""
        ...

    def pay(self, operadora: str, protocolo: str, valor: str, referencia: str) -> Pagamento:
        """Ask for the payment of a protocolo."""
        ...

    def payment_of(self, operadora: str, protocolo: str) -> Pagamento | None:
        """The payment of a protocolo (SOLIC_DEMONSTRATIVO_RETORNO); None: there is none."""
        ...

    def statement_of(self, operadora: str, protocolo: str, tipo: Tipo) -> bytes | None:
        """The demonstrativo of a protocolo as a TISS message (SOLIC_DEMONSTRATIVO_RETORNO); None: not issued yet."""
        ...

    def appeal(self, recurso: Recurso, referencia: str) -> Recebido:
        """Hand in a recurso (RECURSO_GLOSA)."""
        ...

    def appeal_of(self, operadora: str, protocolo: str, numero: str) -> Recebido | None:
        """The recurso of that number, and where it stands; None: there is none. Changes nothing."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class Referido(Protocol):
    """What a payer says of something that came under a reference."""

    @property
    def referencia(self) -> str:
        """What was sent with it."""
        ...


R = TypeVar("R", bound=Referido)


def confirmed(found: R, referencia: str) -> R:
    """The answer to what was sent under `referencia`. Raises PortalSemResposta for an answer to something else."""
    if found.referencia != referencia:
        raise PortalSemResposta("O portal respondeu sobre outro pedido.")
    return found
