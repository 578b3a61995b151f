"""Reasons in Chinese: why something was compressed, put off or cut. The record has them as English sentences.

Each pair is a sentence as the code makes it, and the same in Chinese: ``{n}`` stands for a figure, ``{t}`` for other
words (a reason within a reason is translated too), ``(s)`` for a plural. A reason that is not here, such as one of a
plugin or of a provider, stays as it came. A test reads the code for reasons and fails when one has no Chinese.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import count

from refold.web.words import Tongue

REASON_CHARS_MAX = 600
_DEPTH_MAX = 3
_SLOTS = {"{n}": r"(\d[\d,.]*%?)", "{t}": r"(.+)", "(s)": "s?"}

REASONS: tuple[tuple[str, str], ...] = (
    # When to act.
    ("{n} tokens are over the limit of {n}", "{n} 词元超过上限 {n}"),
    ("{n} tokens reach the soft limit of {n}", "{n} 词元达到软上限 {n}"),
    ("{n} tokens; compression begins at {n}", "{n} 词元；从 {n} 开始压缩"),
    ("{n} messages reach threshold_rounds {n}", "{n} 条消息达到 threshold_rounds {n}"),
    ("{n} tokens reach threshold_tokens {n}", "{n} 词元达到 threshold_tokens {n}"),
    ("{n} turns are more than max_turns {n}", "{n} 轮超过 max_turns {n}"),
    ("the provider reported {n} tokens, {n} of the window", "服务商报告 {n} 词元，占窗口的 {n}"),
    ("above {n} tokens every request costs {n} times as much", "超过 {n} 词元后每次请求的费用为 {n} 倍"),
    ("the cache has been cold for {n} min: changing it now costs nothing", "缓存已失效 {n} 分钟：此时修改没有代价"),
    (
        "carrying {n} removable tokens has cost {n} in {n} request(s), removing them costs {n}",
        "携带 {n} 个可移除词元已花费 {n}（{n} 次请求），移除它们需花费 {n}",
    ),
    ("waited: removing {n} tokens breaks even in {n} request(s)", "暂缓：移除 {n} 词元要到 {n} 次请求后才划算"),
    ("the provider refused the last request as too long", "服务商以过长为由拒绝了上一次请求"),
    ("the last answer was cut off: finish reason length", "上一次回答因长度限制被截断"),
    ("a person asked for it", "手动要求"),
    ("it fits: nothing to do", "未超出预算：无需处理"),
    # What holds it back.
    ("automatic compression is off", "自动压缩已关闭"),
    ("automatic compression is off: {t}", "自动压缩已关闭：{t}"),
    ("automatic compression is off, but {t}: it had to be done", "自动压缩已关闭，但{t}：必须执行"),
    (
        "automatic compression has stopped: {n} in a row did not help ({t}); compress by hand, use another model or "
        "change the settings to start it again",
        "自动压缩已停止：连续 {n} 次没有效果（{t}）；手动压缩、更换模型或修改设置即可恢复",
    ),
    ("{n} compressions in a row did not help: {t}", "连续 {n} 次压缩没有效果：{t}"),
    ("{n} tokens in {n} messages are left", "仍剩 {n} 词元，共 {n} 条消息"),
    ("nothing to compress", "没有可压缩的内容"),
    ("nothing is left that could be compressed", "已没有可压缩的内容"),
    ("another process is compressing this session", "另一个进程正在压缩此会话"),
    ("vetoed: {t}", "已被否决：{t}"),
    ("{t}: a summary is being prepared in the background", "{t}：正在后台准备摘要"),
    ("a message was pinned meanwhile", "其间有消息被固定"),
    ("edits were made or undone meanwhile", "其间有修改被执行或撤销"),
    ("the record refuses {t}", "记录拒绝了{t}"),
    ("a compression of {n} messages by {n} edits ({t})", "对 {n} 条消息的压缩，共 {n} 处修改（{t}）"),
    ("what it rests on seems unchanged", "其依据似乎没有变化"),
    ("with the answer the context would not be small enough", "采用该回答后上下文仍不够小"),
    ("failed open: {t}", "压缩失败，原样放行：{t}"),
    # What was done to one message.
    ("even the newest step alone does not fit", "仅最新一步就已放不下"),
    ("too large for the budget even alone: {n} tokens", "单独一条就超出预算：{n} 词元"),
    ("no room for thinking", "没有空间留给思考内容"),
    ("a newer result says the same", "较新的结果内容相同"),
    ("a newer message says the same", "较新的消息内容相同"),
    ("{n} characters said in {n}, nothing lost", "{n} 字符缩写为 {n}，没有丢失内容"),
    ("old units folded", "较早的内容已折叠"),
    ("old observation", "较早的工具输出"),
    ("old large tool result", "较早的大型工具结果"),
    ("thinking before the newest step", "最新一步之前的思考"),
    ("says nothing", "没有内容"),
    ("output of {n} characters is over its limit; {n} are shown", "输出共 {n} 字符，超过上限；显示其中 {n}"),
    ("over the limit: only the newest part stays", "超过上限：只保留最新部分"),
    ("added below the newest user message", "已附在最新的用户消息之后"),
    ("taken back: there is no room for it", "已撤回：没有空间"),
    ("tuned: {t}", "已调整：{t}"),
)


def say_reason(tongue: Tongue, reason: str) -> str:
    """Return a reason of the record in a language."""
    reason = reason[:REASON_CHARS_MAX]
    return _translate(reason, 0) if tongue == "zh" else reason


def _translate(reason: str, depth: int) -> str:
    if depth > _DEPTH_MAX:
        return reason
    for pattern, chinese in _list_patterns():
        found = pattern.fullmatch(reason)
        if found is not None:
            return _fill(chinese, [_translate(value, depth + 1) for value in found.groups()])
    return reason


def _fill(chinese: str, values: list[str]) -> str:
    number = count()
    return re.sub(r"\{[nt]\}", lambda _: values[next(number)], chinese)


@cache
def _list_patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return every pair as a pattern; those with words of others in them come last, because they match the most."""
    patterns = []
    for english, chinese in sorted(REASONS, key=lambda pair: "{t}" in pair[0]):
        pieces = re.split(r"(\{n\}|\{t\}|\(s\))", english)
        written = "".join(_SLOTS.get(piece, re.escape(piece)) for piece in pieces)
        patterns.append((re.compile(written, re.S), chinese))
    return patterns
