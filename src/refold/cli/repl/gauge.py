"""How full the context is, as one line and as a breakdown. Pure functions of a status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.cli.words import find_language, tr
from refold.conversation import because
from refold.conversation.view import Item
from refold.manager.status import SessionStatus

CELLS = 5
FULL, EMPTY = "▰", "▱"


def write_gauge(status: SessionStatus, cells: int = CELLS) -> str:
    """Return the gauge: ``▰▰▰▰▱ 81 % · 78k/128k · compresses at 96,000 tokens; 17,920 tokens to go``.

    The bar is the way to the next compression; where none is automatic, to the end of the room.
    """
    is_ahead = bool(status.ahead.limits) and not status.stopped
    share = status.ahead.nearest.share if is_ahead else status.tokens / max(1, status.hard)
    filled = max(0, min(cells, round(share * cells)))
    bar = FULL * filled + EMPTY * (cells - filled)
    parts = [f"{bar} {share * 100:.0f} %", f"{shorten_tokens(status.tokens)}/{shorten_tokens(status.hard)}"]
    if status.stopped:
        parts.append(
            tr("automatic compression is off")
            if status.stopped.is_a(because.AUTO_OFF)
            else tr("automatic compression has stopped")
        )
    else:
        parts.append(status.ahead.tell(find_language()))
    return " · ".join(parts)


def shorten_tokens(tokens: int) -> str:
    """Return a short form of a number of tokens: 940, 7.8k, 128k, 1.05M."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1_000:.1f}k"
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.2f}M"


@dataclass(frozen=True, slots=True)
class ContextShare:
    """One row of the breakdown."""

    name: str
    tokens: int
    messages: int = 0


def break_down(items: Sequence[Item], status: SessionStatus, system_tokens: int) -> list[ContextShare]:
    """Return the tokens of a context by kind; they add up to ``status.tokens``, and with *free* to the room."""
    tokens = dict.fromkeys(("user", "assistant", "tool output", "folds", "system"), 0)
    counts = dict.fromkeys(tokens, 0)
    for item in items:
        name = _name_item(item)
        tokens[name] += item.tokens
        counts[name] += 1
    fixed = max(0, status.tokens - sum(tokens.values()))
    system = min(fixed, system_tokens)
    rows = [
        ContextShare("system prompt", system + tokens.pop("system"), counts.pop("system")),
        ContextShare("tools", fixed - system),
        *(ContextShare(name, tokens[name], counts[name]) for name in tokens),
    ]
    return [*rows, ContextShare("free", max(0, status.hard - status.tokens))]


def _name_item(item: Item) -> str:
    if item.is_fold:
        return "folds"
    if item.role == "tool" or any(part.kind == "result" for part in item.parts):
        return "tool output"
    return item.role if item.role in ("user", "assistant", "system") else "system"
