"""LiteLLM: a callback for async calls and the proxy, and ``completion`` / ``acompletion`` as drop-in functions.

    litellm.callbacks = [RefoldCallback(workspace="work")]
    await litellm.acompletion(model=…, messages=…, metadata={"session_id": "s1"})

LiteLLM has no hook for its sync functions, and none that sees a refused request: ``completion`` and ``acompletion``
here do both. In a proxy's settings: ``callbacks: refold.integrations.litellm.handler``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from refold.errors import ConfigError
from refold.integrations import Adapter
from refold.integrations.streamed import follow, follow_async
from refold.manager.managed import ManagedSession

# So many messages may follow a streamed answer before LiteLLM has logged it.
RESENT_MAX = 50
_COMPLETIONS = ("completion", "acompletion")

if not hasattr(CustomLogger, "async_pre_call_deployment_hook"):
    raise ConfigError("RefoldCallback needs a litellm whose CustomLogger has async_pre_call_deployment_hook (1.73)")


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
        prepared = await self.session_for(kwargs).prepare_async(**_read(kwargs))
        return {**kwargs, "messages": prepared.messages}

    async def async_post_call_success_deployment_hook(self, request_data: dict, response: Any, call_type: Any) -> None:
        """Store an answer that was not streamed."""
        is_answer = getattr(call_type, "value", call_type) in _COMPLETIONS and hasattr(response, "choices")
        if is_answer and not hasattr(response, "__aiter__"):
            await self.session_for(request_data).commit_async(response)

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, *_: Any, **__: Any) -> None:
        """Store a streamed answer: LiteLLM logs it whole, some time after its end."""
        if kwargs.get("call_type") not in _COMPLETIONS or not kwargs.get("stream") or not response_obj.choices:
            return
        session = self.session_for(kwargs)
        message = response_obj.choices[0].message.model_dump(exclude_none=True)
        # The next request may have come first, and brought the answer along.
        newest = (await asyncio.to_thread(session.messages))[-RESENT_MAX:]
        is_known = any(_is_same(message, one) for one in newest)
        await session.commit_async([] if is_known else [message], getattr(response_obj, "usage", None))


def completion(*, refold: ManagedSession, **request: Any) -> Any:
    """``litellm.completion`` inside the window; ``refold`` is the session (``open_session`` or ``manager.session``)."""
    answer = refold.call(lambda fit: litellm.completion(**{**request, "messages": fit.messages}), **_read(request))
    if request.get("stream"):
        return follow(answer, refold)
    refold.commit(answer)
    return answer


async def acompletion(*, refold: ManagedSession, **request: Any) -> Any:
    """The same as ``completion``, for callers with an event loop."""
    send = litellm.acompletion
    answer = await refold.call_async(lambda fit: send(**{**request, "messages": fit.messages}), **_read(request))
    if request.get("stream"):
        return follow_async(answer, refold)
    await refold.commit_async(answer)
    return answer


def _is_same(message: Mapping[str, Any], stored: Any) -> bool:
    if not isinstance(stored, Mapping) or stored.get("role") != "assistant":
        return False
    ids = [[call.get("id") for call in one.get("tool_calls") or ()] for one in (message, stored)]
    return ids[0] == ids[1] and (message.get("content") or "") == (stored.get("content") or "")


def _read(request: Mapping[str, Any]) -> dict[str, Any]:
    model = str(request.get("model") or "")
    known = {name: request.get(name) for name in ("messages", "tools")}
    return {**known, "model": model.partition("/")[2] or model, "format": "openai-chat"}


def __getattr__(name: str) -> Any:
    # A proxy's settings name an object, not a class; it is made when a proxy asks for it.
    if name == "handler":
        globals()["handler"] = made = RefoldCallback()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
