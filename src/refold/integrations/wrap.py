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
from refold.tokens import model_info

Client = TypeVar("Client")
_WIRES = {"/chat/completions": "openai-chat", "/responses": "openai-responses", "/v1/messages": "anthropic"}
_OUTPUT_FIELDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
# The provider has the history of these: what the request carries is only its end.
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
    body, options = _read_body(session, path, rest.get("body"))
    if body is None:
        return post(path, **rest)
    reply = session.call(lambda fit: post(path, **{**rest, "body": fit.body}), body, **options)
    store(reply.parse() if hasattr(reply, "http_response") else reply, session)
    return reply


async def _send_async(session: ManagedSession, post: Callable[..., Any], path: str, rest: dict[str, Any]) -> Any:
    body, options = _read_body(session, path, rest.get("body"))
    if body is None:
        return await post(path, **rest)
    reply = await session.call_async(lambda fit: post(path, **{**rest, "body": fit.body}), body, **options)
    answer = reply.parse() if hasattr(reply, "http_response") else reply
    await store_async(await answer if inspect.isawaitable(answer) else answer, session)
    return reply


def _read_body(session: ManagedSession, path: str, body: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return a request's body and the options to prepare it with; None if it is none of ours."""
    wire = _WIRES.get(path.partition("?")[0])
    if wire is None or not isinstance(body, Mapping) or any(body.get(name) for name in _STORED_FIELDS):
        return None, {}
    given = {key: value for key, value in body.items() if type(value).__name__ not in ("Omit", "NotGiven")}
    wanted = next((given[name] for name in _OUTPUT_FIELDS if isinstance(given.get(name), int)), None)
    options: dict[str, Any] = {"format": wire}
    if wanted is not None and session.defaults.reserve is None:
        # The answer needs its room beside the request; one that is asked for without measure gets half of the window.
        window = session.defaults.window or model_info(str(given.get("model") or "")).window
        options["reserve"] = min(wanted, window // 2)
    return given, options
