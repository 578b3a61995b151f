"""Integrations: refold inside other clients and frameworks. Each module is imported only when it is used.

This module has what adapters share: the session of a request, hooks that pass requests on, and objects whose methods
fit their requests.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from refold.config import CompressionConfig
from refold.errors import ConfigError
from refold.formats import Codec, MessageSource
from refold.integrations.parts import At, evolve
from refold.manager import ContextCompressionManager
from refold.manager.managed import ManagedSession
from refold.prepared import PreparedContext

if TYPE_CHECKING:
    from refold.integrations.options import SessionOptions


def open_session(
    session: str | Callable[[], str] = "",
    *,
    workspace: str | Path = ".",
    manager: ContextCompressionManager | None = None,
    window: int | str | None = None,
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


class NamedSession(ManagedSession):
    """One conversation that fits its window, kept in a workspace: ``Session("support-17", window="128k")``.

    Options are those of ``refold.wrap``. ``prepare(messages)`` returns a context to send, ``commit`` stores an answer;
    undo, recall, status and tools are methods.
    """

    def __init__(self, session: str | Callable[[], str] = "", **options: Unpack[SessionOptions]) -> None:
        made = open_session(session, **options)
        super().__init__(made.manager, made._find_name, made._defaults, is_found=made._is_found)


Session = NamedSession


# The extras that are not called like the package they bring.
_EXTRAS = {
    "google-adk": "adk", "llama-index-core": "llama-index", "haystack-ai": "haystack", "strands-agents": "strands",
    "agent-framework-core": "agent-framework", "autogen-core": "autogen",
}  # fmt: skip


class FrameworkMissing(ConfigError, ImportError):
    """The framework of an adapter is not installed, or too old; the message names the extra to install."""


# The package that each adapter needs, with its oldest version.
_needed: dict[str, str] = {}


@contextmanager
def needs(what: str, package: str) -> Iterator[None]:
    """Import a framework inside: if it is absent or too old, the error says what needs which version."""
    _needed[what] = package
    try:
        yield
    except ImportError as error:
        name = package.partition(" ")[0]
        extra = _EXTRAS.get(name, name)
        raise FrameworkMissing(f"{what} needs {package} or newer: pip install 'refold[{extra}]' ({error})") from error


def find_local(name: str, package: str) -> tuple[Any, ...]:
    """Return what a framework that called us has in a variable, in a tuple; an empty one if it has none."""
    frame = inspect.currentframe()
    while frame is not None:
        if name in frame.f_locals and str(frame.f_globals.get("__name__")).startswith(package):
            return (frame.f_locals[name],)
        frame = frame.f_back
    return ()


class Adapter:
    """Finds the session of each request of a framework; a subclass adds hooks, and may add a codec and a name."""

    # No annotation without ClassVar here: Pydantic would take it for a field of the framework's class.
    codec: ClassVar[Codec | None] = None
    format: ClassVar[str] = "openai-chat"

    # Where the first thing that ``session_for`` gets has the name of the session, such as "session.id".
    session_at: ClassVar[str] = ""

    # Arguments of the framework's class.
    arguments: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        session: str | Callable[..., str] | None = None,
        *,
        context_tools: bool = False,
        **options: Unpack[SessionOptions],
    ) -> None:
        """Open the manager; ``session`` is a name, a function that finds one for a request, or None."""
        self._check_hooks()
        super().__init__(**self.arguments)
        self._session, self._has_tools = session, context_tools
        self.refold = open_session(self._find_name, codec=self.codec, format=self.format, **options)
        self.manager = self.refold.manager

    def _check_hooks(self) -> None:
        """Raise ConfigError if the framework lacks a hook: it would never call ours, without any error.

        The hooks are the public methods of an adapter's class that are not from this module.
        """
        lineage = type(self).__mro__
        own = next(one for one in lineage if one.__module__.startswith(__name__))
        others = [one for one in lineage if not issubclass(one, Adapter) or one.__module__ == __name__]
        hooks = [name for name, one in vars(own).items() if inspect.isfunction(one) and not name.startswith("_")]
        absent = [name for name in hooks if not any(hasattr(one, name) for one in others)]
        if absent:
            package = _needed.get(own.__name__, "its framework in a version")
            raise ConfigError(f"{own.__name__} needs {package} or newer: this one has no {', '.join(absent)}")

    def find_name(self, *context: Any) -> str | None:
        """Return the name that the framework has for the session of a request."""
        return At(self.session_at).take(context[0]) if self.session_at and context else None

    def session_for(self, *context: Any) -> ManagedSession:
        """Return the session of a request, which has undo, recall, status and tools."""
        return self.refold.named(self._find_name(*context))

    def renamed(self, session: str) -> Self:
        """Return a copy for another session of the same manager."""
        made = copy.copy(self)
        made._session, made.refold = session, self.refold.named(session)
        return made

    def list_tools(self, *context: Any) -> list[Any]:
        """Return the context tools as tools of the framework, if they are wanted; they find their session when run."""
        session = self.session_for(*context) if context else self.refold
        # A subclass elsewhere has the tools of its adapter.
        homes = [kind.__module__ for kind in type(self).__mro__ if kind.__module__.startswith(f"{__name__}.")]
        return session.tools(homes[0].rpartition(".")[2]) if self._has_tools else []

    def _find_name(self, *context: Any) -> str:
        if isinstance(self._session, str):
            return self._session
        find = self._session or self.find_name
        try:
            inspect.signature(find).bind(*context)
        except TypeError:
            name = None  # The name depends on a request, and there is no request now.
        else:
            name = find(*context)
        return str(name or "")  # Without a name, the history decides.


class MiddlewareAdapter(Adapter, ABC):
    """Fits the requests that a framework passes to a hook, and passes them on to a handler."""

    @abstractmethod
    def read_request(self, request: Any) -> dict[str, Any]:
        """Return what a request sends beside its messages, as ``session.prepare`` takes it."""

    def ask(self, request: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the arguments of a session's ``call`` or ``stream`` that sends a request to a handler."""
        return {
            "send": lambda fit: handler(evolve(request, "messages", fit.messages)),
            "messages": request.messages,
            **self.read_request(request),
        }

    async def fit(self, request: Any, *context: Any) -> Any:
        """Return a copy of a request that fits its window, for hooks that do not send it themselves."""
        prepared = await self.session_for(*context).prepare_async(request.messages, **self.read_request(request))
        return evolve(request, "messages", prepared.messages)


