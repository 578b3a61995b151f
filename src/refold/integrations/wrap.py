"""``refold.wrap``: a client of OpenAI's or Anthropic's SDK that keeps every conversation inside its window.

The wrapped client is used exactly as before. It prepares what chat completions, Responses and messages send, stores
what the model answers, and leaves every other call alone. The seam is the client's ``post``, through which the SDKs
send every request, whichever method made it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from refold.errors import ConfigError
from refold.integrations import open_session
from refold.integrations.streamed import store, store_async
from refold.manager import ContextCompressionManager
from refold.manager.managed import ManagedSession

Client = TypeVar("Client")
_WIRES = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/v1/messages": "anthropic"}
# The provider has the history of these: the request carries only its end.
_STORED_FIELDS = ("previous_response_id", "conversation")


def wrap(
    client: Client,
    *,
    session: str | Callable[[], str],
    workspace: str | Path = ".",
    manager: ContextCompressionManager | None = None,
    window: int | None = None,
    **settings: Any,
) -> Client:
    """Return a client whose conversations fit their window; ``session`` names the one that its requests belong to.

    ``settings`` are those of ``CompressionConfig``; ``manager`` is one that you have already. ``client.refold`` is the
    session: undo, recall, tools.
    """
    if not callable(getattr(client, "post", None)) or not callable(getattr(client, "copy", None)):
        raise ConfigError(f"wrap takes a client of the openai or anthropic SDK, not {type(client).__name__}")
    opened = open_session(session, workspace=workspace, manager=manager, window=window, **settings)
    patched: Client = _patch(client, opened)
    return patched


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
    return store(session.call(lambda fit: post(path, **{**rest, "body": fit.body}), rest["body"], format=wire), session)


async def _send_async(session: ManagedSession, post: Callable[..., Any], path: str, rest: dict[str, Any]) -> Any:
    wire = _find_wire(path, rest.get("body"))
    if wire is None:
        return await post(path, **rest)
    answer = session.call_async(lambda fit: post(path, **{**rest, "body": fit.body}), rest["body"], format=wire)
    return await store_async(await answer, session)


def _find_wire(path: str, body: Any) -> str | None:
    """Return the wire format of a request that carries a whole conversation."""
    is_whole = isinstance(body, Mapping) and not any(body.get(name) for name in _STORED_FIELDS)
    return _WIRES.get(path.partition("?")[0]) if is_whole else None
