"""The context tools: an agent inspects and manages its own context. Used by agents, the REPL and MCP.

Answers are short, exact and in the conversation's language (English or Chinese), and name the next step if there is
one. The answer to an unknown handle tells the model to stop searching. Only settings that cannot break a session can be
changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.agent.tools import Tool, make_tool
from refold.conversation.reason import Language, Reason, say
from refold.errors import ConfigError, HandleUnknown, LedgerError
from refold.ledger.records import ContextSummary
from refold.manager import ContextCompressionManager
from refold.manager.compress import CompactResult
from refold.manager.status import SessionStatus
from refold.memory import SETTINGS
from refold.recall.search import Recalled
from refold.sentences import describe_error, describe_steps, tr

PAGE_CHARS = 8_000
PAGE_CHARS_MAX = 40_000
SUMMARIES_MAX = 20
RECALL_MAX = 10
RECALL_TOKENS = 2_000
# Settings a model may change: none of them can lose content or overflow the window.
_BOUNDS: dict[str, tuple[float, float]] = {
    "max_turns": (2, 1_000),
    "keep_recent": (1, 500),
    "max_tool_output": (200, 1_000_000),
    "summary_max_chars": (100, 20_000),
    "importance_threshold": (0, 100),
}


class ContextTools:
    """The tools of one session. Every method returns text for a model or a person.

    ``session_id`` may be a function, which is asked whenever a tool runs.
    """

    def __init__(self, manager: ContextCompressionManager, session_id: str | Callable[[], str]) -> None:
        self.manager = manager
        self._find_id = session_id if callable(session_id) else lambda: session_id

    @property
    def session_id(self) -> str:
        """The session that the tools are about now."""
        return self._find_id()

    def list_tools(self) -> list[Tool]:
        managing = (self.context_status, self.context_compress, self.context_config, self.context_summary)
        reading = (self.context_recall, self.context_expand, self.context_pin)
        return [make_tool(method) for method in (*managing, *reading)]

    def list_shared(self) -> list[Tool]:
        """Return the tools that integrations offer: those that a model needs to get back what left its view."""
        shared = (self.context_recall, self.context_expand, self.context_status, self.context_compress)
        return [make_tool(method) for method in shared]

    def context_status(self) -> str:
        """Show how full your context is: tokens, window, turns, compressions, and when it compresses next."""
        try:
            return self.texts.status(self.manager.status(self.session_id), _read_settings(self.manager))
        except LedgerError:
            return self.texts("nothing_yet")

    async def context_compress(self, instructions: str = "") -> str:
        """Compress your context now. Nothing is lost: older content stays reachable by recall and expand.

        Args:
            instructions: what to keep in view above all, in a sentence; may be empty.
        """
        texts = self.texts
        if self.manager.ledger.read_session(self.session_id) is None:
            return texts("nothing_to_compress")
        before = len(await asyncio.to_thread(self.manager.read_view, self.session_id))
        try:
            done = await self.manager.compress_async(self.session_id, instructions[:4_000], by_tool=True)
        except LedgerError as error:
            return str(error)
        if not done.success:
            return texts.explain("compress_failed", done.reason)
        if done.freed_tokens == 0 and not any(stage.edits for stage in done.stages):
            return texts.explain("not_compressed", done.reason, tokens=done.current_tokens)
        return texts.compressed(done, before)

    def context_config(
        self,
        changes: dict[str, Any] | None = None,
        maxTurns: int | None = None,  # noqa: N803 - the document's own names
        keepRecent: int | None = None,  # noqa: N803
        maxToolOutput: int | None = None,  # noqa: N803
        summaryMaxChars: int | None = None,  # noqa: N803
        autoCompress: bool | None = None,  # noqa: N803
        importanceThreshold: float | None = None,  # noqa: N803
    ) -> str:
        """Show the settings of compression, or change some; they are kept in .compression/config.json.

        Args:
            changes: the settings below by name, such as {"keepRecent": 6}; leave all out to see what is set.
        """
        given = (maxTurns, keepRecent, maxToolOutput, summaryMaxChars, autoCompress, importanceThreshold)
        named = {name: value for name, value in zip(SETTINGS, given, strict=True) if value is not None}
        changes = {**(changes or {}), **named}
        texts = self.texts
        if not changes:
            return texts.settings(_read_settings(self.manager))
        wanted: dict[str, Any] = {}
        for name, value in changes.items():
            ours = SETTINGS.get(name, name)
            if ours not in SETTINGS.values():
                return texts("no_such_setting", name=str(name)[:80], known=", ".join(SETTINGS))
            problem = _check_setting(ours, value, texts)
            if problem:
                return problem
            wanted[ours] = value
        try:
            self.manager.configure(**wanted)
        except ConfigError as error:
            return str(error)
        listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in wanted.items())
        return f"{texts('changed', listed=listed)}\n{texts.settings(_read_settings(self.manager))}"

    def context_summary(self, limit: int = 3) -> str:
        """Read the newest summaries of what was compressed, also those that a newer one replaced.

        Args:
            limit: how many, newest first.
        """
        texts = self.texts
        found = self.manager.summaries(self.session_id, max(1, min(SUMMARIES_MAX, limit)))
        return texts.summaries(found) if found else texts("no_summaries")

    def context_recall(self, query: str, limit: int = 5) -> str:
        """Search everything ever said in this session, also what is no longer in view.

        Args:
            query: a few words, a name, a number or a path, as exact as you know it.
            limit: how many passages at most.
        """
        texts = self.texts
        if not query.strip():
            return texts("empty_query")
        most = max(1, min(RECALL_MAX, limit))
        try:
            found = self.manager.recall(self.session_id, query[:2_000], most, tokens_max=RECALL_TOKENS)
        except LedgerError:
            return texts("nothing_yet")
        return (
            texts.recalled(query, found, session_id=self.session_id)
            if found
            else texts("not_recalled", query=query[:80])
        )

    def context_expand(self, handle: str, offset: int = 0, limit: int = PAGE_CHARS) -> str:
        """Read the exact original behind a handle such as m:4f2a91c3, page by page.

        Args:
            handle: the handle as shown in a placeholder or a search result.
            offset: the first character to read.
            limit: how many characters.
        """
        texts = self.texts
        start, most = max(0, offset), max(1, min(PAGE_CHARS_MAX, limit))
        try:
            # One more than the page, to know whether there is another.
            text = self.manager.expand(self.session_id, handle, start, most + 1)
        except (HandleUnknown, LedgerError) as error:
            return texts("unknown_handle", why=describe_error(error, texts.language))
        if not text:
            return texts("past_the_end", handle=handle[:80], offset=start)
        return texts.page(handle[:80], text[:most], start, has_more=len(text) > most)

    def context_pin(self, handle: str) -> str:
        """Keep the message behind a handle from ever being compressed.

        Args:
            handle: the handle of a message, such as m:4f2a91c3.
        """
        texts = self.texts
        try:
            pinned = self.manager.pin(self.session_id, handle)
        except (HandleUnknown, LedgerError) as error:
            return texts("unknown_handle", why=describe_error(error, texts.language))
        return texts("pinned", handle=handle[:80], count=len(pinned))

    @property
    def texts(self) -> Texts:
        """Our sentences in the language of the conversation."""
        return Texts(self.find_language())

    def find_language(self) -> Language:
        """Return the language of the conversation as a whole, unless the settings name one."""
        return self.manager.find_language(self.session_id)


def _read_settings(manager: ContextCompressionManager) -> dict[str, object]:
    return {name: getattr(manager.config, ours) for name, ours in SETTINGS.items()}


def _check_setting(name: str, value: object, texts: Texts) -> str:
    if name == "auto_compress":
        return "" if isinstance(value, bool) else texts("wrong_value", name=name, allowed="true, false")
    low, high = _BOUNDS[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and low <= float(value) <= high:  # type: ignore[arg-type]
        return ""
    return texts("wrong_value", name=name, allowed=f"{low:,g}–{high:,g}")


_SUMMARY_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences in one language: ``texts("page", handle=…)``."""

    language: Language

    def __call__(self, key: str, **values: object) -> str:
        return tr(f"tool.{key}", self.language, **values)

    def explain(self, key: str, reason: Reason, **values: object) -> str:
        """Return a text that names a reason as ``why``."""
        return self(key, why=say(reason, self.language), **values)

    def status(self, now: SessionStatus, settings: Mapping[str, object]) -> str:
        """Return a session's status: room, next compression, configuration and statistics."""
        ahead = now.ahead.tell(self.language) + ("。" if self.language == "zh" else ".")
        lines = [
            self("context", now=now),
            self("in_view", now=now),
            self.explain("stopped", now.stopped) if now.stopped else f"{ahead[0].upper()}{ahead[1:]}",
            self("configuration", listed=self._list(settings)),
            self("statistics", now=now),
        ]
        return "\n".join(lines)

    def _list(self, settings: Mapping[str, object]) -> str:
        given = {name: value for name, value in settings.items() if value is not None}
        shown = {name: self(_show(one)) if isinstance(one, bool) else _show(one) for name, one in given.items()}
        return ("，" if self.language == "zh" else ", ").join(f"{self(name)} {one}" for name, one in shown.items())

    def settings(self, values: Mapping[str, object]) -> str:
        return "\n".join([self("settings"), *(f"{name}: {_show(value)}" for name, value in values.items())])

    def compressed(self, done: CompactResult, before: int) -> str:
        stages = describe_steps(((one.stage, one.tokens_freed) for one in done.stages if one.edits), self.language)
        gone = self("deleted", count=len(done.deleted_files)) if done.deleted_files else ""
        return self("compressed", done=done, before=before, after=len(done.messages), stages=stages, gone=gone)

    def summaries(self, found: Sequence[ContextSummary]) -> str:
        pieces = []
        for one in found:
            first, last = one.turn_range
            body = one.content if len(one.content) <= _SUMMARY_CHARS else f"{one.content[:_SUMMARY_CHARS]}…"
            key = ("turn" if first == last else "turns") + ("" if one.is_in_force else "_replaced")
            pieces.append(f"{self(key, first=first, last=last)}\n{body}")
        return "\n\n".join(pieces)

    def recalled(
        self, query: str, found: Sequence[Recalled], reader: str = "context_expand(handle)", session_id: str = ""
    ) -> str:
        """Return passages that were found, each with its handle; those of relatives say where they were said.

        ``reader`` is the call that reads on, ``session_id`` the session that is searched.
        """
        pieces = [self("recalled", count=len(found), query=query[:80], reader=reader)]
        for one in found:
            where = "" if one.session_id in ("", session_id) else f" ({one.session_id.rpartition('/')[2][:60]})"
            pieces.append("\n".join(f"⟨{said.handle}⟩ {said.role}{where}\n{said.text}" for said in one.said))
        return "\n\n".join(pieces)

    def page(self, handle: str, text: str, offset: int, *, has_more: bool) -> str:
        stop = offset + len(text)
        head = self("page", handle=handle.strip("⟨⟩"), start=offset, stop=stop)
        return f"{head}{self('more', stop=stop) if has_more else self('end')}\n{text}"


def _show(value: object) -> str:
    return "—" if value is None else json.dumps(value)
