"""Gateway settings: where it listens, where requests go, limits in time and size, and who pays for summaries.

Values come from ``refold.yaml`` (block ``gateway``), the environment and the command line, in that order. A summary is
written by the configured model, else by the conversation's model with a key that the gateway holds or, with
``summaries: client``, with the key of the client whose request triggered it. That key is passed by context and never
stored, logged or shown. Without a key, rules write the summary; keys in the environment are not spent on it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from refold.config import CompressionConfig
from refold.config.schema import block_of
from refold.errors import ConfigError
from refold.ledger.records import SessionRow
from refold.llm.choose import GATEWAY, Endpoint, Place, name_conversation
from refold.llm.summariser import find_own, is_plugin
from refold.server.request import Asked, find_bearer
from refold.server.wires import Side, Wire
from refold.stages.stage import acts_on_arrival

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
_UPSTREAMS = ("openai_upstream", "anthropic_upstream", "openai_key", "anthropic_key")
_VARIED = ("host", "port", *_UPSTREAMS, "cache_marks", "summaries", "otel", "otel_metrics")
# Settings that an environment variable sets, by its name: REFOLD_OPENAI_UPSTREAM.
VARIABLES = {f"REFOLD_{name.upper()}": name for name in _VARIED}
# The operator's keys belong in the environment: a file with keys is easily committed.
_NOT_IN_FILES = frozenset({"openai_key", "anthropic_key"})
# Bodies above this size are read and prepared in a worker process: they would block other requests.
LARGE_BYTES = 2_000_000
# Reading a small body takes less time than handing it to a thread.
INLINE_BYTES_MAX = 65_536
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Gateway settings; times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 7788
    openai_upstream: str = OPENAI
    anthropic_upstream: str = ANTHROPIC
    openai_key: str = field(default="", repr=False)
    anthropic_key: str = field(default="", repr=False)
    compress: bool = True
    arrival: bool = False
    recall_tool: bool = False
    cache_marks: Literal["client", "auto"] = "client"
    summaries: Literal["own", "client", "off"] = "own"
    body_bytes_max: int = 32_000_000
    requests_max: int = 1_000
    tenant_requests_max: int = 200
    tenant_streams_max: int = 16
    tenant_bytes: int = 0
    tenant_paths: str = ""
    connect_timeout_s: float = 10.0
    upstream_stall_s: float = 600.0
    client_stall_s: float = 120.0
    request_s_max: float = 3_600.0
    prepare_s_max: float = 60.0
    shutdown_s: float = 30.0
    sessions_known_max: int = 2_000
    memory_bytes_max: int = 64_000_000
    worker_bytes_min: int = LARGE_BYTES
    otel: str = "off"
    otel_metrics: bool = True

    def __post_init__(self) -> None:
        for name in ("openai_upstream", "anthropic_upstream"):
            check_upstream(name, getattr(self, name))
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name.endswith(("_max", "_min", "_s", "_s_max")) and not value > 0:
                raise ConfigError("gateway.{name} must be more than 0, not {value}", name=one.name, value=value)
        if self.tenant_bytes < 0:
            raise ConfigError(
                "gateway.tenant_bytes must be 0 (no limit) or more, not {tenant_bytes}", tenant_bytes=self.tenant_bytes
            )
        for path in self.paths_for_tenants:
            if not path.startswith("/v1/"):
                raise ConfigError("gateway.tenant_paths holds {path!r}; a path begins with /v1/", path=path[:40])
        if not 0 <= self.port <= 65_535:
            raise ConfigError("gateway.port must be 0 to 65535, not {port}", port=self.port)
        if self.cache_marks not in ("client", "auto"):
            raise ConfigError(
                "gateway.cache_marks is client or auto, not {cache_marks!r}", cache_marks=str(self.cache_marks)[:40]
            )
        if self.summaries not in ("own", "client", "off"):
            raise ConfigError(
                "gateway.summaries is own, client or off, not {summaries!r}", summaries=str(self.summaries)[:40]
            )
        if self.otel not in ("on", "off"):
            check_upstream("otel", self.otel, path="")

    def find_held_key(self, side: str) -> str:
        """Return the operator's key for an upstream, empty if clients bring their own."""
        return self.openai_key if side == "openai" else self.anthropic_key

    def find_url(self, side: str) -> str:
        """Return the address of an upstream as its clients expect it: OpenAI's has a version in its path."""
        if side == "anthropic":
            return self.anthropic_upstream.rstrip("/").removesuffix("/v1")
        url = self.openai_upstream.rstrip("/")
        return url if urlsplit(url).path.strip("/") else f"{url}/v1"

    @property
    def paths_for_tenants(self) -> tuple[str, ...]:
        """Paths that tenants may reach with the operator's key, beside completions, embeddings and models."""
        return tuple(one.strip() for one in self.tenant_paths.split(",") if one.strip())

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the gateway."""
        return is_local_host(self.host)

    def change(self, changes: Mapping[str, object]) -> GatewaySettings:
        """Return the settings with the given changes; None leaves a value unchanged."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def load_settings(workspace: str | Path | None = None, **call: object) -> GatewaySettings:
    """Return a workspace's settings; ``call`` are those of the command line, None where unset."""
    from refold.config.load import load_block

    found = load_block("gateway", VARIABLES, workspace)
    values: dict[str, object] = {}
    for name, (value, place) in found.items():
        if name in _NOT_IN_FILES and place not in VARIABLES:
            variable = next(key for key, setting in VARIABLES.items() if setting == name)
            raise ConfigError(
                "{place}: {name} is a secret and does not belong in a file; set {variable}",
                place=place,
                name=name,
                variable=variable,
            )
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
        raise ConfigError("{place}: unknown setting 'gateway.{name}'{hint}", place=place, name=name[:40], hint=hint)
    kind: type[Any] = type(known[name])
    try:
        if name == "otel" and (switch := _SWITCHES.get(str(value).strip().lower())) is not None:
            return "on" if switch else "off"
        if kind is bool:
            return _SWITCHES[str(value).strip().lower()]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)
    except (ValueError, KeyError, OverflowError):
        shown = "(hidden)" if name in _NOT_IN_FILES else repr(str(value)[:40])
        raise ConfigError(
            "{place}: gateway.{name} must be a {kind}, not {shown}",
            place=place,
            name=name,
            kind=kind.__name__,
            shown=shown,
        ) from None


