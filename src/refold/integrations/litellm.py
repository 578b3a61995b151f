"""LiteLLM: a callback for async calls and the proxy, and ``completion`` / ``acompletion`` as drop-in functions.

    litellm.callbacks = [RefoldCallback(workspace="work")]
    await litellm.acompletion(model=…, messages=…, metadata={"session_id": "s1"})

LiteLLM has no hook for its sync functions, and none that sees a refused request: ``completion`` and ``acompletion``
here do both. In a proxy's settings: ``callbacks: refold.integrations.litellm.handler``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from refold.integrations import Adapter, needs
from refold.integrations.streamed import store, store_async
from refold.manager.managed import ManagedSession

with needs("RefoldCallback", "litellm 1.80"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

_CHAT, CALLS_MAX = "openai-chat", 10_000
_WIRES = {"completion": _CHAT, "acompletion": _CHAT, "responses": "openai-responses", "aresponses": "openai-responses"}
_WIRES |= dict.fromkeys(("anthropic_messages", "aanthropic_messages"), "anthropic")


class RefoldCallback(Adapter, CustomLogger):
    """Prepares the messages of every async request and stores every answer."""

    def __init__(self, session: str | Callable[..., str] | None = None, **options: Any) -> None:
        super().__init__(session, **options)
        self._calls: OrderedDict[str, tuple[str, ManagedSession]] = OrderedDict()  # The session of each call.

    def find_name(self, request: Mapping[str, Any]) -> str | None:
        """Return the session that a request's metadata names."""
        given = [(request.get(name) or {}).get("session_id") for name in ("metadata", "litellm_metadata")]
        return next(filter(None, (*given, request.get("litellm_session_id"))), None)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Return the request with messages that fit its window; what LiteLLM makes of one that fits is left alone."""
        wire, call = _WIRES.get(getattr(call_type, "value", call_type)), str(kwargs.get("litellm_call_id"))
        has_all = kwargs.get("messages" if "messages" in kwargs else "input") and not kwargs.get("previous_response_id")
        if wire is None or not has_all or self._calls.get(call, (wire,))[0] != wire:
            return None
        found = await self.session_for(kwargs).using(format=wire).find_async(kwargs)
        self._calls[call] = wire, found
        while len(self._calls) > CALLS_MAX:
            self._calls.popitem(last=False)
        return (await found.prepare_async(kwargs)).body

    async def async_post_call_success_deployment_hook(self, request_data: dict, response: Any, call_type: Any) -> None:
        """Store an answer that was not streamed."""
        wire, found = self._calls.get(str(request_data.get("litellm_call_id")), ("", None))
        is_ours = wire == _WIRES.get(getattr(call_type, "value", call_type))
        if found is not None and is_ours and not hasattr(response, "__aiter__"):
            await found.commit_async(response)

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, *_: Any, **__: Any) -> None:
        """Store a streamed answer: LiteLLM logs it whole, some time after its end."""
        wire, found = self._calls.get(str(kwargs.get("litellm_call_id")), ("", None))
        if found is not None and wire == _CHAT and kwargs.get("stream") and response_obj.choices:
            await found.commit_async(response_obj)


def completion(*, refold: ManagedSession, **request: Any) -> Any:
    """``litellm.completion`` inside the window; ``refold`` is the session (``open_session`` or ``manager.session``)."""
    send, found = litellm.completion, refold.find(request)
    return store(found.call(lambda fit: send(**(fit.body or {})), request, format=_CHAT), found)


async def acompletion(*, refold: ManagedSession, **request: Any) -> Any:
    """The same as ``completion``, for callers with an event loop."""
    send, found = litellm.acompletion, await refold.find_async(request)
    return await store_async(await found.call_async(lambda fit: send(**(fit.body or {})), request, format=_CHAT), found)


def __getattr__(name: str) -> Any:
    # A proxy's settings name an object, not a class; it is made when a proxy asks for it.
    if name == "handler":
        return globals().setdefault("handler", RefoldCallback())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
