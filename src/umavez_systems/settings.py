"""Settings: everything that can be set, from the environment, with safe defaults."""

from __future__ import annotations

import os
import re
from functools import cached_property

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LOOPBACK = ("127.0.0.1", "::1", "localhost")
DAYS_30 = 30 * 24 * 3600
_NAME = re.compile(r"^[A-Za-z0-9_.-]{1,60}$")


class Settings(BaseSettings):
    """Read from variables that begin with UMAVEZ_, or from an `.env` file in the working folder."""

    model_config = SettingsConfigDict(env_prefix="UMAVEZ_", env_file=".env", extra="ignore")

    database: str = Field(default="sqlite:///umavez.db", description="sqlite:///file.db or postgresql://…")
    host: str = Field(default="127.0.0.1", description="address to listen on; anything but loopback needs api_keys")
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    threads: int = Field(default=16, ge=1, le=256, description="use cases running at once in one worker")
    api_keys: str = Field(
        default="", description="name:secret, comma separated; empty: loopback only, one principal 'local'"
    )
    keep_seconds: int = Field(default=DAYS_30, ge=60, description="how long idempotencia_operacoes are kept")
    sweep_seconds: int = Field(default=3600, ge=1, description="pause between two clean-ups")
    max_body_bytes: int = Field(default=1_000_000, ge=1_000)
    portal_url: str = Field(default="http://127.0.0.1:8020", description="the payer's portal that processos talk to")
    portal_token: str = Field(default="", description="sent to the portal as bearer; never shown")
    portal_timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    portal_quiet_seconds: float = Field(
        default=30.0, ge=0, description='how long "not there" at the portal may still mean "on its way"'
    )
    processos_lease_seconds: float = Field(default=30.0, ge=0.05, description="claim of an operation without heartbeat")
    processos_keep_seconds: int = Field(default=24 * 3600, ge=60, description="how long their results are replayed")
    processos_pause_seconds: float = Field(default=1.0, ge=0.01, description="first wait after a failed step; doubles")
    confirmation_ttl_seconds: int = Field(
        default=300, ge=10, le=86_400, description="how long a ride outside the fence may be confirmed"
    )
    fleet_refresh_seconds: float = Field(
        default=1.0, ge=0, le=60, description="how old this process's picture of drivers and fences may be"
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
        return url

    @cached_property
    def principals(self) -> dict[str, str]:
        """Secret by name. Raises ValueError for a malformed list."""
        named: dict[str, str] = {}
        for entry in filter(None, (part.strip() for part in self.api_keys.split(","))):
            name, _, secret = entry.partition(":")
            if not _NAME.match(name) or len(secret) < 16:
                raise ValueError("UMAVEZ_API_KEYS must be name:secret pairs; a secret has at least 16 characters")
            named[name] = secret
        return named

    def refuse_open_door(self) -> None:
        """Raise ValueError when the server would listen beyond loopback without any API key."""
        if self.host not in LOOPBACK and not self.principals:
            raise ValueError(f"listening on {self.host} needs UMAVEZ_API_KEYS=name:secret; without keys use 127.0.0.1")

    @property
    def shown_database(self) -> str:
        """The database's URL as it may be printed."""
        return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", re.sub(r"password=[^&]*", "password=***", self.database))

    def export(self) -> None:
        """Hand these settings to the worker processes, which read the environment."""
        for name, value in self.model_dump().items():
            os.environ[f"UMAVEZ_{name.upper()}"] = str(value)
