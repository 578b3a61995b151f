"""Who pays for summaries behind the gateway. Normally a model that the operator set up, or none.

Only with ``summaries: client`` does a session's fold spend the key of the client whose request asked for it: with the
model of that request, at the same upstream. The key lives as long as the request and the fold that it began; it is
handed on by context, never stored, logged or shown.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.llm.anthropic import AnthropicModel
from refold.llm.model import TEMPERATURE, TOKENS_MAX, Completion
from refold.llm.openai import OpenAIModel
from refold.server.asking import Asked
from refold.server.headers import find_bearer
from refold.server.settings import GatewaySettings
from refold.server.wires import Wire


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose model is asked: that of the request under way."""

    side: str
    model: str
    key: str = field(repr=False)


_payer: ContextVar[Payer | None] = ContextVar("payer", default=None)


class ClientModel:
    """A model for summaries that is the client's own, request by request."""

    name = "the client's model"

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    @property
    def key(self) -> str:
        """The key that is spent now, so that no message of a failure quotes it."""
        payer = _payer.get()
        return payer.key if payer is not None else ""

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Ask the model of the request under way; ConfigError if there is none."""
        payer = _payer.get()
        if payer is None:
            raise ConfigError("no request is under way whose model could be asked")
        settings = self._settings
        model: AnthropicModel | OpenAIModel
        if payer.side == "anthropic":
            model = AnthropicModel(payer.model, payer.key, settings.anthropic_upstream)
        else:
            model = OpenAIModel(payer.model, payer.key, settings.openai_upstream)
        return await model.complete(prompt, system=system, tokens_max=tokens_max, temperature=temperature)


def name_payer(settings: GatewaySettings, asked: Asked, wire: Wire, model: str) -> None:
    """Note, for what this request begins, whose model may be asked; nobody's unless the operator said so."""
    if settings.summaries != "client" or not model:
        return
    held = settings.openai_key if wire.side == "openai" else settings.anthropic_key
    key = held or _find_key(asked)
    _payer.set(Payer(wire.side, model, key) if key else None)


def _find_key(asked: Asked) -> str:
    """Return the client's own key; never one of the gateway's."""
    if b"x-api-key" not in asked.drop and (key := asked.header("x-api-key")):
        return key
    return "" if b"authorization" in asked.drop else find_bearer(asked.headers)


def choose_summariser(config: CompressionConfig, settings: GatewaySettings) -> tuple[CompressionConfig, object]:
    """Return the settings and the model, if any, that folds are made with."""
    if settings.summaries == "off":
        return config.replace(summariser="extract"), None
    if settings.summaries == "client":
        return config, ClientModel(settings)
    return config.with_variables(_avoid_self(dict(config.variables), settings)), None


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
