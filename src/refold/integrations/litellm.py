"""LiteLLM: a callback for async calls and the proxy, and ``completion`` / ``acompletion`` as drop-in functions.

    litellm.callbacks = [RefoldCallback(workspace="work")]
    await litellm.acompletion(model=…, messages=…, metadata={"session_id": "s1"})

LiteLLM has no hook for its sync functions, and none that sees a refused request: ``completion`` and ``acompletion``
here do both. In a proxy's settings: ``callbacks: refold.integrations.litellm.handler``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.integrations import Adapter, needs
from refold.integrations.streamed import store, store_async
from refold.manager.managed import ManagedSession

with needs("RefoldCallback", "litellm 1.80"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

_COMPLETIONS = ("completion", "acompletion")


class RefoldCallback(Adapter, CustomLogger):
    """Prepares the messages of every async chat completion and stores every answer."""

    def find_name(self, request: Mapping[str, Any]) -> str | None:
        """Return the session that a request's metadata names."""
        places = (request, request.get("litellm_params") or {})
        named = [(place.get("metadata") or {}).get("session_id") or place.get("litellm_session_id") for place in places]
        return next(filter(None, named), None)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Return the request with messages that fit its window."""
        if getattr(call_type, "value", call_type) not in _COMPLETIONS or not kwargs.get("messages"):
            return None
        return {**kwargs, "messages": (await self.session_for(kwargs).prepare_async(**_read(kwargs))).messages}

    async def async_post_call_success_deployment_hook(self, request_data: dict, response: Any, call_type: Any) -> None:
        """Store an answer that was not streamed."""
        is_answer = getattr(call_type, "value", call_type) in _COMPLETIONS and hasattr(response, "choices")
        if is_answer and not hasattr(response, "__aiter__"):
            await self.session_for(request_data).commit_async(response)

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, *_: Any, **__: Any) -> None:
        """Store a streamed answer: LiteLLM logs it whole, some time after its end."""
        if kwargs.get("call_type") in _COMPLETIONS and kwargs.get("stream") and response_obj.choices:
            await self.session_for(kwargs).commit_async(response_obj, is_late=True)


def completion(*, refold: ManagedSession, **request: Any) -> Any:
    """``litellm.completion`` inside the window; ``refold`` is the session (``open_session`` or ``manager.session``)."""
    send = litellm.completion
    return store(refold.call(lambda fit: send(**{**request, "messages": fit.messages}), **_read(request)), refold)


async def acompletion(*, refold: ManagedSession, **request: Any) -> Any:
    """The same as ``completion``, for callers with an event loop."""
    send = litellm.acompletion
    answer = await refold.call_async(lambda fit: send(**{**request, "messages": fit.messages}), **_read(request))
    return await store_async(answer, refold)


def _read(request: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: request.get(name) for name in ("messages", "tools", "model")}, "format": "openai-chat"}


def __getattr__(name: str) -> Any:
    # A proxy's settings name an object, not a class; it is made when a proxy asks for it.
    if name == "handler":
        return globals().setdefault("handler", RefoldCallback())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
