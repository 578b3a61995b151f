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
from refold.conversation.reason import Language, count_things, say
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
        return Texts(self.find_language())

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


_SUMMARY_CHARS = 4_000
_LABELS = {
    "maxTurns": "最大轮数",
    "keepRecent": "保留最近轮数",
    "maxToolOutput": "工具输出字符上限",
    "summaryMaxChars": "摘要字符上限",
    "autoCompress": "自动压缩",
    "importanceThreshold": "重要性阈值",
}


def _show(value: object, *, is_chinese: bool = False) -> str:
    if is_chinese and isinstance(value, bool):
        return "开启" if value else "关闭"
    return "—" if value is None else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences in one language."""

    language: Language

    def _say(self, english: str, chinese: str) -> str:
        return chinese if self.language == "zh" else english

    @property
    def nothing_yet(self) -> str:
        return self._say("This session has no messages yet.", "本会话还没有消息。")

    @property
    def no_summaries(self) -> str:
        return self._say("Nothing has been compressed yet: there are no summaries.", "还没有压缩过，没有摘要。")

    @property
    def empty_query(self) -> str:
        return self._say("The query is empty; give a few words to look for.", "查询为空，请给出要查找的词。")

    @property
    def no_room(self) -> str:
        return self._say(
            "There is no room in the context for more of the originals in this turn. Answer with what you have.",
            "本轮的上下文里没有空间再显示更多原文。请用已有的内容作答。",
        )

    @property
    def one_at_a_time(self) -> str:
        return self._say("Too many calls in one answer; ask again for this one.", "一次回答中的调用太多，请单独再查。")

    @property
    def nothing_to_compress(self) -> str:
        return self._say("Nothing to compress.", "无需压缩。")

    def compress_failed(self, done: CompactResult) -> str:
        """Return that a compression failed and changed nothing."""
        return self._say(
            f"Compression failed, history unchanged: {done.reason}.",
            f"压缩失败，保持原历史不变：{say(done.reason, 'zh')}。",
        )

    def _list_figures(self, now: SessionStatus, values: Mapping[str, object]) -> list[str]:
        """Return configuration and statistics, one per line."""
        listed = ", ".join(f"{name} {_show(value)}" for name, value in values.items())
        zh = "，".join(f"{_LABELS[name]} {_show(value, is_chinese=True)}" for name, value in values.items())
        figures = f"{now.messages_folded:,} compressed, {now.folded_away:,} tokens folded away."
        return [
            self._say(f"Configuration: {listed}.", f"配置：{zh}。"),
            self._say(
                f"Statistics: {count_things(now.messages, 'message')}, {figures}",
                f"统计：总消息数 {now.messages:,}，已压缩 {now.messages_folded:,} 条，"
                f"已折叠 {now.folded_away:,} 词元。",
            ),
        ]

    def status(self, now: SessionStatus, values: Mapping[str, object]) -> str:
        """Return a session's status: room, next compression, configuration and statistics."""
        share = f"{now.share:.0%}"
        lines = [
            self._say(
                f"Context: {now.tokens:,} of {now.hard:,} tokens ({share}; window {now.window:,}).",
                f"上下文：{now.tokens:,} / {now.hard:,} 词元（{share}，窗口 {now.window:,}）。",
            ),
            self._say(
                f"In view: {now.messages_in_view:,} of {count_things(now.messages, 'message')}, "
                f"{count_things(now.turns, 'turn')}; {now.tokens_original:,} tokens in all, "
                f"{count_things(now.compression_count, 'compression')}, {now.pinned:,} pinned.",
                f"可见：{now.messages:,} 条消息中的 {now.messages_in_view:,} 条，{now.turns:,} 轮；"
                f"原文共 {now.tokens_original:,} 词元，已压缩 {now.compression_count:,} 次，固定 {now.pinned:,} 条。",
            ),
        ]
        if now.stopped:
            why = say(now.stopped, self.language)
            lines.append(self._say(f"Automatic compression does not run: {why}.", f"自动压缩未运行：{why}。"))
        else:
            told = now.ahead.tell(self.language)
            lines.append(f"{told[0].upper()}{told[1:]}{self._say('.', '。')}")
        lines += self._list_figures(now, values)
        return "\n".join(lines)

    def compressed(self, done: CompactResult, messages_before: int) -> str:
        after = len(done.messages)
        fewer = self._say(f"{messages_before:,} → {after:,} messages, ", f"{messages_before:,} → {after:,} 条消息，")
        stages = ", ".join(f"{one.stage} {tell_change(one.tokens_freed)}" for one in done.stages if one.edits)
        files = len(done.deleted_files)
        gone = self._say(f" {count_things(files, 'file')} deleted.", f"删除文件 {files:,} 个。") if files else ""
        return self._say(
            f"Compressed: {fewer}{done.previous_tokens:,} → {done.current_tokens:,} tokens, "
            f"{done.freed_tokens:,} freed ({stages}). {count_things(done.preserved_count, 'message')} unchanged.{gone} "
            f"Originals: context_recall, context_expand.",
            f"压缩完成：{fewer}{done.previous_tokens:,} → {done.current_tokens:,} 词元，释放 {done.freed_tokens:,}"
            f"（{stages}）。"
            f"{done.preserved_count:,} 条消息未变。{gone}原文可用 context_recall、context_expand 取回。",
        )

    def not_compressed(self, done: CompactResult) -> str:
        return self._say(
            f"Nothing was compressed ({done.reason}): {done.current_tokens:,} tokens as before.",
            f"未压缩（{say(done.reason, 'zh')}）：仍为 {done.current_tokens:,} 词元。",
        )

    def settings(self, values: Mapping[str, object]) -> str:
        lines = [f"{name}: {_show(value)}" for name, value in values.items()]
        return "\n".join([self._say("Settings of compression:", "压缩设置："), *lines])

    def changed(self, wanted: Mapping[str, object], values: Mapping[str, object]) -> str:
        told = ", ".join(f"{name} = {json.dumps(value)}" for name, value in wanted.items())
        head = self._say(
            f"Set {told}; kept in .compression/config.json.", f"已设置 {told}，保存于 .compression/config.json。"
        )
        return f"{head}\n{self.settings(values)}"

    def no_such_setting(self, name: str, known: Sequence[str]) -> str:
        """Return which settings there are."""
        return self._say(
            f"There is no setting {name!r} to change here; there are {', '.join(known)}.",
            f"没有可更改的设置 {name!r}；可用：{'、'.join(known)}。",
        )

    def wrong_value(self, name: str, allowed: str) -> str:
        """Return which values a setting takes."""
        return self._say(f"{name} was not changed; it takes {allowed}.", f"{name} 未更改；允许的值：{allowed}。")

    def summaries(self, found: Sequence[ContextSummary]) -> str:
        """Return summaries, oldest first."""
        pieces = []
        for one in found:
            first, last = one.turn_range
            head = self._say(f"[turns {first}–{last}]", f"[第 {first}–{last} 轮]")
            body = one.content if len(one.content) <= _SUMMARY_CHARS else f"{one.content[:_SUMMARY_CHARS]}…"
            pieces.append(f"{head}\n{body}")
        return "\n\n".join(pieces)

    def recalled(
        self, query: str, found: Sequence[tuple[str, str, str]], reader: str = "context_expand(handle)"
    ) -> str:
        """Return passages that were found, each with its handle; ``reader`` is the call that reads on."""
        head = self._say(
            f"{count_things(len(found), 'passage')} for {query[:80]!r}; {reader} gives the whole original.",
            f"“{query[:80]}”共 {len(found):,} 段；{reader} 可读全文。",
        )
        return "\n\n".join([head, *(f"⟨{handle}⟩ {role}\n{text}" for handle, role, text in found)])

    def not_recalled(self, query: str) -> str:
        """Return that nothing was found; the answer tells the model to stop searching."""
        return self._say(
            f"Nothing in this session mentions {query[:80]!r}. The same search again finds nothing either.",
            f"本会话中没有提到“{query[:80]}”。重复同样的查询也不会有结果。",
        )

    def page(self, handle: str, text: str, offset: int, *, has_more: bool) -> str:
        stop = offset + len(text)
        more = self._say(f"; continue with offset={stop}", f"；继续请用 offset={stop}")
        end = self._say("; this is the end", "；已到结尾")
        head = self._say(
            f"⟨{handle.strip('⟨⟩')}⟩ characters {offset}–{stop}", f"⟨{handle.strip('⟨⟩')}⟩ 第 {offset}–{stop} 字符"
        )
        return f"{head}{more if has_more else end}\n{text}"

    def past_the_end(self, handle: str, offset: int) -> str:
        return self._say(f"{handle} ends before character {offset}.", f"{handle} 在第 {offset} 字符之前已结束。")

    def unknown_handle(self, handle: str, why: str) -> str:
        """Return why a handle was not found."""
        return self._say(f"Not found: {why}", f"找不到 {handle}：{why}")

    def pinned(self, handle: str, count: int) -> str:
        return self._say(
            f"{handle} is pinned and will not be compressed; {count_things(count, 'message')} pinned now.",
            f"{handle} 已固定，不会被压缩；现共固定 {count:,} 条。",
        )


def tell_change(freed: int) -> str:
    """Return a change in size: ``−2,046``, or ``+8`` if the summary is longer than its source."""
    return f"−{freed:,}" if freed >= 0 else f"+{-freed:,}"
