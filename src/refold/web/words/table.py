"""Texts of tables."""

from __future__ import annotations

from refold.web.words import Words

WORDS: Words = {
    "table.shown": ("{first:,} to {last:,} of {total:,}", "第 {first:,}–{last:,} 条，共 {total:,} 条"),
    "table.before": ("Previous page", "上一页"),
    "table.after": ("Next page", "下一页"),
}
