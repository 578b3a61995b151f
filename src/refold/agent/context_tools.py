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
from refold.conversation.reason import Language, Reason, fill_template, say
from refold.errors import ConfigError, HandleUnknown, LedgerError
from refold.manager import ContextCompressionManager
from refold.manager.compress import CompactResult
from refold.manager.status import SessionStatus
from refold.memory import SETTINGS, ContextSummary

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
        return [make_tool(method) for method in self.list_methods()]

    def list_shared(self) -> list[Tool]:
        """Return the tools that integrations offer: those that a model needs to get back what left its view."""
        shared = (self.context_recall, self.context_expand, self.context_status, self.context_compress)
        return [make_tool(method) for method in shared]

    def list_methods(self) -> list[Callable[..., Any]]:
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
            return texts("nothing_yet")
        return texts.status(now, _read_settings(self.manager))

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
        """Read the newest summaries of what was compressed.

        Args:
            limit: how many, newest last.
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
        passages = [(one.handle, one.role, one.text) for one in found]
        return texts.recalled(query, passages) if passages else texts("not_recalled", query=query[:80])

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
            return texts("unknown_handle", handle=handle[:80], why=str(error))
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
            return texts("unknown_handle", handle=handle[:80], why=str(error))
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
_LABELS = {
    "maxTurns": "最大轮数",
    "keepRecent": "保留最近轮数",
    "maxToolOutput": "工具输出字符上限",
    "summaryMaxChars": "摘要字符上限",
    "autoCompress": "自动压缩",
    "importanceThreshold": "重要性阈值",
}
# Every text in English and Chinese. ``{count:count message}`` is a figure with its noun in the right number.
_TEXTS: dict[str, tuple[str, str]] = {
    "nothing_yet": ("This session has no messages yet.", "本会话还没有消息。"),
    "no_summaries": ("Nothing has been compressed yet: there are no summaries.", "还没有压缩过，没有摘要。"),
    "empty_query": ("The query is empty; give a few words to look for.", "查询为空，请给出要查找的词。"),
    "no_room": (
        "There is no room in the context for more of the originals in this turn. Answer with what you have.",
        "本轮的上下文里没有空间再显示更多原文。请用已有的内容作答。",
    ),
    "one_at_a_time": ("Too many calls in one answer; ask again for this one.", "一次回答中的调用太多，请单独再查。"),
    "nothing_to_compress": ("Nothing to compress.", "无需压缩。"),
    "compress_failed": ("Compression failed, history unchanged: {why}.", "压缩失败，保持原历史不变：{why}。"),
    "not_compressed": (
        "Nothing was compressed ({why}): {tokens:,} tokens as before.",
        "未压缩（{why}）：仍为 {tokens:,} 词元。",
    ),
    "compressed": (
        "Compressed: {before:,} → {after:,} messages, {done.previous_tokens:,} → {done.current_tokens:,} tokens, "
        "{done.freed_tokens:,} freed ({stages}). {done.preserved_count:count message} unchanged.{gone} "
        "Originals: context_recall, context_expand.",
        "压缩完成：{before:,} → {after:,} 条消息，{done.previous_tokens:,} → {done.current_tokens:,} 词元，"
        "释放 {done.freed_tokens:,}（{stages}）。{done.preserved_count:,} 条消息未变。{gone}"
        "原文可用 context_recall、context_expand 取回。",
    ),
    "deleted": (" {count:count file} deleted.", "删除文件 {count:,} 个。"),
    "context": (
        "Context: {now.tokens:,} of {now.hard:,} tokens ({now.share:.0%}; window {now.window:,}).",
        "上下文：{now.tokens:,} / {now.hard:,} 词元（{now.share:.0%}，窗口 {now.window:,}）。",
    ),
    "in_view": (
        "In view: {now.messages_in_view:,} of {now.messages:count message}, {now.turns:count turn}; "
        "{now.tokens_original:,} tokens in all, {now.compression_count:count compression}, {now.pinned:,} pinned.",
        "可见：{now.messages:,} 条消息中的 {now.messages_in_view:,} 条，{now.turns:,} 轮；"
        "原文共 {now.tokens_original:,} 词元，已压缩 {now.compression_count:,} 次，固定 {now.pinned:,} 条。",
    ),
    "stopped": ("Automatic compression does not run: {why}.", "自动压缩未运行：{why}。"),
    "configuration": ("Configuration: {listed}.", "配置：{listed}。"),
    "statistics": (
        "Statistics: {now.messages:count message}, {now.messages_folded:,} compressed, "
        "{now.folded_away:,} tokens folded away.",
        "统计：总消息数 {now.messages:,}，已压缩 {now.messages_folded:,} 条，已折叠 {now.folded_away:,} 词元。",
    ),
    "settings": ("Settings of compression:", "压缩设置："),
    "changed": (
        "Set {listed}; kept in .compression/config.json.",
        "已设置 {listed}，保存于 .compression/config.json。",
    ),
    "no_such_setting": (
        "There is no setting {name!r} to change here; there are {known}.",
        "没有可更改的设置 {name!r}；可用：{known}。",
    ),
    "wrong_value": ("{name} was not changed; it takes {allowed}.", "{name} 未更改；允许的值：{allowed}。"),
    "turns": ("[turns {first}–{last}]", "[第 {first}–{last} 轮]"),
    "recalled": (
        "{count:count passage} for {query!r}; {reader} gives the whole original.",
        "“{query}”共 {count:,} 段；{reader} 可读全文。",
    ),
    # A model that is not told so searches again and again.
    "not_recalled": (
        "Nothing in this session mentions {query!r}. The same search again finds nothing either.",
        "本会话中没有提到“{query}”。重复同样的查询也不会有结果。",
    ),
    "page": ("⟨{handle}⟩ characters {start}–{stop}", "⟨{handle}⟩ 第 {start}–{stop} 字符"),
    "more": ("; continue with offset={stop}", "；继续请用 offset={stop}"),
    "end": ("; this is the end", "；已到结尾"),
    "past_the_end": ("{handle} ends before character {offset}.", "{handle} 在第 {offset} 字符之前已结束。"),
    "unknown_handle": ("Not found: {why}", "找不到 {handle}：{why}"),
    "pinned": (
        "{handle} is pinned and will not be compressed; {count:count message} pinned now.",
        "{handle} 已固定，不会被压缩；现共固定 {count:,} 条。",
    ),
}


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences in one language: ``texts("page", handle=…)``."""

    language: Language

    def __call__(self, key: str, **values: object) -> str:
        return fill_template(_TEXTS[key][self.language == "zh"], values)

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
        if self.language == "en":
            return ", ".join(f"{name} {_show(value)}" for name, value in settings.items())
        words = {True: "开启", False: "关闭"}
        shown = {name: words[one] if isinstance(one, bool) else _show(one) for name, one in settings.items()}
        return "，".join(f"{_LABELS[name]} {one}" for name, one in shown.items())

    def settings(self, values: Mapping[str, object]) -> str:
        return "\n".join([self("settings"), *(f"{name}: {_show(value)}" for name, value in values.items())])

    def compressed(self, done: CompactResult, before: int) -> str:
        stages = ", ".join(f"{one.stage} {tell_change(one.tokens_freed)}" for one in done.stages if one.edits)
        gone = self("deleted", count=len(done.deleted_files)) if done.deleted_files else ""
        return self("compressed", done=done, before=before, after=len(done.messages), stages=stages, gone=gone)

    def summaries(self, found: Sequence[ContextSummary]) -> str:
        pieces = []
        for one in found:
            first, last = one.turn_range
            body = one.content if len(one.content) <= _SUMMARY_CHARS else f"{one.content[:_SUMMARY_CHARS]}…"
            pieces.append(f"{self('turns', first=first, last=last)}\n{body}")
        return "\n\n".join(pieces)

    def recalled(
        self, query: str, found: Sequence[tuple[str, str, str]], reader: str = "context_expand(handle)"
    ) -> str:
        """Return passages that were found, each with its handle; ``reader`` is the call that reads on."""
        head = self("recalled", count=len(found), query=query[:80], reader=reader)
        return "\n\n".join([head, *(f"⟨{handle}⟩ {role}\n{text}" for handle, role, text in found)])

    def page(self, handle: str, text: str, offset: int, *, has_more: bool) -> str:
        stop = offset + len(text)
        head = self("page", handle=handle.strip("⟨⟩"), start=offset, stop=stop)
        return f"{head}{self('more', stop=stop) if has_more else self('end')}\n{text}"


def _show(value: object) -> str:
    return "—" if value is None else json.dumps(value)


def tell_change(freed: int) -> str:
    """Return a change in size: ``−2,046``, or ``+8`` if the summary is longer than its source."""
    return f"−{freed:,}" if freed >= 0 else f"+{-freed:,}"
