"""What an operator sets for the gateway: where it listens, where requests go, how long and how large things may be.

Values come from ``refold.yaml`` (block ``gateway``), the environment and the command line, in that order; a client has
no say in any of them. A held key never shows in a representation of the settings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from refold.errors import ConfigError

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
VARIABLES = {
    "REFOLD_HOST": "host",
    "REFOLD_PORT": "port",
    "REFOLD_OPENAI_UPSTREAM": "openai_upstream",
    "REFOLD_ANTHROPIC_UPSTREAM": "anthropic_upstream",
    "REFOLD_OPENAI_KEY": "openai_key",
    "REFOLD_ANTHROPIC_KEY": "anthropic_key",
    "REFOLD_CACHE_MARKS": "cache_marks",
    "REFOLD_SUMMARIES": "summaries",
}
# Held keys belong into the environment: a file with them is soon committed.
_NOT_IN_FILES = frozenset({"openai_key", "anthropic_key"})
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All settings of the gateway; times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 7788
    openai_upstream: str = OPENAI
    anthropic_upstream: str = ANTHROPIC
    openai_key: str = field(default="", repr=False)
    anthropic_key: str = field(default="", repr=False)
    compress: bool = True
    arrival: bool = False
    cache_marks: Literal["client", "auto"] = "client"
    summaries: Literal["own", "client", "off"] = "own"
    body_bytes_max: int = 32_000_000
    requests_max: int = 1_000
    tenant_requests_max: int = 200
    tenant_streams_max: int = 16
    tenant_paths: str = ""
    connect_timeout_s: float = 10.0
    upstream_stall_s: float = 600.0
    client_stall_s: float = 120.0
    request_s_max: float = 3_600.0
    prepare_s_max: float = 60.0
    shutdown_s: float = 30.0
    sessions_known_max: int = 2_000
    memory_bytes_max: int = 64_000_000

    def __post_init__(self) -> None:
        for name in ("openai_upstream", "anthropic_upstream"):
            check_upstream(name, getattr(self, name))
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name.endswith(("_max", "_s", "_s_max")) and not value > 0:
                raise ConfigError(f"gateway.{one.name} must be more than 0, not {value}")
        for path in self.paths_for_tenants:
            if not path.startswith("/v1/"):
                raise ConfigError(f"gateway.tenant_paths holds {path[:40]!r}; a path begins with /v1/")
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"gateway.port must be 0 to 65535, not {self.port}")
        if self.cache_marks not in ("client", "auto"):
            raise ConfigError(f"gateway.cache_marks is client or auto, not {str(self.cache_marks)[:40]!r}")
        if self.summaries not in ("own", "client", "off"):
            raise ConfigError(f"gateway.summaries is own, client or off, not {str(self.summaries)[:40]!r}")

    def find_held_key(self, side: str) -> str:
        """Return the operator's key for an upstream, empty if clients bring their own."""
        return self.openai_key if side == "openai" else self.anthropic_key

    @property
    def paths_for_tenants(self) -> tuple[str, ...]:
        """Paths that tenants may reach with the operator's key, beside completions, embeddings and models."""
        return tuple(one.strip() for one in self.tenant_paths.split(",") if one.strip())

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the gateway."""
        return is_local_host(self.host)

    def change(self, changes: Mapping[str, object]) -> GatewaySettings:
        """Return the settings with those set anew that are not None."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def load_settings(workspace: str | Path | None = None, **call: object) -> GatewaySettings:
    """Return the settings that hold in a workspace; ``call`` are those of the command line, None where unset."""
    from refold.config.load import load_block

    found = load_block("gateway", VARIABLES, workspace)
    values: dict[str, object] = {}
    for name, (value, place) in found.items():
        if name in _NOT_IN_FILES and place not in VARIABLES:
            variable = next(key for key, setting in VARIABLES.items() if setting == name)
            raise ConfigError(f"{place}: {name} is a secret and does not belong into a file; set {variable}")
        values[name] = _read_value(name, value, place)
        try:
            GatewaySettings(**{name: values[name]})  # type: ignore[arg-type]
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
    return GatewaySettings(**values).change(call)  # type: ignore[arg-type]


def _read_value(name: str, value: object, place: str) -> object:
    known = {one.name: one.default for one in fields(GatewaySettings)}
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
        raise ConfigError(f"{place}: unknown setting 'gateway.{name[:40]}'{hint}")
    kind: type[Any] = type(known[name])
    try:
        if kind is bool:
            return _SWITCHES[str(value).strip().lower()]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)
    except (ValueError, KeyError, OverflowError):
        shown = "(hidden)" if name in _NOT_IN_FILES else repr(str(value)[:40])
        raise ConfigError(f"{place}: gateway.{name} must be a {kind.__name__}, not {shown}") from None


def is_local_host(host: str) -> bool:
    """Tell whether an address is one that only this machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_upstream(name: str, url: str) -> None:
    """Raise ConfigError unless this is a plain address: no user, password, query or fragment in it."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_plain = False
    if not is_plain:
        raise ConfigError(f"gateway.{name} is no address; write https://HOST/v1 or http://HOST:PORT/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"gateway.{name} must be a bare address; a key goes into REFOLD_OPENAI_KEY and the like")
