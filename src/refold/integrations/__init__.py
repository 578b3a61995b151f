"""Integrations: refold inside other clients and frameworks. Each module is imported only when it is used.

Here is what adapters share: which session a request belongs to, the request that fits, and objects with fitted methods.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.formats import Codec
from refold.manager import ContextCompressionManager
from refold.manager.managed import ManagedSession
from refold.prepared import PreparedContext

# Requests whose answer is awaited; a refusal of an older one is not answered with a shorter request.
SENT_MAX = 100


def open_session(
    session: str | Callable[[], str],
    *,
    workspace: str | Path = ".",
    manager: ContextCompressionManager | None = None,
    window: int | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    codec: Codec | None = None,
    is_observation: Callable[[Any], bool] | None = None,
    **settings: Any,
) -> ManagedSession:
    """Return the session an adapter works on: of ``manager``, or of a new one with ``settings`` in ``workspace``."""
    if manager is not None and (settings or is_observation):
        given = [*settings, *(["is_observation"] if is_observation else [])]
        raise ConfigError(f"pass settings to the manager instead: {', '.join(sorted(given))}")
    chosen = manager or ContextCompressionManager(
        CompressionConfig(**settings), workspace, is_observation=is_observation
    )
    return chosen.session(session, window=window, format=format, codec=codec)


class Adapter:
    """Finds the session of each request, and fits requests of frameworks that have separate hooks for answer and error.

    A subclass may have a codec, and finds a session's name where none was given.
    """

    # No annotation without ClassVar here: Pydantic would take it for a field of the framework's class.
    codec: ClassVar[Codec | None] = None

    # Arguments of the framework's class.
    arguments: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self, session: str | Callable[..., str] | None = None, *, context_tools: bool = False, **options: Any
    ) -> None:
        """Open the manager; ``session`` is a name, a function that finds one for a request, or None."""
        super().__init__(**self.arguments)
        self._session, self._has_tools = session, context_tools
        self._base = open_session("unnamed", codec=self.codec, format="openai-chat", **options)
        self.manager = self._base.manager
        self._sent: dict[str, tuple[dict[str, Any], PreparedContext]] = {}
        self._again: dict[str, list[Any]] = {}

    def find_name(self, *context: Any) -> str | None:  # noqa: ARG002 - for subclasses
        """Return the name that the framework has for the session of a request."""
        return None

    def session_for(self, *context: Any) -> ManagedSession:
        """Return the session of a request, which has undo, recall, status and tools."""
        name = self._session(*context) if callable(self._session) else self._session or self.find_name(*context)
        if not name:
            raise ConfigError("name the session: pass session=…, or run the agent with one of the framework's")
        return self._base.named(str(name))

    @property
    def refold(self) -> ManagedSession:
        """The session that was named here."""
        if not isinstance(self._session, str):
            raise ConfigError("name the session: pass session=…")
        return self._base.named(self._session)

    async def fit(self, session: ManagedSession, request: dict[str, Any]) -> list[Any]:
        """Return the messages of a request inside the window; after ``refit_later``, the shorter ones."""
        if session.id in self._again:
            return self._again.pop(session.id)
        prepared = await session.prepare_async(**request)
        self._sent[session.id] = request, prepared
        while len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]
        return prepared.messages

    async def refit(self, session: ManagedSession, error: BaseException) -> list[Any] | None:
        """Return fewer messages after a request was refused as too long; None for other errors, and after that."""
        request, refused = self._sent.pop(session.id, ({}, None))
        again = refused and await session.prepare_again_async(error, refused, **request)
        return again.messages if again else None

    async def refit_later(self, session: ManagedSession, error: BaseException) -> bool:
        """Have the next ``fit`` return fewer messages if this one was refused as too long; tell whether it was."""
        smaller = await self.refit(session, error)
        if smaller is not None:
            self._again[session.id] = smaller
        return smaller is not None


class MethodAdapter(Adapter):
    """Fits the requests of an object's own methods: ``fit_methods`` returns a copy whose methods use the session.

    ``methods`` says for each method which of a session's methods runs it: ``call``, ``call_async``, ``stream``,
    ``stream_async``, or ``open_stream`` for a coroutine function that returns an async stream.
    """

    methods: ClassVar[Mapping[str, str]]

    def find_session(self, options: Mapping[str, Any]) -> ManagedSession | None:  # noqa: ARG002 - for subclasses
        """Return the session of a call; None for one that is no part of a conversation."""
        return self.session_for()

    def read_request(self, owner: Any, messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request of a call as ``session.prepare`` takes it."""
        raise NotImplementedError

    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return a function that reads what to commit from an answer, or from each piece of one."""
        raise NotImplementedError

    def fit_methods(self, thing: Any, *mixed: type, **own: Any) -> Any:
        """Return a copy of an object whose methods send requests that fit; its class has these mix-ins and attributes.

        All of it is on the class and not on the object: some frameworks copy objects field by field.
        """
        kind, made = type(thing), copy.copy(thing)
        body: dict[str, Any] = {
            name: self._fit_method(getattr(kind, name), name, how) for name, how in self.methods.items()
        }
        body |= {
            "refold": property(lambda _: self.refold),
            "refold_adapter": property(lambda _: self),
            "__module__": kind.__module__,
            **own,
        }
        fitted = types.new_class(kind.__name__, (*mixed, kind), exec_body=lambda space: space.update(body))
        object.__setattr__(made, "__class__", fitted)
        return made

    def _fit_method(self, method: Callable[..., Any], name: str, how: str) -> Callable[..., Any]:
        names = list(inspect.signature(method).parameters)[2:]

        def run(owner: Any, messages: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
            options |= zip(names, rest, strict=False)
            session = self.find_session(options)
            if session is None:
                return method(owner, messages, **options)
            return getattr(session, "stream_async" if how == "open_stream" else how)(
                lambda prepared: method(owner, prepared.messages, **options),
                reply=self.watch(owner, options),
                **self.read_request(owner, messages, options),
            )

        def fitted(self: Any, messages: Any, *rest: Any, **options: Any) -> Any:
            return run(self, messages, rest, options)

        async def fitted_async(self: Any, messages: Any, *rest: Any, **options: Any) -> Any:
            answer = run(self, messages, rest, options)
            return answer if how == "open_stream" else await answer

        chosen = fitted_async if how in ("call_async", "open_stream") else fitted
        chosen.__name__ = name
        return chosen
