"""What a process is told by its environment, read once and handed down as plain values.

The names are published (dashboards, charts and scripts rely on them); options of the command line override them. No
other module reads the environment, and nothing of a DSN is ever shown: it may hold a password.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from headrace.domain.errors import UsageError
from headrace.domain.ids import Position
from headrace.domain.subscription import Start, StartFrom

PREFIX = "HEADRACE_"

Setup = Literal["auto", "manual"]
LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

# What would do instead, for the one message that a bad value gets.
FIXES = {
    "app": "write it as module:attribute, for example shop.read_models:app",
    "dsn": "write it as postgresql://user@host:5432/database",
    "group": "write one group name",
    "handler_timeout_seconds": "use seconds, from 0.1 to 86400",
    "lanes": "use a whole number from 1 to 256",
    "lease_seconds": "use seconds, from 1 to 3600",
    "log_format": "use json or console, or leave it out",
    "log_level": "use debug, info, warning or error",
    "metrics_port": "use a port from 0 to 65535; 0 takes any free one",
    "pooler": "use true or false",
    "schema_name": "use the name of a PostgreSQL schema, at most 63 bytes",
    "setup": "use auto or manual",
    "start_from": "use beginning, now or a position",
    "subscribers": "write names separated by commas",
}

# A Kubernetes Service named headrace-metrics puts its own address into every pod's HEADRACE_METRICS_PORT.
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")


class Settings(BaseSettings):
    """The configuration of a process, immutable once read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    dsn: SecretStr | None = None
    app: str | None = None
    subscribers: Annotated[tuple[str, ...], NoDecode] = ()
    group: str | None = None
    setup: Setup = "auto"
    start_from: Start | None = None
    lanes: Annotated[int, Field(ge=1, le=256)] = 1
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9090
    lease_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 15.0
    handler_timeout_seconds: Annotated[float, Field(ge=0.1, le=86400, allow_inf_nan=False)] = 30.0
    schema_name: Annotated[str, Field(min_length=1, validation_alias=f"{PREFIX}SCHEMA")] = "headrace"
    log_format: LogFormat | None = None
    log_level: LogLevel = "info"
    pooler: bool = False

    @field_validator("subscribers", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("start_from", mode="before")
    @classmethod
    def _read_start(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        if text in set(StartFrom):
            return StartFrom(text)
        if text.isascii() and text.isdigit():
            return Position(int(text))
        raise ValueError

    @field_validator("metrics_port", mode="before")
    @classmethod
    def _ignore_service_link(cls, value: object) -> object:
        if isinstance(value, str) and _SERVICE_LINK.match(value):
            return cls.model_fields["metrics_port"].default
        return value

    @field_validator("setup", "log_format", "log_level", mode="before")
    @classmethod
    def _fold_case(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("schema_name")
    @classmethod
    def _fits_an_identifier(cls, value: str) -> str:
        if len(value.encode()) > 63 or "\x00" in value:  # noqa: PLR2004 - NAMEDATALEN of PostgreSQL, less one
            raise ValueError
        return value

    def required_dsn(self) -> str:
        """Return the DSN.

        Raises:
            UsageError: there is none.

        """
        if self.dsn is None:
            raise UsageError(
                "no database was named: set HEADRACE_DSN or give --dsn postgresql://user@host:5432/database"
            )
        return self.dsn.get_secret_value()

    def required_app(self) -> str:
        """Return the application as ``module:attribute``.

        Raises:
            UsageError: there is none.

        """
        if self.app is None:
            raise UsageError("no application was named: give APP as module:attribute, or set HEADRACE_APP")
        return self.app


def read_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the environment; ``overrides`` are options given by hand, by field name, and win unless None.

    Raises:
        UsageError: a value cannot be used; the message names the variable or option, and the fix.

    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageError("\n".join(dict.fromkeys(_sentence(str(e["loc"][0]), given) for e in error.errors()))) from None


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + field.removesuffix("_name").upper()


def _sentence(location: str, given: Mapping[str, Any]) -> str:
    # An alias is reported under its own name, a field under the field's.
    field = next((name for name in Settings.model_fields if location in (name, variable(name))), location)
    where = variable(field)
    if field in given:
        where = f"--{field.removesuffix('_name').removesuffix('_seconds').replace('_', '-')} ({where})"
    return f"the value of {where} cannot be used: {FIXES.get(field, 'correct it')}"
