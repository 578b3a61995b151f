"""OpenAI Agents SDK: models whose requests fit, wherever a run finds them. ``openai_agents`` has the session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from refold.formats import ModelReply
from refold.integrations import MethodAdapter, needs

with needs("RefoldSession", "openai-agents 0.3"):
    from agents import Model, ModelProvider, MultiProvider
    from agents.run import CallModelData, ModelInputData


class AgentsAdapter(MethodAdapter):
    """Fits the requests of a model."""

    format, argument = "openai-responses", "input"
    methods: ClassVar = {"get_response": "call_async", "stream_response": "stream_async"}

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().read_request(owner, options), "system": options["system_instructions"] or ""}

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], ModelReply | None]:  # noqa: ARG002
        """Return a reader of usage, which an answer or its last event has; the session gets the items."""
        return lambda one: ModelReply([], getattr(getattr(one, "response", one), "usage", None))


class RefoldProvider(ModelProvider):
    """Looks models up in another provider; their requests fit their window."""

    def __init__(self, inner: ModelProvider, adapter: AgentsAdapter) -> None:
        self._inner, self._adapter = inner, adapter

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of the other provider, inside the window."""
        return self._adapter.fit_methods(self._inner.get_model(model_name))


def fit_run(adapter: AgentsAdapter, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run with its models and its filter inside the window."""
    own, model = options.get("call_model_input_filter"), options.get("model")

    async def fit(data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model that no provider looked up inside the window; others fit it themselves."""
        given = data.model_data if own is None else own(data)
        asked: ModelInputData = await given if inspect.isawaitable(given) else given
        if isinstance(data.agent.model, Model) and model is None:
            beside = {"tools": data.agent.tools, "model": getattr(data.agent.model, "model", None)}
            prepared = await adapter.refold.prepare_async(asked.input, asked.instructions or "", **beside)
            asked.input = prepared.messages
        return asked

    provider = RefoldProvider(options.get("model_provider") or MultiProvider(), adapter)
    fitted = adapter.fit_methods(model) if isinstance(model, Model) else model
    return {**options, "call_model_input_filter": fit, "model_provider": provider, "model": fitted}
