"""The context tools: an agent inspects and manages its own context. Used by agents, the REPL and MCP.

Answers are short, exact and in the conversation's language, and name the next step if there is one. The answer to an
unknown handle tells the model to stop searching. Only settings that cannot break a session can be changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from refold.agent.texts import Texts, texts_in
from refold.agent.tools import Tool, make_tool
from refold.conversation.reason import Language
from refold.errors import ConfigError, HandleUnknown, LedgerError
from refold.manager import ContextCompressionManager
from refold.memory import SETTINGS

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
        """Return the tools for an agent."""
        return [make_tool(method) for method in self.list_methods()]

    def list_shared(self) -> list[Tool]:
        """Return the tools that integrations offer: those that a model needs to get back what left its view."""
        shared = (self.context_recall, self.context_expand, self.context_status, self.context_compress)
        return [make_tool(method) for method in shared]

    def list_methods(self) -> list[Callable[..., Any]]:
        """Return the functions behind the tools."""
        return [
            self.context_status,
            self.context_compress,
            self.context_config,
            self.context_summary,
            self.context_recall,
            self.context_expand,
            self.context_pin,
        ]

    def context_status(self) -> str:
        """Show how full your context is: tokens, window, turns, compressions, and when it compresses next."""
        texts = self.texts
        try:
            now = self.manager.status(self.session_id)
        except LedgerError:
            return texts.nothing_yet
        return texts.status(now, _read_settings(self.manager))

    async def context_compress(self, instructions: str = "") -> str:
        """Compress your context now. Nothing is lost: older content stays reachable by recall and expand.

        Args:
            instructions: what to keep in view above all, in a sentence; may be empty.
        """
        texts = self.texts
        if self.manager.ledger.read_session(self.session_id) is None:
            return texts.nothing_to_compress
        before = len(await asyncio.to_thread(self.manager.read_view, self.session_id))
        try:
            done = await self.manager.compress_async(self.session_id, instructions[:4_000], by_tool=True)
        except LedgerError as error:
            return str(error)
        if not done.success:
            return texts.compress_failed(done)
        if done.freed_tokens == 0 and not any(stage.edits for stage in done.stages):
            return texts.not_compressed(done)
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
                return texts.no_such_setting(str(name)[:80], list(SETTINGS))
            problem = _check_setting(ours, value, texts)
            if problem:
                return problem
            wanted[ours] = value
        try:
            self.manager.configure(**wanted)
        except ConfigError as error:
            return str(error)
        return texts.changed(wanted, _read_settings(self.manager))

    def context_summary(self, limit: int = 3) -> str:
        """Read the newest summaries of what was compressed.

        Args:
            limit: how many, newest last.
        """
        texts = self.texts
        found = self.manager.summaries(self.session_id, max(1, min(SUMMARIES_MAX, limit)))
        return texts.summaries(found) if found else texts.no_summaries

    def context_recall(self, query: str, limit: int = 5) -> str:
        """Search everything ever said in this session, also what is no longer in view.

        Args:
            query: a few words, a name, a number or a path, as exact as you know it.
            limit: how many passages at most.
        """
        texts = self.texts
        if not query.strip():
            return texts.empty_query
        most = max(1, min(RECALL_MAX, limit))
        try:
            found = self.manager.recall(self.session_id, query[:2_000], most, tokens_max=RECALL_TOKENS)
        except LedgerError:
            return texts.nothing_yet
        passages = [(one.handle, one.role, one.text) for one in found]
        return texts.recalled(query, passages) if passages else texts.not_recalled(query)

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
            return texts.unknown_handle(handle[:80], str(error))
        if not text:
            return texts.past_the_end(handle[:80], start)
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
            return texts.unknown_handle(handle[:80], str(error))
        return texts.pinned(handle[:80], len(pinned))

    @property
    def texts(self) -> Texts:
        """Our sentences in the language of the conversation."""
        return texts_in(self.find_language())

    def find_language(self) -> Language:
        """Return the language of the conversation as a whole, unless the settings name one."""
        return self.manager.find_language(self.session_id)


def _read_settings(manager: ContextCompressionManager) -> dict[str, object]:
    return {name: getattr(manager.config, ours) for name, ours in SETTINGS.items()}


def _check_setting(name: str, value: object, texts: Texts) -> str:
    if name == "auto_compress":
        return "" if isinstance(value, bool) else texts.wrong_value(name, "true, false")
    low, high = _BOUNDS[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and low <= float(value) <= high:  # type: ignore[arg-type]
        return ""
    return texts.wrong_value(name, f"{low:,g}–{high:,g}")
