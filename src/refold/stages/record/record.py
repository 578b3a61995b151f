"""Writing a record: the state of the work, the story of a span and its exact values, within a budget of tokens.

One room policy (``SHARES``): the state first, then the words of people, then a lead of every step, then what is worth
most for its cost; exact values that the text does not have get a part that is set aside for them. Everything is read
from originals, never from an earlier record, so repeated folds lose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refold.conversation.message import Message, fold_handle, mark
from refold.conversation.reason import Language
from refold.conversation.view import Artifact, Fact, FoldRecord
from refold.reading.state import State
from refold.stages.extract.layout import (
    Layout,
    SeenText,
    close_frame,
    neutralise,
    open_frame,
    repeats,
    shorten_handle,
    wrap_prefix,
    wrap_record,
)
from refold.stages.extract.steer import Wish, read_wish, steer_lines, steer_values
from refold.stages.extract.summary import Extract, ExtractOptions
from refold.stages.record.frame import INDEX_TITLES, cut_text
from refold.stages.record.lines import Count, RecordLine, choose_leads, choose_lines, estimate_costs, write_lines
from refold.stages.record.now import list_state
from refold.stages.record.story import ReadMessage, is_talk, list_lines
from refold.stages.record.values import choose_values, find_artifacts
from refold.stages.task import TASK_SHARE, cut_task

# The full frame takes about 90 tokens: a record of fewer than this many has one short line in its place.
FRAME_TOKENS_MIN = 700
# Below so many characters a full frame would take most of a bounded summary.
SMALL_CHARS = 1_200
# A record of fewer tokens has no room for a story: exact values tell more.
SMALL_TOKENS, SMALL_VALUES_SHARE = 400, 0.2
HEADING_TOKENS = 6
# What briefs of the state may take beside its share: at least so many tokens, in a large record this share.
BRIEFS_TOKENS_MIN, BRIEFS_SHARE = 40, 0.2
KEY_POINTS_MAX, KEY_POINT_CHARS = 5, 160
SHORT_LINES_MAX = 5
TRUNCATED_CHARS = 100
# In a summary bounded by characters exact values take what the words leave of it, and at least this share.
BOUNDED_INDEX_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class RoomShares:
    """How the room of a record is shared: parts of the whole record.

    ``state`` is the most that the state may take, ``asked`` the most for the words of people, ``values`` what is set
    aside for exact values, ``leads`` the share of the rest for a lead of every step.
    """

    state: float
    asked: float
    values: float
    leads: float


# An agent that works depends on its state and values; a chat on its words.
WORK = RoomShares(state=0.4, asked=0.2, values=0.12, leads=0.6)
TALK = RoomShares(state=0.3, asked=0.0, values=0.08, leads=0.0)


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """A span as it was read: its messages with their events, and the state of the whole conversation.

    ``whole`` is the conversation around it. ``seen`` is what stays in view and ``seen_positions`` where: neither is
    written again. ``secrets`` never are.
    """

    read: Sequence[ReadMessage]
    state: State
    language: Language = "en"
    seen: str = ""
    seen_positions: frozenset[int] = frozenset()
    secrets: frozenset[str] = frozenset()
    facts: tuple[Fact, ...] = ()
    whole: Sequence[ReadMessage] = ()

    @property
    def messages(self) -> list[Message]:
        """The originals."""
        return [one.message for one in self.read]

    @property
    def positions(self) -> frozenset[int]:
        """The positions of the messages in the conversation."""
        return frozenset(one.at for one in self.read)


def write_record(span: ReadSpan, options: ExtractOptions, count: Count) -> Extract:
    """Write the record of a span."""
    artifacts = find_artifacts(span.whole or span.read, span.read, span.secrets)
    fold = FoldRecord(
        handle=fold_handle(span.messages),
        summary="",
        facts=span.facts,
        artifacts=tuple(artifacts),
        turn_range=options.turn_range,
        is_current=options.with_state,
    )
    lines = list_lines(span.read, span.language)
    fold = replace(fold, key_points=_find_key_points(span, lines))
    options.check()
    opening, closing = _make_frame(options, fold.handle, span)
    wrap = wrap_prefix if options.opening else wrap_record
    focus = read_wish(options.instructions)
    if options.whole_chars_max:
        chars = options.whole_chars_max - len(opening) - len(closing) - 2
        task = quote_task(span, options, max(0, chars), len)
        chars = max(0, chars)
        body = _write_bounded(span, lines, chars, focus=focus, artifacts=artifacts, task=task)
        return Extract(replace(fold, summary=body), wrap(body, opening, closing))
    writer = _RecordWriter(span, lines, options, count, focus=focus, artifacts=artifacts)
    room = options.tokens_max - count(f"{opening}\n\n{closing}\n")
    body = text = ""
    # Estimates do not add up exactly; a text over its limit is written again with less room, at most a few times.
    for _ in range(8):
        options.check()
        body = writer.write(room) if room > 0 else ""
        text = wrap(body, opening, closing)
        size = count(text)
        if size <= options.tokens_max or not body:
            break
        room -= max(size - options.tokens_max, room // 10, 1)
    return Extract(replace(fold, summary=body), text)


class _RecordWriter:
    """Writes the body of one record for as much room as there is."""

    def __init__(
        self,
        span: ReadSpan,
        lines: Sequence[RecordLine],
        options: ExtractOptions,
        count: Count,
        *,
        focus: Wish,
        artifacts: Sequence[Artifact],
    ) -> None:
        self.span, self.options, self.count = span, options, count
        self.artifacts = steer_values(artifacts, focus)
        self.layout: Layout = "sections" if options.style == "sections" else "note"
        self.is_talk = is_talk(span.read)
        self.shares = TALK if self.is_talk else WORK
        seen = SeenText(span.seen)
        state = (
            list_state(span.state, span.language, self._is_elsewhere, is_talk=self.is_talk)
            if options.with_state
            else []
        )
        self.state = steer_lines(state, focus)
        self.lines = steer_lines([line for line in lines if not (line.who and repeats(line.text, seen))], focus)
        self.costs = estimate_costs([*self.state, *self.lines], count)

    def _is_elsewhere(self, position: int) -> bool:
        """Return whether a message is in view, so that its entries need no line."""
        return position in self.span.seen_positions

    def write(self, room: int) -> str:
        """Return the body within so many tokens."""
        task = quote_task(self.span, self.options, room, self.count)
        if self.options.style == "truncated":
            return _write_truncated(self.span.messages, room, self.count, task)
        share = max(self.shares.values, SMALL_VALUES_SHARE if room < SMALL_TOKENS and not self.is_talk else 0.0)
        values_max = min(self.options.index_tokens_max, int(room * share))
        wanted = choose_values(self.artifacts, values_max, self.count, self.span.language, seen=self.span.seen)
        reserved = self.count(wanted) + HEADING_TOKENS if wanted else 0
        body = self._write_words(room - reserved, task)
        left = min(values_max, room - self.count(body) - HEADING_TOKENS)
        body = self._add_values(body, left)
        # Small talk has nothing that is worth a line; its first words still say more than an empty record.
        return body or _write_truncated(self.span.messages, room, self.count, task)

    def _write_words(self, room: int, task: RecordLine | None) -> str:
        chosen: list[RecordLine] = [task] if task else []
        if task:
            self.costs[id(task)] = self.count(f"{task.written}\n")
        chosen += self._choose_state(room)
        quoted = {line.text for line in chosen}
        stated = self.span.state.task.quote.position if task and self.span.state.task else -1
        lines = [line for line in self.lines if line.text not in quoted and (line.who != "U" or line.at != stated)]
        left = room - self._cost(chosen)
        asked = [line for line in lines if line.who == "U"]
        chosen += choose_lines(asked, min(left, int(room * self.shares.asked)), self.costs, written=chosen)
        lines = _leave_out(lines, chosen)
        left = room - self._cost(chosen)
        leads, lines = choose_leads(lines, int(left * self.shares.leads), self.costs)
        self.costs.update(estimate_costs(leads, self.count))
        left -= self._cost(leads)
        chosen += leads
        chosen += choose_lines(lines, left, self.costs, written=chosen)
        return write_lines(chosen, self.layout, self.span.language)

    def _choose_state(self, room: int) -> list[RecordLine]:
        """Return the lines of the state; a change or an act for which there is no room is written in brief."""
        chosen = choose_lines(self.state, int(room * self.shares.state), self.costs)
        left = _leave_out(self.state, chosen)
        briefs = [replace(line, text=line.brief, brief="") for line in left if line.brief]
        self.costs.update(estimate_costs(briefs, self.count))
        room = min(room - self._cost(chosen), max(BRIEFS_TOKENS_MIN, int(room * BRIEFS_SHARE)))
        return chosen + choose_lines(briefs, room, self.costs, written=chosen)

    def _cost(self, lines: Sequence[RecordLine]) -> int:
        return sum(self.costs[id(line)] for line in lines)

    def _add_values(self, body: str, room: int) -> str:
        seen = f"{self.span.seen}\n{body}"
        index = choose_values(self.artifacts, room, self.count, self.span.language, seen=seen)
        return f"{body}\n## {INDEX_TITLES[self.span.language]}\n{index}".lstrip("\n") if index else body


def _leave_out(lines: Sequence[RecordLine], chosen: Sequence[RecordLine]) -> list[RecordLine]:
    taken = set(map(id, chosen))
    return [line for line in lines if id(line) not in taken]


def _make_frame(options: ExtractOptions, handle: str, span: ReadSpan) -> tuple[str, str]:
    """Return the first and the last line; beside a record that explains itself a short one is enough."""
    if options.opening:
        return options.opening, f"{options.closing}\n{mark(handle)}" if options.closing else mark(handle)
    small = options.is_small or close_frame(language=span.language) in span.seen
    size, turns = len(span.read), options.turn_range
    opening = open_frame(count=size, turns=turns, handle=handle, language=span.language, is_small=small)
    return opening, close_frame(language=span.language, is_small=small)


def quote_task(span: ReadSpan, options: ExtractOptions, room: int, count: Count) -> RecordLine | None:
    """Return the task as a line, whole or with its ends, if nothing that stays in view states it."""
    task = span.state.task if options.states_task else None
    if task is None or task.quote.position not in span.positions:
        return None
    text, most = task.quote.text, int(room * TASK_SHARE)
    if count(text) > most:
        handle = shorten_handle(task.quote.handle)
        text = cut_task(text, most, handle=handle, count=count, language=span.language)
    # Lines after the first are set in, so that no line of the text can pass for a heading or another's words.
    lines = [neutralise(line.strip()) for line in text.splitlines() if line.strip()]
    return RecordLine("wanted", "\n  ".join(lines), 1.0, -1, "U", handle=task.quote.handle, is_firm=True)


def _write_bounded(
    span: ReadSpan,
    lines: Sequence[RecordLine],
    chars_max: int,
    *,
    focus: Wish,
    artifacts: Sequence[Artifact],
    task: RecordLine | None,
) -> str:
    """Write words, then exact values, in ``chars_max`` characters as a whole."""
    state = list_state(span.state, span.language, lambda at: at in span.seen_positions)
    lines = steer_lines([*state, *lines], focus)
    room = int(chars_max * (1 - BOUNDED_INDEX_SHARE)) if artifacts else chars_max
    body = _write_short(lines, room - len(task.written) - 1 if task else room)
    body = f"{task.written}\n{body}".strip() if task else body
    body = body or _write_truncated(span.messages, chars_max, len, None)
    title = f"## {INDEX_TITLES[span.language]}"
    left = chars_max - len(f"{body}\n{title}\n")
    index = choose_values(steer_values(artifacts, focus), left, len, span.language, seen=f"{span.seen}\n{body}")
    return f"{body}\n{title}\n{index}".lstrip("\n") if index else body


def _write_short(lines: Sequence[RecordLine], chars_max: int) -> str:
    """Write the few best lines without headings, whole, within a limit of characters; else the best one, cut."""
    best = sorted(lines, key=lambda line: -line.worth)
    kept: list[RecordLine] = []
    room = chars_max
    for line in best:
        if len(kept) < SHORT_LINES_MAX and len(line.written) < room and line.text not in {one.text for one in kept}:
            kept.append(line)
            room -= len(line.written) + 1
    if not kept and best:
        return cut_text(best[0].written, max(20, chars_max - 20), best[0].handle)
    return "\n".join(line.written for line in sorted(kept, key=lambda line: (line.at, line.start)))


def _write_truncated(messages: Sequence[Message], room: int, count: Count, task: RecordLine | None) -> str:
    """Write the task and the first characters of each message, newest kept if they do not all fit."""
    room -= count(f"{task.written}\n") if task else 0
    lines: list[str] = []
    for message in reversed(messages):
        text = " ".join(part.text for part in message.parts if part.kind in ("text", "call", "result"))
        line = neutralise(f"{message.role}: {' '.join(text[:400].split())[:TRUNCATED_CHARS]}")
        room -= count(f"{line}\n")
        if room < 0:
            break
        lines.append(line)
    return "\n".join([*([task.written] if task else []), *reversed(lines)])


def _find_key_points(span: ReadSpan, lines: Sequence[RecordLine]) -> tuple[str, ...]:
    """Return a few short lines that name what a span was about: the first ask, decisions, the last conclusion."""
    asked = [line for line in lines if line.who == "U"][:1]
    held = [belief.quote.text for belief in span.state.beliefs if belief.quote.position in span.positions][-3:]
    last = [line for line in lines if line.who == "A"][-1:]
    points = [*(line.text for line in asked), *held, *(line.text for line in last)]
    return tuple(dict.fromkeys(point[:KEY_POINT_CHARS] for point in points if point))[:KEY_POINTS_MAX]
