"""What the operator is told by its environment, read once by `__main__` and handed down as plain values.

Every field can be set as `HEADRACE_OPERATOR_<FIELD>`. No other module reads the environment, and nothing here holds a
secret: database credentials are read per resource, from the secret that the resource names.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

KUBERNETES_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class OperatorSettings(BaseSettings):
    """The operator's configuration, immutable once read."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_OPERATOR_", frozen=True, extra="ignore")

    namespaces: Annotated[
        tuple[Annotated[str, Field(pattern=KUBERNETES_NAME)], ...],
        NoDecode,
        Field(description="Namespaces to watch, comma-separated in the environment; empty means the whole cluster."),
    ] = ()
    lease_name: Annotated[
        str, Field(pattern=KUBERNETES_NAME, description="Name of the Lease that elects the one replica that acts.")
    ] = "headrace-operator"
    lease_namespace: Annotated[
        str | None,
        Field(pattern=KUBERNETES_NAME, description="Where that Lease lives; None means the operator's own namespace."),
    ] = None
    metrics_port: Annotated[int, Field(ge=0, le=65535, description="Port of /metrics; 0 means any free port.")] = 9090
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe line that is written.")
    ] = "info"

    @field_validator("namespaces", mode="before")
    @classmethod
    def split_namespaces(cls, value: object) -> object:
        """Accept `"shop, billing"`, the form an environment variable can carry."""
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value
