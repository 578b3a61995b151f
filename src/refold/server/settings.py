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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from refold.config import CompressionConfig
from refold.config.load import CommandBlock, Number, Text, Whole, read_block
from refold.config.schema import block_of
from refold.errors import ConfigError, Sentence
from refold.stages.stage import acts_on_arrival

if TYPE_CHECKING:  # Commands read the settings without loading the gateway.
    from refold.ledger.records import SessionRow
    from refold.llm.choose import Endpoint
    from refold.server.request import Asked
    from refold.server.wires import Side, Wire

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
# Bodies above this size are read and prepared in a worker process: they would block other requests.
LARGE_BYTES = 2_000_000
# Reading a small body takes less time than handing it to a thread.
INLINE_BYTES_MAX = 65_536
# Presets whose documents have a model write the summaries.
MODEL_PRESETS = ("archive", "offload", "hybrid", "turns")
SWITCHES = Sentence(
    "set gateway.summaries: client (with the key of each request), REFOLD_OPENAI_KEY or REFOLD_ANTHROPIC_KEY, or "
    "compact_model and its key"
)
_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


def check_upstream(name: str, url: str, path: str = "/v1") -> str:
    """Return a plain address; raise ConfigError if it has a user, a password, a query or a fragment."""
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
    return url


def _check_paths(text: str) -> str:
    for path in _split_paths(text):
        if not path.startswith("/v1/"):
            raise ConfigError("gateway.tenant_paths holds {path!r}; a path begins with /v1/", path=path[:40])
    return text


def _split_paths(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _read_off(value: object) -> object:
    """Return ``off`` for False: YAML reads a plain off as a switch."""
    return "off" if value is False else value


def _read_otel(value: object) -> str:
    """Return ``on``, ``off`` or an address."""
    text = str(value).strip()
    if text.lower() in (*_ON, *_OFF):
        return "on" if text.lower() in _ON else "off"
    return check_upstream("otel", text, path="")


Upstream = Annotated[Text, AfterValidator(lambda url, info: check_upstream(info.field_name, url))]
Limit = Annotated[Whole, Field(gt=0)]
Seconds = Annotated[Number, Field(gt=0)]


class GatewaySettings(CommandBlock):
    """Gateway settings; times in seconds, sizes in bytes."""

    name: ClassVar[str] = "gateway"
    variables: ClassVar[Mapping[str, str]] = {
        f"REFOLD_{name.upper()}": name
        for name in (
            *("host", "port", "openai_upstream", "anthropic_upstream", "openai_key", "anthropic_key"),
            *("cache_marks", "summaries", "otel", "otel_metrics"),
        )
    }
    secret: ClassVar[frozenset[str]] = frozenset({"openai_key", "anthropic_key"})

    host: Text = "127.0.0.1"
    port: Annotated[Whole, Field(ge=0, le=65_535)] = 7788
    openai_upstream: Upstream = OPENAI
    anthropic_upstream: Upstream = ANTHROPIC
    openai_key: Text = Field(default="", repr=False)
    anthropic_key: Text = Field(default="", repr=False)
    compress: bool = True
    arrival: bool = False
    recall_tool: bool = False
    cache_marks: Literal["client", "auto"] = "client"
    summaries: Annotated[Literal["own", "client", "off"], BeforeValidator(_read_off)] = "own"
    body_bytes_max: Limit = 32_000_000
    requests_max: Limit = 1_000
    tenant_requests_max: Limit = 200
    tenant_streams_max: Limit = 16
    tenant_bytes: Annotated[Whole, Field(ge=0)] = 0
    tenant_paths: Annotated[Text, AfterValidator(_check_paths)] = ""
    connect_timeout_s: Seconds = 10.0
    upstream_stall_s: Seconds = 600.0
    client_stall_s: Seconds = 120.0
    request_s_max: Seconds = 3_600.0
    prepare_s_max: Seconds = 60.0
    shutdown_s: Seconds = 30.0
    sessions_known_max: Limit = 2_000
    memory_bytes_max: Limit = 64_000_000
    worker_bytes_min: Limit = LARGE_BYTES
    otel: Annotated[str, BeforeValidator(_read_otel)] = "off"
    otel_metrics: bool = True

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
        return _split_paths(self.tenant_paths)

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the gateway."""
        return is_local_host(self.host)

    def change(self, changes: Mapping[str, object]) -> GatewaySettings:
        """Return the settings with the given changes; None leaves a value unchanged."""
        given = {name: value for name, value in changes.items() if value is not None}
        return GatewaySettings(**{**self.model_dump(), **given}) if given else self


def load_settings(workspace: str | Path | None = None, **call: object) -> GatewaySettings:
    """Return a workspace's settings; ``call`` are those of the command line, None where unset."""
    return read_block(GatewaySettings, workspace).change(call)


def is_local_host(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def name_payer(settings: GatewaySettings, asked: Asked, wire: Wire, model: str) -> None:
    """Set the model and key that may write summaries for this request; None if there is no key."""
    from refold.llm.choose import Endpoint, name_conversation

    endpoint = find_held(settings, wire.side, model)
    if endpoint is None and settings.summaries == "client" and model and (key := _find_key(asked)):
        endpoint = Endpoint(model, wire.side, settings.find_url(wire.side), key)
    name_conversation(endpoint)


def find_held(settings: GatewaySettings, side: Side, model: str) -> Endpoint | None:
    """Return a model at its upstream with the gateway's own key; None if it has no key."""
    from refold.llm.choose import Endpoint

    held = settings.find_held_key(side)
    return Endpoint(model, side, settings.find_url(side), held) if held and model else None


def find_stored(settings: GatewaySettings, variables: Mapping[str, str], row: SessionRow) -> Endpoint | None:
    """Return the model of a stored session by addresses and keys in ``variables``; None if it is not available."""
    from refold.llm.choose import GATEWAY, Place

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
    from refold.server.request import find_bearer

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
    from refold.llm.summariser import find_own, is_plugin

    if settings.summaries == "off":
        return False
    has_key = bool(settings.openai_key or settings.anthropic_key) or settings.summaries == "client"
    return has_key or is_plugin(config) or find_own(config, None) is not None


def find_missing_switch(config: CompressionConfig, settings: GatewaySettings) -> Sentence | None:
    """Return which settings would let a model write the summaries, if the settings want one and none may be asked."""
    is_wanted = config.summariser == "auto" and config.preset_name in MODEL_PRESETS and settings.summaries != "off"
    if can_ask_model(config, settings) or not (is_wanted or config.summariser == "llm"):
        return None
    wish = "summariser: llm" if config.summariser == "llm" else f"preset: {config.preset_name}"
    found = Sentence(
        "{wish} wants summaries by a model, but the gateway may ask no model, so rules write them", wish=wish
    )
    return Sentence("{found}; {remedy}", found=found, remedy=SWITCHES)


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