def is_local_host(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_upstream(name: str, url: str, path: str = "/v1") -> None:
    """Raise ConfigError unless this is a plain address: no user, password, query or fragment in it."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_plain = False
    if not is_plain:
        raise ConfigError(
            "gateway.{name} is not an address; write https://HOST{path} or http://HOST:PORT{path}", name=name, path=path
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("gateway.{name} must be a bare address; a key goes into an environment variable", name=name)


def name_payer(settings: GatewaySettings, asked: Asked, wire: Wire, model: str) -> None:
    """Set the model and key that may write summaries for this request; None if there is no key."""
    endpoint = find_held(settings, wire.side, model)
    if endpoint is None and settings.summaries == "client" and model and (key := _find_key(asked)):
        endpoint = Endpoint(model, wire.side, settings.find_url(wire.side), key)
    name_conversation(endpoint)


def find_held(settings: GatewaySettings, side: Side, model: str) -> Endpoint | None:
    """Return a model at its upstream with the gateway's own key; None if it has no key."""
    held = settings.find_held_key(side)
    return Endpoint(model, side, settings.find_url(side), held) if held and model else None


def find_stored(settings: GatewaySettings, variables: Mapping[str, str], row: SessionRow) -> Endpoint | None:
    """Return the model of a stored session by addresses and keys in ``variables``; None if it is not available."""
    place = Place.read(row.settings)
    if place is None and GATEWAY not in row.settings:
        return None
    side: Side = place.provider if place is not None else "anthropic" if row.wire == "anthropic" else "openai"
    held = find_held(settings, side, row.model)
    if place is None or (held is not None and Place.of(held) == place):
        return held
    return place.find_model(variables, row.model)


def _find_key(asked: Asked) -> str:
    """Return the client's own key, never one of the gateway's."""
    if b"x-api-key" not in asked.drop and (key := asked.header("x-api-key")):
        return key
    return "" if b"authorization" in asked.drop else find_bearer(asked.headers)


def choose_summariser(config: CompressionConfig, settings: GatewaySettings) -> CompressionConfig:
    """Return the compression settings with the gateway's summariser."""
    if settings.summaries == "off":
        return config.replace(summariser="extract")
    return config.with_variables(_avoid_self(dict(config.variables), settings))


def can_ask_model(config: CompressionConfig, settings: GatewaySettings) -> bool:
    """Return whether a model may write summaries for some request."""
    if settings.summaries == "off":
        return False
    has_key = bool(settings.openai_key or settings.anthropic_key) or settings.summaries == "client"
    return has_key or is_plugin(config) or find_own(config, None) is not None


def _avoid_self(variables: dict[str, str], settings: GatewaySettings) -> dict[str, str]:
    """Return the variables with the gateway's own address replaced by its upstream: it must not call itself."""
    behind = {"OPENAI_BASE_URL": settings.openai_upstream, "ANTHROPIC_BASE_URL": settings.anthropic_upstream}
    for name in behind.keys() & variables.keys():
        with suppress(ValueError):
            parts = urlsplit(variables[name])
            is_here = parts.hostname in ("127.0.0.1", "localhost", "::1", settings.host)
            if parts.port == settings.port and is_here:
                variables[name] = behind[name]
    return variables


def settle_arrival(config: CompressionConfig, *, is_on: bool = False) -> CompressionConfig:
    """Return the settings with long tool results cut on arrival, or with no stage that shortens on arrival.

    Without ``is_on`` nothing is shortened on arrival: an agent could not get the rest of a result back.
    """
    if is_on:
        return config.cut_on_arrival()
    kept = [name for name in config.ladder if not acts_on_arrival(getattr(config, block_of(name)))]
    return config.replace(ladder=kept) if len(kept) < len(config.ladder) else config
