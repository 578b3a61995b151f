"""``refold.wrap``: a client of OpenAI's or Anthropic's SDK that keeps every conversation inside its window.

The wrapped client is used exactly as before. It prepares what chat completions, Responses and messages send, stores
what the model answers, and leaves every other call alone. The seam is the client's ``post``, through which the SDKs
send every request, whichever method made it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.streamed import store, store_async
from refold.manager.managed import ManagedSession

if TYPE_CHECKING:
    import anthropic
    import openai

    from refold.integrations.options import (
        WrapOptions,
        WrappedAnthropic,
        WrappedAsyncAnthropic,
        WrappedAsyncOpenAI,
        WrappedOpenAI,
    )

_WIRES = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/v1/messages": "anthropic"}
# The provider has the history of these: the request carries only its end.
_STORED_FIELDS = ("previous_response_id", "conversation")


@overload
def wrap(client: openai.OpenAI, **options: Unpack[WrapOptions]) -> WrappedOpenAI: ...
@overload
def wrap(client: openai.AsyncOpenAI, **options: Unpack[WrapOptions]) -> WrappedAsyncOpenAI: ...
@overload
def wrap(client: anthropic.Anthropic, **options: Unpack[WrapOptions]) -> WrappedAnthropic: ...
@overload
def wrap(client: anthropic.AsyncAnthropic, **options: Unpack[WrapOptions]) -> WrappedAsyncAnthropic: ...
@overload
def wrap(client: Any, **options: Unpack[WrapOptions]) -> Any: ...
def wrap(client: Any, **options: Unpack[WrapOptions]) -> Any:
    """Return a client whose conversations fit their window; ``session`` names the one that its requests belong to.

    Without a name each conversation is a session, which is recognised by its messages.
    ``workspace`` is where the record is kept, ``manager`` one that you have already; other options are settings of
    ``CompressionConfig``. ``client.refold`` is the session: undo, recall, tools.
    """
    if not callable(getattr(client, "post", None)) or not callable(getattr(client, "copy", None)):
        raise ConfigError(f"wrap takes a client of the openai or anthropic SDK, not {type(client).__name__}")
    return _patch(client, open_session(**options))


def _patch(client: Any, session: ManagedSession) -> Any:
    """Return a copy of a client that sends through a session; copies of it do so, too."""
    wrapped = client.copy()
    post, copy = wrapped.post, wrapped.copy
    send = _send_async if inspect.iscoroutinefunction(post) else _send
    wrapped.post = lambda path, **rest: send(session, post, path, rest)
    wrapped.copy = wrapped.with_options = lambda **changes: _patch(copy(**changes), session)
    wrapped.refold = session
    return wrapped


def _send(session: ManagedSession, post: Callable[..., Any], path: str, rest: dict[str, Any]) -> Any:
    wire = _find_wire(path, rest.get("body"))
    if wire is None:
        return post(path, **rest)
    found = session.using(format=wire).find(rest["body"])
    return store(found.call(lambda fit: post(path, **{**rest, "body": fit.body}), rest["body"]), found)


async def _send_async(session: ManagedSession, post: Callable[..., Any], path: str, rest: dict[str, Any]) -> Any:
    wire = _find_wire(path, rest.get("body"))
    if wire is None:
        return await post(path, **rest)
    found = await session.using(format=wire).find_async(rest["body"])
    answer = found.call_async(lambda fit: post(path, **{**rest, "body": fit.body}), rest["body"])
    return await store_async(await answer, found)


def _find_wire(path: str, body: Any) -> str | None:
    """Return the wire format of a request that carries a whole conversation."""
    is_whole = isinstance(body, Mapping) and not any(body.get(name) for name in _STORED_FIELDS)
    return _WIRES.get(path.partition("?")[0]) if is_whole else None
