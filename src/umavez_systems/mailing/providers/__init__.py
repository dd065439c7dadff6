"""Providers: who carries the mails, chosen by the settings."""

from __future__ import annotations

from umavez_systems.database import Database
from umavez_systems.mailing.ports import Provider
from umavez_systems.mailing.providers.sink import SinkProvider
from umavez_systems.settings import Settings


def open_provider(settings: Settings, database: Database) -> Provider:
    """An HTTP provider or an SMTP relay where one is set; otherwise the built-in sink. Raises ValueError."""
    if settings.mailing_http_url:
        from umavez_systems.mailing.providers.http import HttpProvider  # noqa: PLC0415  # only where it is used

        return HttpProvider(settings.mailing_http_url, settings.mailing_http_token, settings.mailing_connections)
    if settings.smtp_url:
        from umavez_systems.mailing.providers.smtp import SmtpProvider  # noqa: PLC0415  # the same

        return SmtpProvider(settings.smtp_url, settings.mailing_connections)
    return SinkProvider(database)
