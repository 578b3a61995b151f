"""Texts of the daily pages."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "memory.title": ("Memory", "记忆"),
    "memory.intro": (
        "One page a day: what was archived, summed up for people. Also in the folder memory of the workspace.",
        "每天一页：为人撰写的归档摘要。也保存在工作区的 memory 文件夹中。",
    ),
    "memory.days": ("Days", "日期"),
    "memory.empty": ("No page was written yet", "还没有记忆页"),
    "memory.empty_next": (
        "The first compression that archives messages writes the page of its day.",
        "第一次归档消息的压缩会写入当天的页面。",
    ),
    "memory.none": ("There is no page of {date}.", "没有 {date} 的页面。"),
    "memory.older": ("Show {count:,} older entries", "显示更早的 {count:,} 条"),
    "memory.entries": ("{count:,} entries", "{count:,} 条"),
    "memory.operator": (
        "Daily pages tell of every session, so only the operator sees them. Recall finds what your own sessions said.",
        "每日页面涉及所有会话，仅管理员可见。可以用“查找”搜索自己会话的内容。",
    ),
    "memory.recall": ("Go to recall", "前往查找"),
}