class MethodAdapter(Adapter, ABC):
    """Fits the requests of an object's own methods: ``fit_methods`` returns a copy whose methods use the session.

    ``methods`` says for each method which of a session's methods runs it: ``call``, ``call_async``, ``stream``,
    ``stream_async``, or ``open_stream`` for a coroutine function that returns an async stream. ``argument`` is the
    name of the argument that has the messages; a text there is one of the user's. ``model`` is where the object has
    the name of its model. ``base`` is the framework's class of such objects; methods inherited from it are left alone,
    because they use the others. ``more`` are further members of the copy's class.
    """

    methods: ClassVar[Mapping[str, str]]
    argument: ClassVar[str] = "messages"
    model: ClassVar[str] = "model"
    base: ClassVar[type] = object
    more: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def wrap(
        cls, thing: Any, /, session: str | Callable[..., str] | None = None, **options: Unpack[SessionOptions]
    ) -> Any:
        """Return a copy of a model or client whose requests fit; its ``refold`` is the session: undo, recall, tools.

        ``session`` is a name, or a function that finds one. Without it the framework's name of a conversation is used,
        or the conversation is recognised by its messages.
        """
        if not isinstance(thing, cls.base):
            home = cls.base.__module__.partition(".")[0]
            raise ConfigError(f"this takes a {cls.base.__name__} of {home}, not {type(thing).__name__}")
        return cls(session, **options).fit_methods(thing)

    def find_session(self, options: Mapping[str, Any]) -> ManagedSession | None:  # noqa: ARG002 - for subclasses
        """Return the session of a call; None if the call is not part of a conversation."""
        return self.session_for()

    def read_request(self, owner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a call with these arguments sends beside its messages, as ``session.prepare`` takes it."""
        return {"tools": options.get("tools"), "model": At(self.model).take(owner)}

    @abstractmethod
    def watch(self, owner: Any, options: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return a function that reads what to commit from an answer, or from each piece of one."""

    def fit_methods(self, thing: Any) -> Any:
        """Return a copy of an object whose methods fit requests; all of it is on its class, which copies keep."""
        kind, made = type(thing), copy.copy(thing)
        found = {name: getattr(kind, name, None) for name in self.methods}
        present = {
            name: self.methods[name]
            for name, one in found.items()
            if callable(one) and one is not getattr(self.base, name, None)
        }
        first = next(iter(self.methods))
        if first not in present:
            raise ConfigError(f"{kind.__name__} cannot be wrapped: it has no method {first!r}")
        body: dict[str, Any] = {name: self._fit_method(getattr(kind, name), how) for name, how in present.items()}
        body |= {
            "refold": property(lambda _: self.refold),
            "refold_adapter": property(lambda _: self),
            "session_for": lambda _, *context: self.session_for(*context),
            "__module__": kind.__module__,
            **self.more,
        }
        fitted = types.new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(body))
        object.__setattr__(made, "__class__", fitted)
        return made

    def _fit_method(self, method: Callable[..., Any], how: str) -> Callable[..., Any]:
        signature = inspect.signature(method)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

        def run(given: tuple[Any, ...], options: dict[str, Any]) -> Any:
            # Leave out arguments that are None and that the method does not accept.
            known = {
                name: one
                for name, one in options.items()
                if one is not None or takes_any or name in signature.parameters
            }
            bound, place = signature.bind(*given, **known), self.argument
            options = {**options, **bound.arguments}
            is_first = place not in options  # In a method that only passes on what it gets.
            if is_first:
                options[place] = given[1]
            session = self.find_session(options)
            if session is None:
                return method(*bound.args, **bound.kwargs)

            def send(prepared: PreparedContext) -> Any:
                if is_first:
                    return method(given[0], prepared.messages, *given[2:], **known)
                changed = bound.arguments if place in bound.arguments else known
                changed[place] = prepared.messages
                return method(*bound.args, **bound.kwargs) if changed is not known else method(*given, **known)

            return getattr(session, "stream_async" if how == "open_stream" else how)(
                send,
                reply=self.watch(given[0], options),
                messages=self._list_messages(options[self.argument]),
                **self.read_request(given[0], options),
            )

        def fitted(*given: Any, **options: Any) -> Any:
            return run(given, options)

        async def fitted_async(*given: Any, **options: Any) -> Any:
            answer = run(given, options)
            return await answer if inspect.isawaitable(answer) else answer

        chosen = fitted_async if how in ("call_async", "open_stream") else fitted
        return functools.update_wrapper(chosen, method, updated=())

    def _list_messages(self, said: Any) -> Any:
        if not isinstance(said, str):
            return said
        raw = {"role": "user", "content": said}
        return [raw if self.codec is None else self.codec.from_raw(raw, MessageSource((), "whole"))]
