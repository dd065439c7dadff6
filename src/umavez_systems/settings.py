"""Settings: everything that can be set, from the environment, with safe defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from umavez import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
DAYS_30 = 30 * 24 * 3600
RESERVED = ("local", "umavez")
"""Names that are no caller's: everybody's without keys, and the engine's own."""
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""Where prometheus_client keeps the counters of several processes; read when a worker imports it."""
_ENGINES = ("seal_keys", "console_users")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
LONGEST_LINK = 500
"""Characters of the address that links in mails begin with: a line of a mail has 998 octets."""
_LINK = re.compile(
    r"https?://(?:[A-Za-z0-9._~%:@-]+|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?)(?:/[A-Za-z0-9._~%:@!$&'()*+,;=/-]*)?"
)


class Settings(BaseSettings):
    """Read from variables that begin with UMAVEZ_, or from an `.env` file in the working folder."""

    model_config = SettingsConfigDict(env_prefix="UMAVEZ_", env_file=".env", extra="ignore", hide_input_in_errors=True)

    # Not in the repr: it may hold a password. See `shown_database`.
    database: str = Field(default="sqlite:///umavez.db", description="sqlite:///file.db or postgresql://…", repr=False)
    host: str = Field(default="127.0.0.1", description="address to listen on; anything but loopback needs api_keys")
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    threads: int = Field(
        default=20, ge=1, le=256, description="use cases running at once in one worker; a tenth is each system's own"
    )
    waiting: int = Field(default=200, ge=1, le=100_000, description="use cases of one system that may wait for one")
    wait_seconds: float = Field(default=5.0, ge=0.05, le=60, description="how long one may wait; then 503")
    database_timeout_seconds: float = Field(
        default=10.0, ge=0.1, le=300, description="how long a statement, a lock or a silent database may take; then 503"
    )
    api_keys: SecretStr = Field(
        default=SecretStr(""), description="name:secret, comma separated; empty: loopback only, one principal 'local'"
    )
    allowed_hosts: str = Field(
        default="", description="comma separated names under which a server without api_keys may be asked, too"
    )
    keep_seconds: int = Field(default=DAYS_30, ge=60, description="how long idempotencia_operacoes are kept")
    sweep_seconds: int = Field(default=3600, ge=1, description="pause between two clean-ups")
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, le=16_000_000)
    max_connections: int = Field(
        default=1_000, ge=8, le=100_000, description="of one worker; never more than half of its file descriptors"
    )
    head_seconds: float = Field(default=10.0, gt=0, le=300, description="for a request's line and headers to arrive")
    body_seconds: float = Field(default=30.0, gt=0, le=3600, description="for a request's body to arrive")
    send_seconds: float = Field(default=30.0, gt=0, le=3600, description="for a client to read on")
    keep_alive_seconds: int = Field(default=5, ge=1, le=300, description="between two requests of a connection")
    max_websockets: int = Field(default=400, ge=1, le=100_000, description="open at once in one worker")
    max_websockets_each: int = Field(default=200, ge=1, le=100_000, description="the same, of one principal")
    max_websocket_bytes: int = Field(default=8_192, ge=1_024, le=1_000_000, description="of one message")
    websocket_ping_seconds: float = Field(
        default=20.0, gt=0, le=600, description="between two pings, and for a pong: silent clients are left"
    )
    portal_url: str = Field(default="http://127.0.0.1:8020", description="the payer's portal that processos talk to")
    portal_token: SecretStr = Field(default=SecretStr(""), description="sent to the portal as bearer; never shown")
    portal_timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    portal_quiet_seconds: float = Field(
        default=30.0, ge=0, description='how long "not there" at the portal may still mean "on its way"'
    )
    processos_lease_seconds: float = Field(default=30.0, ge=0.05, description="claim of an operation without heartbeat")
    processos_keep_seconds: int = Field(default=24 * 3600, ge=60, description="how long their results are replayed")
    processos_pause_seconds: float = Field(default=1.0, ge=0.01, description="first wait after a failed step; doubles")
    processos_round_seconds: float = Field(
        default=15.0, ge=0.05, description="pause between two rounds in which processos ask the payer and move on"
    )
    processos_appeal_days: int = Field(
        default=30, ge=0, le=3650, description="days after its demonstrativo in which a glosa can be appealed against"
    )
    fiscal_ambiente: Literal["simulador", "homologacao", "producao"] = Field(
        default="simulador", description="which tax authorities; the simulator is started by the server itself"
    )
    fiscal_dir: str = Field(default="umavez-fiscal", description="books of the simulator, and the local sealing key")
    fiscal_perfil: Literal["manual", "spec-1.0"] = Field(
        default="manual", description="how authorities' codes are read"
    )
    fiscal_envio_seconds: float = Field(default=60.0, gt=0, le=300, description="patience for an emission or event")
    fiscal_consulta_seconds: float = Field(default=30.0, gt=0, le=300, description="patience for a question")
    fiscal_patience_seconds: float = Field(default=90.0, gt=0, le=600, description="how long one call keeps trying")
    fiscal_lease_seconds: float = Field(default=30.0, ge=0.05, description="claim of an act without heartbeat")
    fiscal_settle_seconds: float = Field(default=10.0, ge=0, description="no question sooner after a silence")
    fiscal_first_seconds: float = Field(default=30.0, ge=0, description="first pause between two questions; doubles")
    fiscal_quarentena_seconds: float = Field(
        default=60.0, ge=0, description="how long an RPS of São Paulo must stay absent before it is sent again"
    )
    fiscal_sweep_seconds: float = Field(default=15.0, ge=0.05, description="pause between two rounds of reconciling")
    confirmation_ttl_seconds: int = Field(
        default=300, ge=10, le=86_400, description="how long a ride outside the fence may be confirmed"
    )
    fleet_refresh_seconds: float = Field(
        default=1.0, ge=0, le=60, description="how old this process's picture of drivers and fences may be"
    )
    max_pickup_km: float = Field(
        default=30.0, ge=0, le=20_100, description="how far a driver from outside the fence may be; 0: no limit"
    )
    ride_offer_seconds: float = Field(
        default=60.0, ge=0, le=3600, description="how long a driver has to accept a ride; then the next; 0: for ever"
    )
    rides_pause_seconds: float = Field(
        default=5.0, ge=0.05, le=600, description="pause between two looks at ended offers and waiting rides"
    )
    max_communities: int = Field(default=5_000, ge=1, le=100_000, description="communities that are kept, in total")
    max_fence_corners: int = Field(
        default=250_000, ge=4, le=10_000_000, description="corners of all fences; each process keeps them in memory"
    )
    smtp_url: str = Field(
        default="", description="smtp:// or smtps://; without it the built-in sink takes the mails", repr=False
    )
    broker: str = Field(default="local:", description="local: for the database itself, or amqp://…", repr=False)
    broker_prefix: str = Field(default="umavez", description="what names of queues and exchanges begin with")
    storage: str = Field(default="", description="folder or s3://bucket/prefix for uploaded lists")
    mailing_from: str = Field(default="umavez <mailing@localhost>", description="sender where an upload names none")
    mailing_lock_seconds: float = Field(default=30.0, ge=0.2, le=3600, description="silence that frees a mailing")
    mailing_recovery_seconds: float = Field(default=300.0, ge=0.2, le=86_400, description="pause between recoveries")
    mailing_rate: float = Field(default=0.0, ge=0, description="mails per second over all workers; 0: no limit")
    mailing_group: int = Field(
        default=100, ge=1, le=1000, description="mails whose outcome one crash may leave unknown"
    )
    mailing_connections: int = Field(default=10, ge=1, le=200, description="connections to the provider per worker")
    mailing_dkim: str = Field(default="", description="selector:domain:/path/to/key.pem signs every mail")
    mailing_http_url: str = Field(default="", description="an HTTP provider with Resend's contract, instead of SMTP")
    mailing_http_token: str = Field(default="", description="its key, sent as bearer; never shown", repr=False)
    mailing_http_secret: str = Field(
        default="", description="whsec_…, with which it signs what it reports; never shown", repr=False
    )
    public_url: str = Field(default="", description="how people reach this server, for links in mails")
    mailing_embedded: Literal["auto", "on", "off", "relay", "worker"] = Field(
        default="auto", description="what of mailing runs inside the server: both, none or one; auto: both on SQLite"
    )
    mailing_max_bytes: int = Field(default=2 << 30, ge=1_000, description="largest list that is taken")
    seal_keys: SecretStr = Field(
        default=SecretStr(""), description="name:base64 of 32 bytes, newest first, comma separated; seals what is kept"
    )
    console_users: SecretStr = Field(
        default=SecretStr(""), description="who may sign in to the console: entries of `umavez console-user`"
    )
    enable_geofence: bool = Field(
        default=True,
        validation_alias=AliasChoices("enable_geofence", "UMAVEZ_ENABLE_GEOFENCE", "ENABLE_GEOFENCE"),
        description="look for drivers inside the passenger's fence first; confirmations work either way",
    )

    @field_validator("database")
    @classmethod
    def _known_database(cls, url: str) -> str:
        if url.partition(":")[0] not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("the systems run on sqlite:///file.db or postgresql://…")
        if url.startswith("sqlite") and not url.partition(":///")[2].partition("?")[0]:
            raise ValueError("no file is named; write sqlite:///file.db")
        return url

    @field_validator("public_url")
    @classmethod
    def _followed(cls, url: str) -> str:
        if url and (not _LINK.fullmatch(url) or len(url) > LONGEST_LINK):
            raise ValueError(
                f"must be http:// or https:// and a host, in ASCII, with a path at most, and have {LONGEST_LINK}"
                " characters at most: it stands in a header of every mail"
            )
        return url.rstrip("/")

    @model_validator(mode="after")
    def _reachable(self) -> Settings:
        if not self.public_url:
            self.public_url = f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"
        return self

    @cached_property
    def principals(self) -> dict[str, SecretStr]:
        """Secret by name. Raises ValueError for a malformed list."""
        named: dict[str, SecretStr] = {}
        for entry in filter(None, (part.strip() for part in self.api_keys.get_secret_value().split(","))):
            name, _, secret = entry.partition(":")
            if not _NAME.fullmatch(name) or len(secret) < 16:
                raise ValueError("UMAVEZ_API_KEYS must be name:secret pairs; a secret has at least 16 characters")
            if name.lower() in RESERVED:
                raise ValueError(f"UMAVEZ_API_KEYS: the name {name!r} is reserved; choose another")
            if name.lower() in map(str.lower, named):
                raise ValueError(f"UMAVEZ_API_KEYS: the name {name!r} stands there twice; name each caller once")
            if SecretStr(secret) in named.values():
                raise ValueError(f"UMAVEZ_API_KEYS: {name!r} has the secret of another; give each its own")
            named[name] = SecretStr(secret)
        return named

    @property
    def hosts(self) -> frozenset[str]:
        """The names in lower case under which a server without API keys may be asked."""
        given = (name.strip().lower().strip("[]") for name in (*LOOPBACK, self.host, *self.allowed_hosts.split(",")))
        return frozenset(filter(None, given))

    def refuse_open_door(self) -> None:
        """Raise ValueError when the server would listen beyond loopback without any API key."""
        if self.host not in LOOPBACK and not self.principals:
            raise ValueError(f"listening on {self.host} needs UMAVEZ_API_KEYS=name:secret; without keys use 127.0.0.1")

    @property
    def mailing_parts(self) -> frozenset[str]:
        """What of mailing the server itself runs: on SQLite relay and worker, unless something else is said."""
        both = frozenset(("relay", "worker"))
        if self.mailing_embedded in both:
            return frozenset((self.mailing_embedded,))
        here = self.mailing_embedded == "on" or (self.mailing_embedded == "auto" and self.database.startswith("sqlite"))
        return both if here else frozenset()

    @property
    def storage_folder(self) -> str:
        """Where uploaded lists are kept: beside an SQLite file, unless something else is said."""
        if self.storage:
            return self.storage
        return "umavez.mailings" if self.file is None else str(self.file.with_name(f"{self.file.name}.mailings"))

    @property
    def spool(self) -> Path | None:
        """Where uploads arrive: on the file system where they are kept."""
        return None if self.storage_folder.startswith("s3://") else Path(self.storage_folder.removeprefix("file://"))

    @property
    def shown_database(self) -> str:
        """The database's URL as it may be printed: made of the parts that are known to be no secret."""
        scheme = self.database.partition(":")[0]
        if scheme == "sqlite":
            return self.database.partition("?")[0]
        try:
            parts = urlsplit(self.database)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return f"{scheme}://***"
        # A password that was not written as a URL asks for may have cut the URL at the wrong places.
        if any("@" in part for part in (parts.path, parts.query, parts.fragment)):
            return f"{scheme}://***"
        user = f"{parts.username}@" if parts.username else ""
        return f"{scheme}://{user}{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}{parts.path}"

    @property
    def file(self) -> Path | None:
        """The SQLite file; None where the database is a server's."""
        if not self.database.startswith("sqlite"):
            return None
        return Path(unquote(self.database.partition(":///")[2].partition("?")[0]))

    def hand_over(self) -> None:
        """Let the engine, which reads the environment and no `.env`, find its own settings that stand there."""
        for name in _ENGINES:
            if value := getattr(self, name).get_secret_value():
                os.environ[f"UMAVEZ_{name.upper()}"] = value

    def export(self) -> None:
        """Hand these settings to the worker processes, which read the environment."""
        # One by one: what a signal handler raises while pydantic dumps a secret comes out as an error of the settings.
        for name in type(self).model_fields:
            value = getattr(self, name)
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            os.environ[f"UMAVEZ_{name.upper()}"] = str(plain)


def settings_of(given: Mapping[str, Any], *, there: bool = False) -> Settings:
    """The environment's settings with what a command was `given`; what is None was not. Raises ConfigurationError.

    `there`: its database must be: a name that was mistyped must not become an empty file.
    """
    try:
        settings = Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise ConfigurationError(_sentence(error)) from None
    settings.hand_over()
    if there and settings.file is not None and not settings.file.is_file():
        raise ConfigurationError(
            f"There is no file {settings.file}; correct --database, or make the file with: umavez serve."
        )
    return settings


def _sentence(error: ValidationError) -> str:
    """What is wrong in one line, without the values that were given: they may hold a password."""
    found = error.errors(include_input=False, include_url=False)
    if any(isinstance(each.get("ctx", {}).get("error"), UnicodeDecodeError) for each in found):
        return "The file .env is no text in UTF-8; write it so."
    told = (f"{'.'.join(map(str, each['loc']))}: {each['msg'].removeprefix('Value error, ')}" for each in found)
    return "; ".join(each.removeprefix(": ") for each in told)
