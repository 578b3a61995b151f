"""``ContextCompressionManager``: sessions that are stored, prepared, compressed, undone and forgotten.

The public face of the library for anyone who runs a conversation. Constructing a manager creates no file and starts no
thread. It reads the environment only to find out whether the user adopted a record that may be somebody else's. Every
public method is safe to call from any thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from refold.config import CompressionConfig
from refold.config.load import check_record
from refold.conversation import because
from refold.conversation.message import frozen
from refold.conversation.reason import Language, Reason, detect_language
from refold.conversation.view import Item
from refold.errors import ConfigError, ContextOverflow
from refold.formats import Beside, Codec, read_intake
from refold.ledger.place import LedgerPlace, choose_ledger
from refold.ledger.records import SWITCH, ContextSummary, Event, Extension, Finding
from refold.ledger.salvage import Salvaged
from refold.ledger.sql.ledger import Ledger, read_all_events
from refold.llm.summariser import AskedModel, Summariser
from refold.manager import compress, memory_notes, prepare, status, undo, usage
from refold.manager.append import (
    Request,
    append_new,
    check_session,
    choose_messages,
    make_request,
    read_room,
    take_in,
    truncate,
)
from refold.manager.background import Background, PageQueue
from refold.manager.batch import Archived
from refold.manager.compress import CompactResult
from refold.manager.flow import Flow, run_flow, run_flow_async
from refold.manager.history import find_continued
from refold.manager.identity import Families
from refold.manager.managed import ManagedSession
from refold.manager.notices import Listener
from refold.manager.prepare import PreparedNow, StoredOriginals
from refold.manager.session import digest_raw
from refold.manager.session_state import SessionState
from refold.manager.state import SessionStates
from refold.manager.status import SessionStatus, Statistics, describe_session, find_session_language, sum_up_events
from refold.manager.store import Keeper
from refold.manager.undo import Forgotten, Switched
from refold.memory import CompressionFolder, Entry, MarkdownSync, PageWriting
from refold.prepared import PreparedContext, hand_over
from refold.reading.state import State
from refold.recall.facts import KnownFact
from refold.recall.inject import Injection
from refold.recall.recall import Recall
from refold.recall.search import Recalled
from refold.tokens import TokenCounter

EXPAND_CHARS_MAX = 1_000_000
# If a refusal states no limit, this share of the refused size is the next limit.
REFUSED_SHARE = 0.7
WINDOW_MIN = 256
# A limit that nobody stated leaves this many tokens beside system prompt and tools: a provider that refuses everything
# for a while must not leave a session without room for any request.
ROOM_MIN = 1_000


@frozen
class LoweredWindow:
    """A model's window in one session, before and after a provider refused a request as too long."""

    model: str
    before: int
    after: int
    reason: Reason


