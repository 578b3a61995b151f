"""Who pays for summaries behind the gateway: by default only keys that the gateway itself holds.

A summary is written by the model that is set for it, else by the model of the conversation at the same upstream: with a
key that the gateway holds for that upstream, or, with ``summaries: client``, with the key of the client whose request
asked for it. A client's key lives as long as the request and the fold that it began; it is passed on by context, never
stored, logged or shown. Without such a key, rules write the summary. No key of the environment is spent on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from refold.config import CompressionConfig
from refold.ledger.records import SessionRow
from refold.llm.choose import Endpoint
from refold.llm.conversation_model import GATEWAY, Place, name_conversation
from refold.server.request import Asked, find_bearer
from refold.server.settings import GatewaySettings
from refold.server.wires import Side, Wire


def name_payer(settings: GatewaySettings, asked: Asked, wire: Wire, model: str) -> None:
    """Name, for what this request begins, the model that may be asked and with whose key; None if there is none."""
    endpoint = find_held(settings, wire.side, model)
    if endpoint is None and settings.summaries == "client" and model and (key := _find_key(asked)):
        endpoint = _make_endpoint(settings, wire.side, model, key)
    name_conversation(endpoint)


def find_held(settings: GatewaySettings, side: Side, model: str) -> Endpoint | None:
    """Return a model at its upstream with the key that the gateway holds for it; None if it holds none."""
    held = settings.openai_key if side == "openai" else settings.anthropic_key
    return _make_endpoint(settings, side, model, held) if held and model else None


def find_stored(settings: GatewaySettings, variables: Mapping[str, str], row: SessionRow) -> Endpoint | None:
    """Return the model of a stored session, for a compression that a person asks for; None if it cannot be asked.

    ``variables`` are the addresses and keys that this person may use.
    """
    place = Place.read(row.settings)
    if place is None and GATEWAY not in row.settings:
        return None
    side: Side = place.provider if place is not None else "anthropic" if row.wire == "anthropic" else "openai"
    held = find_held(settings, side, row.model)
    if place is None or (held is not None and Place.of(held) == place):
        return held
    return place.find_model(variables, row.model)


def _make_endpoint(settings: GatewaySettings, side: Side, model: str, key: str) -> Endpoint:
    if side == "anthropic":
        return Endpoint(model, "anthropic", settings.anthropic_upstream, key)
    return Endpoint(model, "openai", settings.openai_upstream, key)


def _find_key(asked: Asked) -> str:
    """Return the client's own key; never one of the gateway's."""
    if b"x-api-key" not in asked.drop and (key := asked.header("x-api-key")):
        return key
    return "" if b"authorization" in asked.drop else find_bearer(asked.headers)


def choose_summariser(config: CompressionConfig, settings: GatewaySettings) -> CompressionConfig:
    """Return the settings that folds are made with behind the gateway."""
    if settings.summaries == "off":
        return config.replace(summariser="extract")
    return config.with_variables(_avoid_self(dict(config.variables), settings))


def _avoid_self(variables: dict[str, str], settings: GatewaySettings) -> dict[str, str]:
    """Return the variables with the gateway's own address replaced by what is behind it: it must not ask itself."""
    behind = {"OPENAI_BASE_URL": settings.openai_upstream, "ANTHROPIC_BASE_URL": settings.anthropic_upstream}
    return {
        name: behind[name] if name in behind and _is_self(value, settings) else value
        for name, value in variables.items()
    }


def _is_self(url: str, settings: GatewaySettings) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return port == settings.port and parts.hostname in ("127.0.0.1", "localhost", "::1", settings.host)
