"""The summary without a model: what a span said and did, extracted by rules, within a budget of tokens.

Anchored: an earlier fold's facts and artifacts are carried on, and the words behind it are read from the originals,
never from the earlier summary's text, so nothing wears away from fold to fold. Everything written is verbatim or
stands in the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from refold.conversation.edit import Artifact, Fact, Fold
from refold.conversation.handle import fold_handle, mark
from refold.conversation.language import Language
from refold.conversation.message import Message
from refold.stages.extract.actions import find_actions, first_line
from refold.stages.extract.artifacts import find_artifacts, merge_artifacts
from refold.stages.extract.facts import find_facts, merge_facts
from refold.stages.extract.frame import SMALL_TOKENS, close_frame, neutralise, open_frame, wrap_prefix, wrap_record
from refold.stages.extract.index import write_index
from refold.stages.extract.pieces import Span, make_pieces
from refold.stages.extract.sections import Piece, choose_pieces, write_sections
from refold.stages.extract.steer import read_wish, steer_pieces, steer_values
from refold.stages.extract.words import find_pending, find_rules, find_sayings

Count = Callable[[str], int]
Style = Literal["sections", "short", "truncated"]

# Words must have their part too, however small the budget.
INDEX_SHARE_MAX = 0.8
# Rules and the open ask come before any value.
VITAL_RANK = 1.0
# In a small record nothing but rules, open asks and the newest decision comes before values, within half of it.
SMALL_RANK = 1.45
SMALL_WORDS_SHARE = 0.5
HEADING_TOKENS = 8
KEY_POINTS_MAX = 5
KEY_POINT_CHARS = 160
SHORT_PIECES_MAX = 5
TRUNCATED_CHARS = 100
_INDEX_TITLE = {"en": "## Exact values", "zh": "## 精确值"}


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    """How a summary is written. ``chars_max`` of 0 sets no limit in characters; ``opening`` of "" is the full frame.

    ``words_share`` is how much of the room the words may take where the index does not need its own; ``instructions``
    say what a person wants kept. ``closing`` is a sentence below the summary, before the handle.
    """

    tokens_max: int = 4_000
    index_tokens_max: int = 1_500
    style: Style = "sections"
    opening: str = ""
    closing: str = ""
    chars_max: int = 0
    words_share: float = 1.0
    instructions: str = ""
    turn_range: tuple[int, int] = (0, 0)

    @property
    def is_small(self) -> bool:
        """True if there is room for rules, the open ask and exact values only."""
        return not self.opening and self.tokens_max < SMALL_TOKENS


@dataclass(frozen=True, slots=True)
class Extract:
    """A fold and the text that stands in the view for it."""

    fold: Fold
    text: str


def extract_summary(
    messages: Sequence[Message],
    previous: Sequence[Fold],
    options: ExtractOptions,
    count: Count,
    *,
    language: Language = "en",
    known: frozenset[str] = frozenset(),
    seen: str = "",
    secrets: frozenset[str] = frozenset(),
) -> Extract:
    """Return the summary of ``messages``; those with ids in ``known`` are behind the ``previous`` folds.

    ``seen`` is what stays in view: exact values that it shows are not written again. ``secrets`` never are.
    """
    fresh = [message for message in messages if message.id not in known]
    span = read_span(messages, fresh, previous, language)
    carried = [artifact for fold in previous for artifact in fold.artifacts]
    fold = Fold(
        handle=fold_handle(messages),
        summary="",
        facts=tuple(span.facts),
        artifacts=tuple(_leave_secrets(merge_artifacts(carried, find_artifacts(fresh)), secrets)),
        key_points=_find_key_points(span),
        turn_range=options.turn_range,
        by="extract",
    )
    return write_extract(fold, span, options, count, seen=seen)


def _leave_secrets(artifacts: list[Artifact], secrets: frozenset[str]) -> list[Artifact]:
    """Leave out values that are a secret, a piece of one, or hold one."""
    if not secrets:
        return artifacts
    whole = "\n".join(secrets)
    return [one for one in artifacts if one.value not in whole and not any(secret in one.value for secret in secrets)]


def write_extract(
    fold: Fold, span: Span, options: ExtractOptions, count: Count, *, seen: str = "", words: str | None = None
) -> Extract:
    """Write a fold's text within its budget; ``words`` are a model's own, in the place of the extracted sections."""
    opening, closing = _make_frame(options, len(span.messages), fold.handle, span.language)
    room = options.tokens_max - count(f"{opening}\n\n{closing}\n")
    body = text = ""
    # Counts do not add up exactly; a text over its limit is written again with less room, at most a few times.
    for _ in range(8):
        body = _write_body(fold, span, options, room, count, seen, words)
        text = wrap_prefix(body, opening, closing) if options.opening else wrap_record(body, opening, closing)
        size = count(text)
        if size <= options.tokens_max or not body or words is not None:
            break
        room -= max(size - options.tokens_max, room // 10, 1)
    return Extract(replace(fold, summary=body), text)


def read_span(whole: Sequence[Message], fresh: Sequence[Message], previous: Sequence[Fold], language: Language) -> Span:
    """Read what was said and done in a span: words from all originals, facts from the new ones and earlier folds."""
    asks = find_sayings(whole, "user")
    replies = find_sayings(whole, "assistant")
    said = sorted((*find_sayings(fresh, "user"), *find_sayings(fresh, "assistant")), key=lambda one: one.at)
    carried: list[Fact] = [fact for fold in previous for fact in fold.facts]
    return Span(
        messages=whole,
        asks=asks,
        replies=replies,
        rules=find_rules(asks),
        pending=find_pending(whole, asks),
        actions=find_actions(whole),
        facts=merge_facts(carried, find_facts(said)),
        language=language,
    )


def _make_frame(options: ExtractOptions, size: int, handle: str, language: Language) -> tuple[str, str]:
    if options.opening:
        return options.opening, f"{options.closing}\n{mark(handle)}" if options.closing else mark(handle)
    small = options.is_small
    opening = open_frame(count=size, turns=options.turn_range, handle=handle, language=language, is_small=small)
    return opening, close_frame(language=language, is_small=small)


def _write_body(
    fold: Fold, span: Span, options: ExtractOptions, room: int, count: Count, seen: str, words: str | None
) -> str:
    if room <= 0 and words is None:
        return ""
    if options.style == "truncated" and words is None:
        return _write_truncated(span.messages, room, count)
    wish = read_wish(options.instructions)
    pieces = steer_pieces(make_pieces(span), (*span.asks, *span.replies), wish) if words is None else []
    values = steer_values(fold.artifacts, wish)
    rank, words_share, index_share = VITAL_RANK, INDEX_SHARE_MAX, INDEX_SHARE_MAX
    if is_small := options.is_small and options.style == "sections":
        rank, words_share, index_share = SMALL_RANK, SMALL_WORDS_SHARE, 1.0
    vital = [piece for piece in pieces if piece.rank <= rank]
    spoken = sum(count(f"{piece.text}\n") + HEADING_TOKENS for piece in vital)
    left = room - min(spoken, int(room * words_share))
    index_max = max(0, min(options.index_tokens_max, int(room * index_share), left))
    first = vital if is_small else pieces
    body = _write_words(first, span, options, room - index_max, count) if words is None else neutralise(words.strip())
    title = _INDEX_TITLE[span.language]
    room_left = index_max if words is not None else min(index_max, room - count(f"{body}\n{title}\n"))
    if room_left <= 0:
        return body
    index = write_index(values, room_left, count, seen=f"{seen}\n{body}", language=span.language)
    needed = count(f"{title}\n{index.text}\n")
    if words is None and needed < index_max - HEADING_TOKENS:
        # Few values: what the index leaves of its room is for the words, within their share.
        words_max = max(room - index_max, min(room - needed, int(room * options.words_share)))
        body = _write_words(pieces, span, options, words_max, count)
        index = write_index(values, needed, count, seen=f"{seen}\n{body}", language=span.language)
    return f"{body}\n{title}\n{neutralise(index.text)}".lstrip("\n") if index.text else body


def _write_words(pieces: Sequence[Piece], span: Span, options: ExtractOptions, room: int, count: Count) -> str:
    chosen = choose_pieces(pieces, room, count, language=span.language)
    return (
        _write_short(chosen, options.chars_max) if options.style == "short" else write_sections(chosen, span.language)
    )


def _write_short(chosen: Sequence[Piece], chars_max: int) -> str:
    """Write the few best pieces without headings, within a limit of characters."""
    best = sorted(chosen, key=lambda one: one.rank)[:SHORT_PIECES_MAX]
    text = "\n".join(piece.text for piece in sorted(best, key=lambda one: (one.order, one.rank)))
    if not chars_max or len(text) <= chars_max:
        return text
    kept = text[:chars_max]
    border = max(kept.rfind("\n"), kept.rfind(" "), kept.rfind("。") + 1)
    return kept[:border] if border > chars_max // 2 else kept


def _write_truncated(messages: Sequence[Message], room: int, count: Count) -> str:
    """Write the first characters of each message, newest kept if they do not all fit."""
    lines: list[str] = []
    for message in reversed(messages):
        text = " ".join(part.text for part in message.parts if part.kind in ("text", "call", "result"))
        line = neutralise(f"{message.role}: {' '.join(text[:400].split())[:TRUNCATED_CHARS]}")
        room -= count(f"{line}\n")
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _find_key_points(span: Span) -> tuple[str, ...]:
    """Return a few short lines that name what a span was about: the first ask, decisions, the last conclusion."""
    points = [first_line(span.asks[0].text, KEY_POINT_CHARS)] if span.asks else []
    points += [fact.text[:KEY_POINT_CHARS] for fact in span.facts if fact.kind == "decision"][-3:]
    points += [first_line(span.replies[-1].text, KEY_POINT_CHARS)] if span.replies else []
    return tuple(dict.fromkeys(point for point in points if point))[:KEY_POINTS_MAX]