class ContextCompressionManager:
    """Keeps sessions inside the model's window, durably. One for each workspace is enough.

    ``is_observation`` gets a user message and tells whether it is a tool's result that a framework sends as text.
    """

    def __init__(
        self,
        config: CompressionConfig | None = None,
        workspace_path: str | Path = ".",
        *,
        llm: object = None,
        ledger: Ledger | str | None = None,
        is_observation: Callable[[Any], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.workspace_path = Path(workspace_path)
        self.compression_folder = CompressionFolder(self.workspace_path)
        self._llm = llm
        self.config = memory_notes.apply_folder(config or CompressionConfig(), self.compression_folder)
        self.token_counter = TokenCounter()
        self.md_sync = MarkdownSync(self.workspace_path)
        self.pages: PageWriting = "now"
        self._page_queue = PageQueue(self.md_sync, lambda session_id, why: self._keeper.complain(session_id, [why]))
        # How another process opens the same ledger; empty: by the settings; None: it cannot, the ledger is an object.
        self.ledger_place: str | None = None
        if ledger is None or isinstance(ledger, str):
            self.ledger_place = ledger or ""
            check_record(self.workspace_path, LedgerPlace(ledger) if ledger else self.config.ledger)
            ledger = choose_ledger(self.workspace_path, ledger or self.config.ledger)
        self._keeper = Keeper(
            self.config,
            self.workspace_path,
            ledger,
            summariser=Summariser(self.config, llm),
            find_compressor=lambda: self.compressor,
            is_observation=is_observation,
            clock=clock,
        )
        self._background = Background(self._keeper, self._remember)
        self.families = Families(self._keeper)
        self._states = SessionStates()

    @cached_property
    def compressor(self) -> Any:
        """Writes the summaries of preset ``archive``; another one may take its place."""
        from refold import ContextCompressor  # A class of the designs, which import this module.

        return ContextCompressor(AskedModel(lambda: self._keeper.summariser), self.token_counter)

    @property
    def ledger(self) -> Ledger:
        """The durable record."""
        return self._keeper.ledger

    async def prepare_context(
        self,
        session_id: str,
        messages: Iterable[Any] | Mapping[str, Any] | None = None,
        system_prompt: Any = "",
        *,
        current_messages: Iterable[Any] | None = None,
        tools: object = None,
        model: str | None = None,
        format: str | None = None,  # noqa: A002 - the word users know
        window: int | str | None = None,
        reserve: int | str | None = None,
        codec: Codec | None = None,
    ) -> PreparedContext:
        """Return a context of this session that fits the model's window.

        ``messages`` is the whole history as the client has it: dicts, objects of the providers' SDKs, a request body,
        or messages of a framework that ``codec`` converts. Without it, the ledger's messages are used (see ``append``).
        ``window`` and ``reserve`` apply to this call and override the model's and the configured ones.
        """
        intake = read_intake(choose_messages(messages, current_messages), codec)
        beside = Beside(system_prompt, tools, model, format)
        request = make_request(self.config, session_id, intake, beside, window=window, reserve=reserve)
        return hand_over(await run_flow_async(self._prepare_whole(request)), intake, tools=tools)

    def prepare_context_sync(
        self,
        session_id: str,
        messages: Iterable[Any] | Mapping[str, Any] | None = None,
        system_prompt: Any = "",
        *,
        current_messages: Iterable[Any] | None = None,
        tools: object = None,
        model: str | None = None,
        format: str | None = None,  # noqa: A002 - the word users know
        window: int | str | None = None,
        reserve: int | str | None = None,
        codec: Codec | None = None,
    ) -> PreparedContext:
        """The same as ``prepare_context``, for callers without an event loop."""
        intake = read_intake(choose_messages(messages, current_messages), codec)
        beside = Beside(system_prompt, tools, model, format)
        request = make_request(self.config, session_id, intake, beside, window=window, reserve=reserve)
        return hand_over(run_flow(self._prepare_whole(request)), intake, tools=tools)

    def _prepare_whole(self, request: Request) -> Flow[PreparedContext]:
        prepared = yield from prepare.prepare_flow(self._keeper, request, self._background)
        assert prepared is not None, "a whole history follows nothing"
        return prepared

    async def prepare(self, request: Request) -> PreparedContext | None:
        """The same as ``prepare_context``; None if a request's new messages do not follow the session's last one."""
        return await run_flow_async(prepare.prepare_flow(self._keeper, request, self._background))

    def append(
        self,
        session_id: str,
        new_messages: Iterable[Any],
        *,
        format: str | None = None,  # noqa: A002 - the word users know
        codec: Codec | None = None,
    ) -> int:
        """Add messages at the end of a session, durably; return how many it has now."""
        request = Request(check_session(session_id), read_intake(new_messages, codec).raws, format=format)
        with self._keeper.sessions.held(session_id) as session:
            return len(run_flow(append_new(self._keeper, session, request)).ids)

    def store(self, request: Request) -> int:
        """Store a whole history without preparing it, durably; return how many messages the session has now."""
        with self._keeper.sessions.held(check_session(request.session_id)) as session:
            run_flow(take_in(self._keeper, session, request))
            return len(session.ids)

    def truncate(self, session_id: str, length: int) -> int:
        """Keep the first ``length`` messages of a session; return how many were removed. Recall still finds them."""
        return run_flow(truncate(self._keeper, check_session(session_id), length))

    def session(
        self,
        session_id: str | Callable[[], str],
        *,
        model: str | None = None,
        window: int | str | None = None,
        reserve: int | str | None = None,
        format: str | None = None,  # noqa: A002 - the word users know
        codec: Codec | None = None,
    ) -> ManagedSession:
        """Return one session as an object; the arguments are defaults for each of its calls.

        The id may be a function, which is called at every use. Where it is empty, the history decides.
        """
        room = {"window": read_room(window, "window"), "reserve": read_room(reserve, "reserve")}
        defaults = {"model": model, **room, "format": format, "codec": codec}
        return ManagedSession(self, session_id, defaults)

    def find_session(self, messages: Iterable[Any] | Mapping[str, Any], *, codec: Codec | None = None) -> str | None:
        """Return the id of the session that a history continues, for clients that name none; None if there is none.

        Among the sessions used last, the one with the longest common prefix wins. The prefix must contain an answer of
        the model, or be the whole session.
        """
        raws = read_intake(messages, codec).raws or ()
        return find_continued(self.ledger, [digest_raw(raw, at) for at, raw in enumerate(raws)], raws)

    def prepare_now(self, request: Request) -> PreparedNow | None:
        """Prepare a request in memory without waiting; None if that is not possible (see ``prepare.prepare_now``)."""
        return prepare.prepare_now(self._keeper, request)

    def store_prepared(self, extensions: Sequence[Extension], *, may_wait: bool = False) -> list[bool] | None:
        """Store what ``prepare_now`` appended; return whether each was stored, None if another writer is busy."""
        return prepare.store_prepared(self._keeper, extensions, may_wait=may_wait)

    def compress(self, session_id: str, instructions: str = "", dry_run: bool = False) -> CompactResult:
        """Compress a session now, at a person's request; ``dry_run`` reports the result and changes nothing."""
        flow = compress.compress_flow(self._keeper, self._background, check_session(session_id), instructions, dry_run)
        return run_flow(flow)

    async def compress_async(
        self, session_id: str, instructions: str = "", dry_run: bool = False, *, by_tool: bool = False
    ) -> CompactResult:
        """The same as ``compress``, for callers with an event loop; ``by_tool`` if a model asked, not a person."""
        wanted = (check_session(session_id), instructions, dry_run)
        return await run_flow_async(compress.compress_flow(self._keeper, self._background, *wanted, by_tool=by_tool))

    def undo(self, session_id: str, edit_id: str | None = None) -> Switched:
        """Undo the last compression, or one edit by its id, with all edits made from it."""
        self._background.cancel(check_session(session_id))
        switched = undo.switch(self._keeper, session_id, edit_id, on=False)
        self._write_summaries(session_id)
        return switched

    def redo(self, session_id: str, edit_id: str | None = None) -> Switched:
        """Redo the last undo, or one undone edit by its id."""
        self._background.cancel(check_session(session_id))
        switched = undo.switch(self._keeper, session_id, edit_id, on=True)
        self._write_summaries(session_id)
        return switched

    def pin(self, session_id: str, handle: str) -> tuple[str, ...]:
        """Protect the message behind a handle from edits; return the ids of all pinned messages."""
        return undo.pin(self._keeper, check_session(session_id), handle, on=True)

    def refuse(self, session_id: str, overflow: ContextOverflow) -> LoweredWindow | None:
        """Record that a provider refused the last context as too long; return the window that applies from now on.

        It is the one that the refusal states. If none is stated, or the refused context fits it by our count, it is a
        part of the refused size. It is stored with the session, so that every face uses it. The next request is
        compressed. None if the refusal only quotes the request, or the window cannot become smaller.
        """
        self.observe_usage(session_id, 0, is_overflow=True)
        if overflow.is_quoted:
            return None
        now, stated = self.status(session_id), overflow.tokens_max
        window, reserve = now.window, now.window - now.hard
        if stated is not None and WINDOW_MIN <= stated < window:
            window, reserve = stated, min(reserve, stated // 4)
        why = because.WINDOW_STATED(tokens=window)
        if window == now.window or now.tokens <= window - reserve:
            least = now.system_tokens + now.tools_tokens + ROOM_MIN
            window = min(max(least, int(now.tokens * REFUSED_SHARE)) + reserve, window)
            why = because.WINDOW_REJECTED(tokens=now.tokens)
        if window == now.window:
            return None
        self.set_window(session_id, now.model, window, reserve)
        return LoweredWindow(now.model, now.window, window, why)

    def set_window(self, session_id: str, model: str, window: int, reserve: int | None = None) -> None:
        """Set a model's window in this session, for a provider that accepts less than announced."""
        self._keeper.set_window(check_session(session_id), model, window, reserve)

    def switch(self, session_id: str, *, on: bool) -> None:
        """Switch automatic compression of a session off or on, also while a gateway serves it.

        What was compressed stays so, and a request that would not fit is compressed in any case.
        """
        changes = {"settings": {SWITCH: None if on else False}}
        self._keeper.ledger.update_session(check_session(session_id), changes, self._keeper.clock())

    def find_window(self, session_id: str, model: str) -> int | None:
        """Return the window that a model has in this session; None if none was set."""
        return SessionState.read(self._keeper.need_row(check_session(session_id)).settings).find_window(model)[0]

    def unpin(self, session_id: str, handle: str) -> tuple[str, ...]:
        """Allow edits of the message behind a handle again."""
        return undo.pin(self._keeper, check_session(session_id), handle, on=False)

    def read_view(self, session_id: str) -> list[Item]:
        """Return what the model sees of a session now, item by item; nothing is compressed."""
        return undo.read_view(self._keeper, check_session(session_id))

    def status(
        self, session_id: str, system_prompt: Any = None, *, tools: object = None, model: str | None = None
    ) -> SessionStatus:
        """Return how full a session is, and its limits.

        System prompt, tools and model are those of the last request unless they are given.
        """
        is_given = system_prompt is not None or tools is not None or model is not None
        beside = Request(session_id, system=system_prompt or "", tools=tools, model=model)
        return describe_session(self._keeper, check_session(session_id), beside if is_given else None)

    def state(self, session_id: str) -> State:
        """Return what is true now in a session: task, rules, files, checks, final acts, findings, what is open."""
        return self._states.read(self._keeper, check_session(session_id))

    def statistics(self, session_id: str | None = None) -> Statistics:
        """Return statistics of compressions, for one session or all of them."""
        return sum_up_events(read_all_events(self.ledger, session_id))

    def figures(self, session_id: str) -> usage.SessionFigures:
        """Return the size and cost of a session's requests, with and without compression."""
        found = usage.read_figures(self.ledger, check_session(session_id))
        if self.ledger.read_session(session_id) is None:
            return found
        return replace(found, folded_away=self.status(session_id).folded_away)

    def events(self, session_id: str | None = None, limit: int = 100) -> list[Event]:
        """Return the newest events of a session, or of all, newest first."""
        return self.ledger.read_newest_events(session_id, limit=limit)

    def pinned(self, session_id: str) -> tuple[str, ...]:
        """Return the ids of the pinned messages."""
        row = self._keeper.need_row(check_session(session_id))
        return tuple(sorted(SessionState.read(row.settings).pinned))

    def export_session(self, session_id: str) -> dict[str, object]:
        """Return all of a session as one JSON value, as it was at one moment."""
        return status.export_session(self.ledger, check_session(session_id))

    def import_session(self, value: object, session_id: str | None = None) -> str:
        """Store an exported session, under its own id or another, with the files its view names; return the id."""
        now, root = self._keeper.clock(), self.config.offload.folder
        stored = status.import_session(self.ledger, value, now=now, session_id=session_id, root=root)
        self.verify(stored, repair=True)
        return stored

    def observe_usage(
        self,
        session_id: str,
        reported: object,
        *,
        finish_reason: str | None = None,
        is_overflow: bool = False,
        is_extra: bool = False,
    ) -> None:
        """Report what the provider billed for the last prepared context: input tokens, or its usage object.

        ``finish_reason`` "length" and ``is_overflow`` (the provider refused the request as too long) force a
        compression before the next request. ``is_extra``: a request that held more than the prepared context.
        """
        report = usage.ReportedUsage(reported, finish_reason, is_overflow, is_extra)
        self.observe_together({check_session(session_id): (report,)})

    def observe_together(self, reports: Mapping[str, Sequence[usage.ReportedUsage]]) -> None:
        """Store reports about several sessions; the first that is malformed is an error once all others are stored."""
        usage.observe_usage(self._keeper, reports)

    @property
    def recalling(self) -> Recall:
        """The recall index beside the ledger, opened when it is first used."""
        return self._keeper.recall.open()

    def recall(
        self,
        session_id: str | None,
        query: str,
        limit: int | None = None,
        *,
        tokens_max: int | None = None,
        only: bool = False,
    ) -> list[Recalled]:
        """Return the passages of a session and its family about a query, best first, within 1,500 tokens.

        ``only`` leaves the family out. None searches all sessions of the workspace.
        """
        return self.recalling.recall(session_id, query, limit, tokens_max=tokens_max, only=only)

    def facts(self, session_id: str | None, *, with_history: bool = False) -> list[KnownFact]:
        """Return the current facts; with ``with_history`` also those that a later fact replaced."""
        return self.recalling.facts(session_id, with_history=with_history)

    def find_injection(self, session_id: str, newest: str, hidden: Sequence[str], in_view: str = "") -> Injection:
        """Decide what recalled text goes below the newest user message, and why."""
        return self.recalling.inject(session_id, newest, hidden, in_view=in_view)

    def expand(self, session_id: str, handle: str, offset: int = 0, limit: int | None = None) -> str:
        """Return the original text behind a placeholder, or ``limit`` characters of it from ``offset``."""
        originals = StoredOriginals(self._keeper, check_session(session_id))
        return originals.expand(handle, offset, EXPAND_CHARS_MAX if limit is None else limit)

    def summaries(self, session_id: str, limit: int | None = None) -> list[ContextSummary]:
        """Return the history of summaries, the newest first; each says what it covers and whether it is in force."""
        found = self.ledger.read_summaries(check_session(session_id))
        return found if limit is None else found[: max(0, limit)]

    def forget(self, session_id: str, handle: str | None = None) -> Forgotten:
        """Erase the messages behind a handle, or the whole session, from ledger, files and pages. There is no undo."""
        self._background.cancel(check_session(session_id))
        self._page_queue.join()
        self._keeper.recall.forget(check_session(session_id), handle)
        self._states.forget(session_id)
        forgotten = undo.forget(self._keeper, session_id, handle, self.md_sync)
        memory_notes.forget_carried(self._keeper, session_id)
        self._write_summaries(session_id)
        return forgotten

    def delete_session(self, session_id: str) -> bool:
        """Erase a session and its folder of files; daily pages stay. False if there was none."""
        self._background.cancel(check_session(session_id))
        self._keeper.recall.forget(check_session(session_id))
        self._states.forget(session_id)
        is_gone = undo.delete(self._keeper, session_id)
        memory_notes.forget_carried(self._keeper, session_id)
        self._write_summaries(session_id)
        return is_gone

    def verify(self, session_id: str | None = None, *, repair: bool = False) -> list[Finding]:
        """Recompute all derived data, files included, and return the differences; ``repair`` rebuilds it."""
        findings = undo.verify(self._keeper, session_id, repair=repair)
        return findings + self.recalling.verify_index(session_id, repair=repair)

    def salvage(self) -> Salvaged:
        """Copy the readable part of a damaged ledger into a new file beside it; the damaged file is not changed."""
        return undo.salvage_ledger(self._keeper)

    def find_language(self, session_id: str) -> Language:
        """Return the language of a conversation: the configured one, else the one its people write."""
        return self.config.language or find_session_language(self._keeper, session_id)

    def on(self, event: str, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with a Notice of every such event, until the returned function is called.

        A listener of ``before_compress`` vetoes the compression by returning False.
        """
        return self._keeper.listeners.add(event, listener)

    def configure(self, **changes: Any) -> CompressionConfig:
        """Change settings of this workspace from now on; return the settings in force."""
        if "ledger" in changes:
            raise ConfigError("ledger cannot change while it is in use; make another manager for another ledger")
        self._use(self.config.replace(**changes))
        self.compression_folder.write_config(memory_notes.list_settings(self.config), changes=changes)
        return self.config

    def adopt(self, config: CompressionConfig) -> CompressionConfig:
        """Use reloaded settings from the next request on; ``config.json`` still applies on top."""
        self._use(memory_notes.apply_folder(config, self.compression_folder))
        return self.config

    def _use(self, config: CompressionConfig) -> None:
        self._keeper.configure(config, Summariser(config, self._llm))
        self.config = config

    def check_ledger(self) -> None:
        """Raise LedgerError if the ledger cannot be written now."""
        self.ledger.check_write()

    def close(self) -> None:
        """Release everything in memory and close the ledger. The manager can be used again: it reopens the ledger."""
        self._background.close()
        self._page_queue.close()
        self._keeper.recall.close()
        self._keeper.read_ahead.close()
        self._keeper.sessions.drop_all()
        self._keeper.ledger.close()

    def __enter__(self) -> ContextCompressionManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Method names that callers of the archive design expect.

    def _check_compression_needed(self, message_count: int, token_count: int) -> bool:
        rounds, tokens = self.config.threshold_rounds, self.config.threshold_tokens
        return (rounds is not None and message_count >= rounds) or (tokens is not None and token_count >= tokens)

    async def _store_summary_to_daily_memory(
        self, session_id: str, summary: str, key_facts: Sequence[str], archived_count: int
    ) -> None:
        now = datetime.now()
        time = now.isoformat(timespec="seconds")
        entry = Entry(session_id, time, archived_count, summary, key_facts, detect_language([summary]))
        await self.md_sync.append_to_daily_log(now.strftime("%Y-%m-%d"), memory_notes.write_section(self.config, entry))

    async def _remember(self, session_id: str, archived: Archived) -> None:
        """Write the page of the day, and the summaries for other programs."""
        if self.pages == "off":
            return
        facts = [fact.text for fact in archived.facts]
        entry = Entry(session_id, archived.time, archived.count, archived.summary, facts, archived.language)
        section = await asyncio.to_thread(memory_notes.write_section, self.config, entry)
        if self.pages == "later":
            await asyncio.to_thread(self._page_queue.ask, session_id, archived.date, section)
            return
        try:
            await self.md_sync.append_to_daily_log(archived.date, section)
        finally:  # The summaries are written even if the page is not.
            await asyncio.to_thread(self._write_summaries, session_id)
        await asyncio.to_thread(self.compression_folder.write_config, memory_notes.list_settings(self.config))

    def _write_summaries(self, session_id: str) -> None:
        """Write a session's summaries; a gateway only keeps the file of another program true."""
        if self.pages == "now" or self.compression_folder.has_summaries:
            memory_notes.write_summaries(self._keeper, self.compression_folder, session_id)
