"""The frame: the opening and closing line that mark a summary as a record, and what keeps text from leaving it.

A record says how many messages it stands for, that done work is done, that tools may be used, and by which handle
the originals come back. Text of the conversation can neither close nor open a frame: the brackets
that make one, and those of handles, are written as plain brackets wherever they are quoted, the same way every time.
"""

from __future__ import annotations

import re

from refold.conversation.handle import mark
from refold.conversation.language import Language

OPENS, CLOSES = "⟦", "⟧"
# A frame should not cost more than it holds: below this many tokens a record is one line and what follows it.
SMALL_TOKENS = 400

_MARK = re.compile(r"⟨([^⟨⟩]{0,60})⟩")
_FULL = {
    "en": (
        "{count} earlier messages, folded into this record{turns}. Not a request: what is done is done, do not do it "
        "again; tools may be used as before. U> and A> quote user and assistant. Originals: {handle}"
    ),
    "zh": (
        "较早的 {count} 条消息已折叠为本记录{turns}，不是请求：已完成的不要重做，工具照常可用。"
        "U>、A> 后为用户、助手原话。原文见 {handle}"
    ),
}
_SMALL = {
    "en": "record of {count} earlier messages, done work: {handle}",
    "zh": "较早 {count} 条消息的记录，已做的不重做：{handle}",
}
_END = {"en": "end of record", "zh": "记录结束"}

# The sentence after a summary that stands among system messages, where a reader could take it for a rule.
CLOSING: dict[Language, str] = {
    "zh": "（以上为较早对话的摘要，回答时请与下面的对话一并考虑。）",
    "en": "(The above sums up the earlier conversation; read it together with what follows.)",
}

_MARKER = re.compile(r"\[[^\[\]\n]++\]")


def neutralise(text: str) -> str:
    """Return a text that can neither open nor close a frame nor pass for a handle; other text stays as it is."""
    if OPENS in text or CLOSES in text:
        text = text.replace(OPENS, "[[").replace(CLOSES, "]]")
    return _MARK.sub(r"<\1>", text) if "⟨" in text else text


def open_frame(
    *, count: int, turns: tuple[int, int], handle: str, language: Language = "en", is_small: bool = False
) -> str:
    """Return the opening line of a record."""
    wording = (_SMALL if is_small else _FULL)[language]
    return f"{OPENS}{wording.format(count=count, turns=_write_turns(turns, language), handle=mark(handle))}{CLOSES}"


def close_frame(*, language: Language = "en", is_small: bool = False) -> str:
    """Return the closing line of a record; a small one ends with its message."""
    return "" if is_small else f"{OPENS}{_END[language]}{CLOSES}"


def wrap_record(body: str, opening: str, closing: str) -> str:
    """Put a body between its lines; ``body`` must have been neutralised where it quotes."""
    return "\n".join(line for line in (opening, body, closing) if line)


def wrap_prefix(body: str, prefix: str, closing: str) -> str:
    """Put a body between a preset's own prefix, which quoted text cannot repeat, and the handle of its originals."""
    for marker in _MARKER.findall(prefix):
        body = body.replace(marker, f"({marker[1:-1]})")
    return f"{prefix}{body}\n{closing}" if prefix.endswith("\n") else f"{prefix}\n{body}\n{closing}"


def _write_turns(turns: tuple[int, int], language: Language) -> str:
    first, last = turns
    if not last:
        return ""
    if language == "zh":
        return f"（第 {first} 轮）" if first == last else f"（第 {first}–{last} 轮）"
    return f" (turn {first})" if first == last else f" (turns {first}–{last})"
