"""DKIM: signatures that follow from the mail and its Date alone, so that every attempt carries the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from umavez import ConfigurationError

Sign = Callable[[bytes, int], bytes]
SIGNED = (
    b"from",
    b"to",
    b"subject",
    b"date",
    b"message-id",
    b"list-unsubscribe",
    b"list-unsubscribe-post",
    b"mime-version",
)


@lru_cache(maxsize=4)
def signer_of(setting: str) -> Sign | None:
    """What signs mails, from selector:domain:/path/to/key.pem; None without. Raises ValueError."""
    if not setting:
        return None
    selector, _, rest = setting.partition(":")
    domain, _, path = rest.partition(":")
    if not selector or not domain or not Path(path).is_file():
        raise ValueError("UMAVEZ_MAILING_DKIM must be selector:domain:/path/to/key.pem, and the file must be there")
    try:
        import dkim  # noqa: PLC0415  # needs umavez[dkim], only where mails are signed
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"UMAVEZ_MAILING_DKIM needs {missing.name}, which is not installed; run: pip install 'umavez[dkim]'."
        ) from missing

    key = Path(path).read_bytes()

    class Dated(dkim.DKIM):  # type: ignore[misc]  # it ships no types
        """Signs as of a given moment; by itself it would take the present one."""

        moment = 0

        def gen_header(self, fields: Any, *rest: Any) -> Any:
            dated = [(name, str(self.moment).encode() if name == b"t" else value) for name, value in fields]
            return super().gen_header(dated, *rest)

    def sign(content: bytes, moment: int) -> bytes:
        signer = Dated(content, timeout=5)
        signer.moment = moment
        line: bytes = signer.sign(
            selector.encode(), domain.encode(), key, include_headers=SIGNED, canonicalize=(b"relaxed", b"relaxed")
        )
        return line

    return sign
