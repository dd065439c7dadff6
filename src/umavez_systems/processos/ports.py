"""PayerPortal: what the system needs from a payer, and what each way of failing means for a retry."""

from __future__ import annotations

from typing import Protocol

from umavez_systems.processos.domain import Lote, Pagamento, Protocolo


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


class PayerPortal(Protocol):
    """A payer's portal. Each verb raises PortalError kinds; `submit` and `pay` also raise Glosa, which is final."""

    def eligible(self, operadora: str, carteira: str) -> bool:
        """Whether the patient is covered. Changes nothing."""
        ...

    def submit(self, lote: Lote, referencia: str) -> Protocolo:
        """Hand in a lote (ENVIO_LOTE_GUIAS)."""
        ...

    def protocol_of(self, lote: Lote) -> Protocolo | None:
        """The protocolo of a lote, by its natural key (SOLIC_STATUS_PROTOCOLO); None: não localizado."""
        ...

    def pay(self, operadora: str, protocolo: str, valor: str, referencia: str) -> Pagamento:
        """Ask for the payment of a protocolo."""
        ...

    def payment_of(self, operadora: str, protocolo: str) -> Pagamento | None:
        """The payment of a protocolo (SOLIC_DEMONSTRATIVO_RETORNO); None: there is none."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
