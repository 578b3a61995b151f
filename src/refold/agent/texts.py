"""The answers of the context tools in English and Chinese. Pure formatting: the figures are passed in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refold.conversation.reason import Language, count_things, say
from refold.manager.compress import CompactResult
from refold.manager.status import SessionStatus
from refold.memory import ContextSummary

_SUMMARY_CHARS = 4_000


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
        saved = now.folded_away
        listed = ", ".join(f"{name} {'—' if value is None else json.dumps(value)}" for name, value in values.items())
        hidden = now.messages - now.messages_in_view
        return [
            self._say(f"Configuration: {listed}.", f"配置：{listed}。"),
            self._say(
                f"Statistics: {count_things(now.messages, 'message')}, {max(0, hidden):,} compressed, "
                f"{saved:,} tokens saved.",
                f"统计：总消息数 {now.messages:,}，已压缩 {max(0, hidden):,} 条，节省 {saved:,} tokens。",
            ),
        ]

    def status(self, now: SessionStatus, values: Mapping[str, object]) -> str:
        """Return a session's status: room, next compression, configuration and statistics."""
        share = f"{now.share:.0%}".replace("%", " %")
        lines = [
            self._say(
                f"Context: {now.tokens:,} of {now.hard:,} tokens ({share}; window {now.window:,}).",
                f"上下文：{now.tokens:,} / {now.hard:,} tokens（{share}，窗口 {now.window:,}）。",
            ),
            self._say(
                f"In view: {now.messages_in_view:,} of {count_things(now.messages, 'message')}, "
                f"{count_things(now.turns, 'turn')}; {now.tokens_original:,} tokens in all, "
                f"{count_things(now.compression_count, 'compression')}, {now.pinned:,} pinned.",
                f"可见：{now.messages:,} 条消息中的 {now.messages_in_view:,} 条，{now.turns:,} 轮；"
                f"原文共 {now.tokens_original:,} tokens，已压缩 {now.compression_count:,} 次，固定 {now.pinned:,} 条。",
            ),
        ]
        if now.stopped:
            lines.append(
                self._say(f"Automatic compression does not run: {now.stopped}.", f"自动压缩未运行：{now.stopped}。")
            )
        else:
            told = now.ahead.tell(self.language)
            lines.append(f"{told[0].upper()}{told[1:]}{self._say('.', '。')}")
        lines += self._list_figures(now, values)
        return "\n".join(lines)

    def compressed(self, done: CompactResult, messages_before: int) -> str:
        """Return the result of a compression."""
        after = len(done.messages)
        fewer = self._say(f"{messages_before:,} → {after:,} messages, ", f"{messages_before:,} → {after:,} 条消息，")
        stages = ", ".join(f"{one.stage} {tell_change(one.tokens_freed)}" for one in done.stages if one.edits)
        files = len(done.deleted_files)
        gone = self._say(f" {count_things(files, 'file')} deleted.", f"删除文件 {files:,} 个。") if files else ""
        return self._say(
            f"Compressed: {fewer}{done.previous_tokens:,} → {done.current_tokens:,} tokens, "
            f"{done.freed_tokens:,} freed ({stages}). {count_things(done.preserved_count, 'message')} unchanged.{gone} "
            f"Originals: context_recall, context_expand.",
            f"压缩完成：{fewer}{done.previous_tokens:,} → {done.current_tokens:,} tokens，释放 {done.freed_tokens:,}"
            f"（{stages}）。"
            f"{done.preserved_count:,} 条消息未变。{gone}原文可用 context_recall、context_expand 取回。",
        )

    def not_compressed(self, done: CompactResult) -> str:
        """Return that nothing was done."""
        return self._say(
            f"Nothing was compressed ({done.reason}): {done.current_tokens:,} tokens as before.",
            f"没有可压缩的内容（{say(done.reason, 'zh')}）：仍为 {done.current_tokens:,} tokens。",
        )

    def settings(self, values: Mapping[str, object]) -> str:
        """Return the current settings."""
        lines = [f"{name}: {'—' if value is None else json.dumps(value)}" for name, value in values.items()]
        return "\n".join([self._say("Settings of compression:", "压缩设置："), *lines])

    def changed(self, wanted: Mapping[str, object], values: Mapping[str, object]) -> str:
        """Return what was set."""
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

    def recalled(self, query: str, found: Sequence[tuple[str, str, str]]) -> str:
        """Return passages that were found, each with its handle."""
        head = self._say(
            f"{count_things(len(found), 'passage')} for {query[:80]!r}; "
            "context_expand(handle) gives the whole original.",
            f"“{query[:80]}”共 {len(found):,} 段；context_expand(handle) 可读全文。",
        )
        return "\n\n".join([head, *(f"⟨{handle}⟩ {role}\n{text}" for handle, role, text in found)])

    def not_recalled(self, query: str) -> str:
        """Return that nothing was found; the answer tells the model to stop searching."""
        return self._say(
            f"Nothing in this session mentions {query[:80]!r}. The same search again finds nothing either.",
            f"本会话中没有提到“{query[:80]}”。重复同样的查询也不会有结果。",
        )

    def page(self, handle: str, text: str, offset: int, *, has_more: bool) -> str:
        """Return a page of an original."""
        stop = offset + len(text)
        more = self._say(f"; go on with offset={stop}", f"；继续请用 offset={stop}")
        end = self._say("; this is the end", "；已到结尾")
        head = self._say(
            f"⟨{handle.strip('⟨⟩')}⟩ characters {offset}–{stop}", f"⟨{handle.strip('⟨⟩')}⟩ 第 {offset}–{stop} 字符"
        )
        return f"{head}{more if has_more else end}\n{text}"

    def past_the_end(self, handle: str, offset: int) -> str:
        """Return that an offset is behind the end."""
        return self._say(f"{handle} ends before character {offset}.", f"{handle} 在第 {offset} 字符之前已结束。")

    def unknown_handle(self, handle: str, why: str) -> str:
        """Return why a handle was not found."""
        return self._say(f"Not found: {why}", f"找不到 {handle}：{why}")

    def pinned(self, handle: str, count: int) -> str:
        """Return that a message is pinned."""
        return self._say(
            f"{handle} is pinned and will not be compressed; {count_things(count, 'message')} pinned now.",
            f"{handle} 已固定，不会被压缩；现共固定 {count:,} 条。",
        )


def tell_change(freed: int) -> str:
    """Return a change in size: ``−2,046``, or ``+8`` if the summary is longer than its source."""
    return f"−{freed:,}" if freed >= 0 else f"+{-freed:,}"


_ENGLISH, _CHINESE = Texts("en"), Texts("zh")


def texts_in(language: Language) -> Texts:
    """Return the sentences in a language."""
    return _CHINESE if language == "zh" else _ENGLISH
