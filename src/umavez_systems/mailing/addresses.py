"""Addresses: how an e-mail address is written down, so that two ways to write it are one. Pure."""

from __future__ import annotations

from functools import lru_cache

from email_validator import EmailNotValidError, validate_email

LONGEST = 320


def kept_address(text: str) -> str:
    """An address as lists keep it, or what was written where it is none; case and spaces do not matter."""
    plain = text.strip().lower()
    return plain if plain.isascii() else address_of(plain)[0]


@lru_cache(maxsize=10_000)
def address_of(email: str) -> tuple[str, str | None]:
    """An address as it is sent to, its domain in ASCII, and why it is not one. It must be without outer spaces."""
    if len(email) > LONGEST:
        return email, "O endereço é longo demais."
    try:
        found = validate_email(email, check_deliverability=False, test_environment=True, strict=True)
    except EmailNotValidError:
        return email, f"Endereço inválido: {_fault(email)}"
    return f"{found.local_part}@{found.ascii_domain}".lower(), None


def _fault(email: str) -> str:
    """What is most likely wrong with an address, in words for the person who keeps the list."""
    if email.count("@") != 1:
        return "deve ter um só @, entre o nome e o domínio."
    name, _, domain = email.partition("@")
    if not name or not domain:
        return "falta o nome ou o domínio."
    return "o domínio não está completo." if "." not in domain else "há um caractere que não pode estar ali."
