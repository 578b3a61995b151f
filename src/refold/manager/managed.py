"""One session as an object, for integrations.

``manager.session("s1")`` prepares contexts, stores the model's answers, and offers undo, recall and the context tools.
The name may be a function, which is called at every use: a framework knows its thread only when it runs. A history that
does not continue the named session belongs to a child of it, and one without a name to the session that it continues
(see ``identity``).
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from refold.errors import ConfigError, ContextOverflow
from refold.formats import Intake, MessageSource, ModelReply, read_intake
from refold.formats.intake import read_reply, read_system
from refold.ledger.codec import load_json
from refold.llm.errors import classify
from refold.manager.compress import CompactResult
from refold.manager.flow import run_blocking
from refold.manager.session_state import SessionState
from refold.manager.status import SessionStatus
from refold.manager.undo import Switched
from refold.manager.usage import read_usage
from refold.prepared import PreparedContext
from refold.reading.state import State
from refold.recall.search import Recalled

if TYPE_CHECKING:
    from refold.manager.manager import ContextCompressionManager

Answer = TypeVar("Answer")
Options = ParamSpec("Options")
ReadAnswer = Callable[[Any], Any]
# The session that was used last in this thread or task: the manager's families, the name, the id that was found and
# the turn of its request.
_CURRENT: ContextVar[tuple[object, str, str, int] | None] = ContextVar("refold_session", default=None)


def _in_thread(
    method: Callable[Concatenate[ManagedSession, Options], Answer],
) -> Callable[Concatenate[ManagedSession, Options], Coroutine[Any, Any, Answer]]:
    """Return a method that runs another one in a thread."""

    @wraps(method)
    async def run(session: ManagedSession, /, *args: Options.args, **options: Options.kwargs) -> Answer:
        return await asyncio.to_thread(method, session, *args, **options)

    run.__doc__ = f"The same as ``{method.__name__}``, for callers with an event loop."
    return run


class ManagedSession:
    """A session of a manager. Every method is safe to call from any thread; those named ``_async`` never block."""

    def __init__(
        self,
        manager: ContextCompressionManager,
        session_id: str | Callable[[], str],
        defaults: Mapping[str, Any],
        *,
        is_found: bool = False,
        turn: int = 0,
    ) -> None:
        self.manager = manager
        self._defaults = defaults  # Model, window, reserve, format and codec of a request that has none.
        self._find_name = session_id if callable(session_id) else lambda: session_id
        self._is_found = is_found  # The name is the id: a history of this session was looked up already.
        self._turn = turn  # Of the request that was looked up; 0 for none.

    def __repr__(self) -> str:
        return f"ManagedSession({self._find_name()!r})"

    @property
    def id(self) -> str:
        """The session's id now: that of the last history in this thread or task, else the name."""
        if not (found := self._read_current()[0] or self._find_name() or self.manager.families.only):
            raise ConfigError("name the session: pass session=…, or run the agent with one of the framework's")
        return found

    def _read_current(self) -> tuple[str, int]:
        """Return the id that the last history in this thread or task has, and its turn; empty and 0 without one."""
        current = _CURRENT.get()
        if self._is_found or current is None or current[:2] != (self.manager.families, self._find_name()):
            return "", self._turn
        return current[2:]

    @property
    def root(self) -> ManagedSession:
        """The named session itself, whichever child of it was used last."""
        return ManagedSession(self.manager, self._find_name(), self._defaults, is_found=True)

    def using(self, **defaults: Any) -> ManagedSession:
        """Return the same session with other defaults for each call, such as its format."""
        return ManagedSession(self.manager, self._find_name, {**self._defaults, **defaults}, is_found=self._is_found)

    def find(self, messages: Any, system: Any = "") -> ManagedSession:
        """Return the session that a history belongs to: the named one, a child of it, or one found by content."""
        return self._adopt(self._look_up(messages, system))[0]

    async def find_async(self, messages: Any, system: Any = "") -> ManagedSession:
        """The same as ``find``, for callers with an event loop."""
        return self._adopt(await asyncio.to_thread(self._look_up, messages, system))[0]

    def _look_up(self, messages: Any, system: Any, codec: Any = None) -> tuple[tuple[str, int], Any]:
        """Return the id of a history's session, empty for this one, its turn, and its messages as they were read."""
        if messages is None or self._is_found:
            return ("", 0), messages
        intake, name = read_intake(messages, codec or self._defaults["codec"]), self._find_name()
        asked = read_system(system or intake.system)
        wire = self._defaults["format"]
        return self.manager.families.find(name, intake.raws or (), asked, wire), intake

    def _adopt(self, found: tuple[tuple[str, int], Any]) -> tuple[ManagedSession, Any]:
        """Make a session that was looked up the current one."""
        (session_id, turn), intake = found
        if not session_id:
            return self, intake
        _CURRENT.set((self.manager.families, self._find_name(), session_id, turn))
        return ManagedSession(self.manager, session_id, self._defaults, is_found=True, turn=turn), intake

    def prepare(
        self, messages: Iterable[Any] | Mapping[str, Any] | None = None, system: Any = "", **options: Any
    ) -> PreparedContext:
        """Return a context that fits; ``options`` are those of ``manager.prepare_context``."""
        found, intake = self._adopt(self._look_up(messages, system, options.get("codec")))
        return self.manager.prepare_context_sync(found.id, intake, system, **found._complete(intake, options))

    async def prepare_async(
        self, messages: Iterable[Any] | Mapping[str, Any] | None = None, system: Any = "", **options: Any
    ) -> PreparedContext:
        """The same as ``prepare``, for callers with an event loop."""
        found, intake = self._adopt(await asyncio.to_thread(self._look_up, messages, system, options.get("codec")))
        return await self.manager.prepare_context(found.id, intake, system, **found._complete(intake, options))

    def call(
        self,
        send: Callable[[PreparedContext], Answer],
        messages: Any = None,
        system: Any = "",
        *,
        reply: ReadAnswer | None = None,
        **options: Any,
    ) -> Answer:
        """Prepare a context and send it; if the provider refuses it as too long, shrink it and retry once.

        ``reply`` returns what to commit of the answer, as ``commit`` takes it; without it the caller commits.
        """
        pieces = self.stream(lambda prepared: (send(prepared),), messages, system, reply=reply, **options)
        try:
            answer: Answer = next(pieces)
            next(pieces, None)  # Commits it.
        except RuntimeError as error:
            if isinstance(error.__cause__, StopIteration):  # A generator turns it into a RuntimeError.
                raise error.__cause__ from None
            raise
        return answer

    async def call_async(
        self,
        send: Callable[[PreparedContext], Awaitable[Answer]],
        messages: Any = None,
        system: Any = "",
        *,
        reply: ReadAnswer | None = None,
        **options: Any,
    ) -> Answer:
        """The same as ``call``, for callers with an event loop."""

        async def send_whole(prepared: PreparedContext) -> AsyncIterator[Answer]:
            yield await send(prepared)

        pieces = self.stream_async(send_whole, messages, system, reply=reply, **options)
        whole: list[Answer] = [piece async for piece in pieces]
        return whole[0]

    def stream(
        self,
        send: Callable[[PreparedContext], Iterable[Answer]],
        messages: Any = None,
        system: Any = "",
        *,
        reply: ReadAnswer | None = None,
        gather: Callable[[list[Answer]], Any] | None = None,
        **options: Any,
    ) -> Iterator[Answer]:
        """The same as ``call``, for answers that come in pieces; after the first piece nothing is sent again.

        ``reply`` is asked about every piece; its last answer that is not None is committed when the stream ends. With
        ``gather``, which makes the whole answer of all pieces, it is asked about that alone.
        """
        found, intake = self._adopt(self._look_up(messages, system, options.get("codec")))
        asked, read = {**options, "messages": _keep(intake), "system": system}, _Pieces(reply, gather)
        with self.manager.families.busy(found.id):
            for is_last in (False, True):
                prepared = found.prepare(**asked)
                try:
                    for piece in send(prepared):
                        read.add(piece)
                        yield piece
                    break
                except Exception as error:
                    if read.has_begun or is_last or not found.refuse(error):
                        raise
            if (whole := read.finish()) is not None:
                found.commit(whole)

    async def stream_async(
        self,
        send: Callable[[PreparedContext], AsyncIterable[Answer] | Awaitable[AsyncIterable[Answer]]],
        messages: Any = None,
        system: Any = "",
        *,
        reply: ReadAnswer | None = None,
        gather: Callable[[list[Answer]], Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Answer]:
        """The same as ``stream``, for callers with an event loop."""
        found, intake = self._adopt(await asyncio.to_thread(self._look_up, messages, system, options.get("codec")))
        asked, read = {**options, "messages": _keep(intake), "system": system}, _Pieces(reply, gather)
        with self.manager.families.busy(found.id):
            for is_last in (False, True):
                prepared = await found.prepare_async(**asked)
                try:
                    opened = send(prepared)
                    async for piece in await opened if isinstance(opened, Awaitable) else opened:
                        read.add(piece)
                        yield piece
                    break
                except Exception as error:
                    if read.has_begun or is_last or not await found.refuse_async(error):
                        raise
            if (whole := read.finish()) is not None:
                await found.commit_async(whole)

    def refuse(self, error: BaseException) -> bool:
        """Lower the session's window if a provider refused the last context as too long; return whether it did."""
        overflow = classify(error)
        if not isinstance(overflow, ContextOverflow):
            return False
        self.manager.refuse(self.id, overflow)
        return True

    refuse_async = _in_thread(refuse)

    def append(self, messages: Iterable[Any], *, may_overlap: bool = False) -> int:
        """Add messages at the end, durably; return how many the session has now.

        With ``may_overlap``, the first messages may be those that the session ends with; they are not added again.
        """
        if may_overlap:
            messages = list(messages)
            stored = self.messages()[-len(messages) or None :]
            counts = range(len(messages), 0, -1)
            messages = messages[next((n for n in counts if stored[len(stored) - n :] == messages[:n]), 0) :]
        return self.manager.append(self.id, messages, format=self._defaults["format"], codec=self._defaults["codec"])

    append_async = _in_thread(append)

    def commit(self, reply: Any, usage: object = None, *, finish_reason: str | None = None) -> None:
        """Store the model's answer and what the provider reported about the request.

        ``reply`` is a message, a list of them, a whole response of a provider's SDK, or a ``ModelReply``; the last two
        also bring usage and finish reason. The next request may resend the answer: it is stored once. If the session
        has had another request meanwhile, the answer is not stored: the next request of its own branch has it.
        """
        whole = read_reply(reply)
        usage, reason = usage if usage is not None else whole.usage, finish_reason or whole.finish_reason
        if usage is not None and not read_usage(usage)["input_tokens"]:
            usage = None  # Some frameworks have figures for every answer, and zeros where nothing was reported.
        codec = None if whole.is_response else self._defaults["codec"]
        is_newest = self._read_current()[1] in (0, self.manager.families.turns[self.id])
        if whole.messages and is_newest:
            self.manager.append(self.id, whole.messages, format=self._defaults["format"], codec=codec)
        if usage is not None or reason is not None:
            self.manager.observe_usage(self.id, usage if usage is not None else 0, finish_reason=reason)

    commit_async = _in_thread(commit)

    def messages(self, limit: int | None = None) -> list[Any]:
        """Return the messages of the session as they came in, folded or not: all of them, or the newest."""
        stored = [message for message in self.manager.ledger.read_messages(self.id) if not message.is_forgotten]
        first = 0 if limit is None else max(0, len(stored) - limit)
        raws = [load_json(one.raw) for one in stored[first:]]
        codec = self._defaults["codec"]
        if codec is None:
            return raws
        return [codec.from_raw(raw, MessageSource((at,), "whole")) for at, raw in enumerate(raws, first)]

    messages_async = _in_thread(messages)

    def pop(self) -> Any:
        """Remove the last message from the session and return it; None if there is none. Recall still finds it."""
        known = self.messages()
        if not known:
            return None
        self.truncate(len(known) - 1)
        return known[-1]

    pop_async = _in_thread(pop)

    def truncate(self, length: int) -> int:
        """Keep the first ``length`` messages; return how many were removed. Recall still finds them."""
        return self.manager.truncate(self.id, length)

    truncate_async = _in_thread(truncate)

    def fork(self, session_id: str) -> ManagedSession:
        """Return a new session with a copy of this one, folds included; later changes are independent."""
        copied = self.manager.import_session(self.manager.export_session(self.id), session_id)
        return self.named(copied)

    fork_async = _in_thread(fork)

    def named(self, session_id: str) -> ManagedSession:
        """Return another session of the same manager with the same defaults."""
        return ManagedSession(self.manager, session_id, self._defaults)

    def tools(self, kind: str = "functions") -> list[Any]:
        """Return the context tools (recall, expand, status, compress) in the form that a framework or provider takes.

        ``functions`` are plain functions, ``openai``, ``responses`` and ``anthropic`` schemas for a request; any other
        kind is the name of an integration. The session's id is looked up when a tool runs.
        """
        # Tools belong to a higher layer: this one knows them by name only, and loads them on demand.
        listed = import_module("refold.agent.context_tools").ContextTools(self.manager, lambda: self.id).list_shared()
        if kind == "functions":
            return [tool.call for tool in listed]
        if kind == "tools":
            return list(listed)
        if kind in ("openai", "litellm", "responses", "anthropic"):
            return [_write_schema(tool, kind) for tool in listed]
        try:
            make_tool = import_module(f"refold.integrations.{kind}").make_tool
        except (ModuleNotFoundError, AttributeError) as error:
            raise ConfigError(f"there are no tools of kind {kind[:40]!r}; {error}") from error
        return [make_tool(tool) for tool in listed]

    def run_tool(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """Run the context tool that a model called, and return the text for its result."""
        return str(run_blocking(lambda: self.run_tool_async(name, arguments)))

    async def run_tool_async(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """The same as ``run_tool``, for callers with an event loop."""
        found = next((tool for tool in self.tools("tools") if tool.name == name), None)
        if found is None:
            return f"there is no context tool {name[:80]!r}"
        try:
            given = found.read_arguments(arguments)
        except ValueError as error:
            return str(error)
        return str(await found.run(**given))

    def recall(self, query: str, limit: int | None = None, *, tokens_max: int | None = None) -> list[Recalled]:
        """Return the session's passages about a query, best first."""
        return self.manager.recall(self.id, query, limit, tokens_max=tokens_max)

    recall_async = _in_thread(recall)

    def expand(self, handle: str, offset: int = 0, limit: int | None = None) -> str:
        """Return the original text behind a placeholder."""
        return self.manager.expand(self.id, handle, offset, limit)

    expand_async = _in_thread(expand)

    def undo(self, edit_id: str | None = None) -> Switched:
        """Undo the last compression, or one edit by its id."""
        return self.manager.undo(self.id, edit_id)

    undo_async = _in_thread(undo)

    def redo(self, edit_id: str | None = None) -> Switched:
        """Redo the last undo, or one undone edit by its id."""
        return self.manager.redo(self.id, edit_id)

    redo_async = _in_thread(redo)

    def compress(self, instructions: str = "") -> CompactResult:
        """Compress the session now."""
        return self.manager.compress(self.id, instructions)

    async def compress_async(self, instructions: str = "") -> CompactResult:
        """The same as ``compress``, for callers with an event loop."""
        return await self.manager.compress_async(self.id, instructions)

    def status(self) -> SessionStatus:
        """Return how full the session is."""
        return self.manager.status(self.id)

    status_async = _in_thread(status)

    def state(self) -> State:
        """Return what is true now in the session: task, rules, files, checks, final acts, findings, what is open."""
        return self.manager.state(self.id)

    state_async = _in_thread(state)

    def _complete(self, messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call completed by the session's defaults and by the learned window."""
        body = messages.body if isinstance(messages, Intake) else messages
        chosen = {**self._defaults, **{name: one for name, one in options.items() if one is not None and one != []}}
        row = self.manager.ledger.read_session(self.id) if chosen["window"] is not None else None
        if row is not None:
            # A smaller window that the provider stated overrides the caller's.
            named = chosen["model"] or (body.get("model") if isinstance(body, Mapping) else None) or row.model
            window, reserve = SessionState.read(row.settings).find_window(str(named))
            if window is not None and window < chosen["window"]:
                # A reserve for a larger window may not fit into this one.
                given = [one for one in (chosen["reserve"], reserve) if one is not None]
                chosen |= {"window": window, "reserve": min(given, default=None)}
        return chosen


class _Pieces:
    """Collects what to commit of an answer that comes in pieces."""

    def __init__(self, reply: ReadAnswer | None, gather: Callable[[list[Any]], Any] | None) -> None:
        self.reply, self.gather = reply, gather
        self.has_begun = False
        self._kept: list[Any] = []
        self._whole: Any = None

    def add(self, piece: Any) -> None:
        """Take one piece in."""
        self.has_begun = True
        if self.gather is not None:
            self._kept.append(piece)
        elif self.reply is not None and (read := self.reply(piece)) is not None:
            before, self._whole = self._whole, read
            if isinstance(read, ModelReply) and read.usage is None and isinstance(before, ModelReply):
                self._whole = replace(read, usage=before.usage)  # An earlier piece reported it.

    def finish(self) -> Any:
        """Return what to commit; None for nothing."""
        if self.gather is None or not self._kept:
            return self._whole
        whole = self.gather(self._kept)
        return whole if self.reply is None else self.reply(whole)


def _keep(messages: Any) -> Any:
    """Return messages that can be read twice."""
    is_readable = messages is None or isinstance(messages, Sequence | Mapping | Intake)
    return messages if is_readable else list(messages)


def _write_schema(tool: Any, kind: str) -> dict[str, Any]:
    """Return a tool in a provider's format. LiteLLM takes functions of chat completions for every provider."""
    named, schema = {"name": tool.name, "description": tool.description}, dict(tool.schema)
    if kind == "anthropic":
        return {**named, "input_schema": schema}
    if kind == "responses":
        return {"type": "function", **named, "parameters": schema, "strict": False}
    return {"type": "function", "function": {**named, "parameters": schema}}
