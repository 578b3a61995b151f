"""Writing a record: the state of the work, the story of a span and its exact values, within a budget of tokens.

One room policy (``SHARES``): the state first, then the words of people, then a lead of every step, then what is worth
most for its cost; exact values that the text does not have get a part that is set aside for them. Everything is read
from originals, never from an earlier record, so repeated folds lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Literal

from refold.conversation.message import Message, fold_handle, mark
from refold.conversation.reason import Language
from refold.conversation.view import Artifact, Fact, FoldRecord
from refold.reading.events import CallOutcome, Utterance
from refold.reading.state import State
from refold.reading.weights import Evidence
from refold.stages.record.frame import (
    INDEX_TITLES,
    Layout,
    close_frame,
    neutralise,
    open_frame,
    shorten_handle,
    shorten_words,
    wrap_prefix,
    wrap_record,
)
from refold.stages.record.lines import (
    Count,
    RecordLine,
    SeenText,
    choose_leads,
    choose_lines,
    end_line,
    estimate_costs,
    shape_line,
    write_lines,
)
from refold.stages.record.now import list_state
from refold.stages.record.sought import choose_sought
from refold.stages.record.steer import read_focus, steer_lines, steer_values
from refold.stages.record.story import ReadMessage, is_talk, list_lines
from refold.stages.record.values import choose_values, find_artifacts, list_runs
from refold.stages.stage import check_nothing
from refold.stages.task import TASK_SHARE, cut_task

Style = Literal["note", "sections", "short", "truncated"]

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
# A short summary has so many lines, and as many more as say what a person wants from now on.
SHORT_LINES_MAX, STANDING_LINES_MAX = 5, 20
# A line worth less than this part of the best one is not in a short summary, even if there is room.
SHORT_WORTH_SHARE = 0.4
TRUNCATED_CHARS = 100
LEFT_OUT = {"en": "[{count:,} of the messages are left out here]", "zh": "[另有 {count:,} 条消息未在此列出]"}
# In a summary bounded by characters exact values take what the words leave of it, and at least this share.
BOUNDED_INDEX_SHARE = 0.3
# A person's own words before a model's note.
ASKED_SHARE = 0.25


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
WORK = RoomShares(state=0.4, asked=0.4, values=0.12, leads=0.6)
TALK = RoomShares(state=0.3, asked=0.0, values=0.08, leads=0.0)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of a record. ``opening`` of "" is the full frame.

    ``chars_max`` of 0 sets no limit in characters; a short summary keeps to it as a whole, frame and handle included.
    ``instructions`` say what a person wants kept. ``closing`` is a sentence below the record, before the handle. With
    ``states_task`` the task comes first, whole as far as it fits. Without ``with_state`` a later record says how things
    are now. ``check`` is called between passes and raises OutOfTime when the work has taken too long.
    """

    tokens_max: int = 4_000
    index_tokens_max: int = 1_500
    style: Style = "note"
    opening: str = ""
    closing: str = ""
    chars_max: int = 0
    instructions: str = ""
    turn_range: tuple[int, int] = (0, 0)
    states_task: bool = False
    with_state: bool = True
    check: Callable[[], None] = field(default=check_nothing, repr=False, compare=False)

    @property
    def is_small(self) -> bool:
        """True if a full frame would take too much of the room."""
        return not self.opening and (self.tokens_max < FRAME_TOKENS_MIN or 0 < self.whole_chars_max < SMALL_CHARS)

    @property
    def whole_chars_max(self) -> int:
        """The most characters that the whole text may have; 0 if only tokens count."""
        return self.chars_max if self.style == "short" else 0


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A fold and the text that represents it in the view."""

    fold: FoldRecord
    text: str


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """A span as it was read: its messages with their events, and the state of the whole conversation.

    ``evidence`` is what the conversation shows of its values. ``seen`` is what stays in view and ``seen_positions``
    where: neither is written again. ``secrets`` never are.
    """

    read: Sequence[ReadMessage]
    state: State
    evidence: Evidence
    language: Language = "en"
    seen: str = ""
    seen_positions: frozenset[int] = frozenset()
    secrets: frozenset[str] = frozenset()
    facts: tuple[Fact, ...] = ()

    @property
    def messages(self) -> list[Message]:
        """The originals."""
        return [one.message for one in self.read]

    @property
    def positions(self) -> frozenset[int]:
        """The positions of the messages in the conversation."""
        return frozenset(one.at for one in self.read)


def write_record(span: ReadSpan, options: RecordOptions, count: Count, words: str | None = None) -> WrittenRecord:
    """Write the record of a span; ``words`` are a model's, in the place of state and story."""
    artifacts = find_artifacts(span.evidence, span.read, span.secrets)
    options.check()
    task = span.state.task
    sought = choose_sought([task.quote.text, *(one.text for one in task.later)]) if task else ()
    lines = list_lines(span.read, span.language, sought)
    fold = FoldRecord(
        handle=fold_handle(span.messages),
        summary="",
        facts=span.facts,
        artifacts=tuple(artifacts),
        key_points=_find_key_points(span, lines),
        turn_range=options.turn_range,
        by="extract" if words is None else "llm",
        is_current=options.with_state,
    )
    options.check()
    opening, closing = _make_frame(options, fold.handle, span)
    wrap = wrap_prefix if options.opening else wrap_record
    # A summary that is bounded by characters is measured in them.
    measure, limit = (len, options.whole_chars_max) if options.whole_chars_max else (count, options.tokens_max)
    writer = _RecordWriter(span, lines, options, measure, artifacts)
    room = limit - measure(f"{opening}\n\n{closing}\n")
    body = text = ""
    # Estimates do not add up exactly; a text over its limit is written again with less room, at most a few times.
    for _ in range(8):
        options.check()
        if words is not None:
            body = writer.write_around(neutralise(words.strip()), room)
        else:
            body = writer.write(room) if room > 0 else ""
        text = wrap(body, opening, closing)
        size = measure(text)
        if size <= limit or not body or (words is not None and not options.whole_chars_max):
            break
        room -= max(size - limit, room // 10, 1)
    return WrittenRecord(replace(fold, summary=body), text)


class _RecordWriter:
    """Writes the body of one record for as much room as there is."""

    def __init__(
        self,
        span: ReadSpan,
        lines: Sequence[RecordLine],
        options: RecordOptions,
        count: Count,
        artifacts: Sequence[Artifact],
    ) -> None:
        self.span, self.options, self.count = span, options, cache(count)  # A body may be written several times.
        focus = read_focus(options.instructions)
        values, view = steer_values(artifacts, focus), (span.seen, list_runs(span.seen))
        self._choose_values = partial(choose_values, values, self.count, span.language, view)
        self.layout: Layout = "sections" if options.style == "sections" else "note"
        self.is_talk = is_talk(span.read)
        self.shares = TALK if self.is_talk else WORK
        seen = SeenText(span.seen)
        is_seen = span.seen_positions.__contains__
        state = list_state(span.state, span.language, is_seen, is_talk=self.is_talk) if options.with_state else []
        self.state = steer_lines(state, focus)
        self.lines = steer_lines([line for line in lines if not (line.who and seen.has_words(line.text))], focus)
        self.costs = estimate_costs([*self.state, *self.lines], count)

    def write(self, room: int) -> str:
        """Return the body within so many tokens, or characters."""
        task = quote_task(self.span, self.options, room, self.count)
        if self.options.style == "truncated":
            return self._write_truncated(room, task)
        values_max = self._count_values(room)
        wanted = self._choose_values(values_max)
        reserved = self.count(wanted) + HEADING_TOKENS if wanted else 0
        write = self._write_short if self.options.style == "short" else self._write_words
        body = write(room - reserved, task)
        left = room - self.count(body) - HEADING_TOKENS
        body = self._add_values(body, left if self.options.whole_chars_max else min(values_max, left))
        # Small talk has nothing that is worth a line; its first words still say more than an empty record.
        return body or self._write_truncated(room, task)

    def write_around(self, words: str, room: int) -> str:
        """Return a model's words, after the person's own and before exact values."""
        if self.options.whole_chars_max:
            return self._add_values(shorten_words(words, room), room - len(words))
        if self.options.style == "note":
            words = "\n".join(filter(None, (self._write_asked(int(room * ASKED_SHARE), words), words)))
        return self._add_values(words, min(self.options.index_tokens_max, room))

    def _write_asked(self, room: int, words: str) -> str:
        """Write rules that hold and what a person said, as far as a model's words do not have it."""
        rules = [line for line in self.state if line.topic == "rule"]
        asked = [replace(line, topic="wanted") for line in self.lines if line.who == "U" and line.text not in words]
        asked = [line for line in asked if line.text not in {rule.text for rule in rules}]
        self.costs.update(estimate_costs(asked, self.count))
        chosen = choose_lines([*(line for line in rules if line.text not in words), *asked], room, self.costs)
        return write_lines(chosen, "note", self.span.language)

    def _count_values(self, room: int) -> int:
        """Return the most that exact values may take."""
        if self.options.style == "short":
            share = BOUNDED_INDEX_SHARE
        else:
            share = max(self.shares.values, SMALL_VALUES_SHARE if room < SMALL_TOKENS and not self.is_talk else 0.0)
        most = room if self.options.whole_chars_max else self.options.index_tokens_max
        return min(most, int(room * share))

    def _write_words(self, room: int, task: RecordLine | None) -> str:
        chosen: list[RecordLine] = [task] if task else []
        if task:
            self.costs[id(task)] = self.count(f"{task.written}\n")
        chosen += self._choose_state(room)
        quoted = {_quoted(line) for line in chosen}
        lines = [line for line in self._leave_task(task) if _quoted(line) not in quoted]
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

    def _leave_task(self, task: RecordLine | None) -> list[RecordLine]:
        """Return the lines of the story without those of the message that is quoted as the task."""
        stated = self.span.state.task.quote.position if task and self.span.state.task else -1
        return [line for line in self.lines if line.who != "U" or line.at != stated]

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
        index = self._choose_values(room, body)
        title = INDEX_TITLES[self.span.language]
        # A summary in plain text gets no heading of markdown.
        title = f"{title}:" if self.options.style == "truncated" else f"## {title}"
        return f"{body}\n{title}\n{index}".lstrip("\n") if index else body

    def _write_short(self, room: int, task: RecordLine | None) -> str:
        """Write the few best lines without headings: whole lines, else whole sentences.

        What a person wants from now on comes first, rules before facts, and does not count as one of the few.
        """
        kept: list[tuple[int, int, str]] = []
        shapes: set[str] = set()
        if task and self.count(task.written) < room:
            kept.append((-1, 0, task.written))
            room -= self.count(f"{task.written}\n")
        held = [fact.text for fact in self.span.facts if fact.kind in ("preference", "key")]
        lines = list({line.text: line for line in (*self._leave_task(task), *self.state)}.values())
        rules = {id(line) for line in lines if line.topic == "rule"}
        standing = rules | {id(line) for line in lines if line.who == "U" and end_line(line.text) in held}
        best = sorted(lines, key=lambda line: (id(line) not in rules, id(line) not in standing, -line.worth))
        most = SHORT_LINES_MAX + min(len(standing), STANDING_LINES_MAX)
        worth_min = SHORT_WORTH_SHARE * max((line.worth for line in best if id(line) not in standing), default=0.0)
        for line in best:
            if len(kept) >= most or (id(line) not in standing and line.worth < worth_min):
                break
            cost = self.count(f"{line.written}\n")
            if cost <= room and (id(line) in rules or shape_line(line.text) not in shapes):
                shapes.add(shape_line(line.text))
                kept.append((line.at, line.start, end_line(line.written)))
                room -= cost
        if not kept and best and room > 0:
            return shorten_words(best[0].written, room)
        return "\n".join(text for *_, text in sorted(kept))

    def _write_truncated(self, room: int, task: RecordLine | None) -> str:
        """Write the first characters of each message: of the task, of standing orders, then of the newest that fit.

        The first line says how many are left out; a line that was cut ends with three dots.
        """
        by_place = {one.at: one for one in self.span.read}
        stated = self.span.state.task.quote.position if task and self.span.state.task else -1
        orders = [rule.quote.position for rule in self.span.state.rules]
        orders += [said.quote.position for said in self.span.state.said if said.kind == "preference"]
        head = LEFT_OUT[self.span.language]
        room -= self.count(f"{head.format(count=len(by_place))}\n")
        lines: dict[int, str] = {}
        for at in dict.fromkeys((stated, *orders, *reversed(by_place))):
            if (one := by_place.get(at)) is None:
                continue
            text = " ".join(part.text for part in one.message.parts if part.kind in ("text", "call", "result"))
            text = " ".join(text.split())
            cut = "..." if len(text) > TRUNCATED_CHARS else ""
            # A tool's result may come in a user's message; its words are not the user's.
            role = "tool" if any(isinstance(event, CallOutcome) for event in one.events) else one.message.role
            line = neutralise(f"[{role}]: {text[:TRUNCATED_CHARS]}{cut}")
            room -= self.count(f"{line}\n")
            if room < 0:
                break
            lines[at] = line
        gone = len(by_place) - len(lines)
        told = [lines[at] for at in sorted(lines)]
        return "\n".join([*([head.format(count=gone)] if gone and told else []), *told])


def _quoted(line: RecordLine) -> tuple[int, str]:
    """Return the words of a line without what they answer."""
    return line.at, line.text.partition(" ← ")[0]


def _leave_out(lines: Sequence[RecordLine], chosen: Sequence[RecordLine]) -> list[RecordLine]:
    taken = set(map(id, chosen))
    return [line for line in lines if id(line) not in taken]


def _make_frame(options: RecordOptions, handle: str, span: ReadSpan) -> tuple[str, str]:
    """Return the first and the last line; beside a record that explains itself a short one is enough."""
    if options.opening:
        return options.opening, f"{options.closing}\n{mark(handle)}" if options.closing else mark(handle)
    small = options.is_small or close_frame(language=span.language) in span.seen
    size, turns = len(span.read), options.turn_range
    opening = open_frame(count=size, turns=turns, handle=handle, language=span.language, is_small=small)
    return opening, close_frame(language=span.language, is_small=small)


def quote_task(span: ReadSpan, options: RecordOptions, room: int, count: Count) -> RecordLine | None:
    """Return the task as a line, if nothing that stays in view states it: whole or with its ends.

    In a summary of few characters it is whole or not there at all.
    """
    task = span.state.task if options.states_task else None
    if task is None or task.quote.position not in span.positions or task.quote.text in span.seen:
        return None
    text, most = task.quote.text, int(room * TASK_SHARE)
    if count(text) > most:
        if options.whole_chars_max:
            return None
        handle = shorten_handle(task.quote.handle)
        text = cut_task(text, most, handle=handle, count=count, language=span.language)
    # Lines after the first are set in, so that no line of the text can pass for a heading or another's words.
    lines = [neutralise(line.strip()) for line in text.splitlines() if line.strip()]
    return RecordLine("wanted", "\n  ".join(lines), 1.0, -1, "U", handle=task.quote.handle, is_firm=True)


def _find_key_points(span: ReadSpan, lines: Sequence[RecordLine]) -> tuple[str, ...]:
    """Return a few short lines that name what a span was about: the first ask, decisions, the last conclusion."""
    first = next((line.at for line in lines if line.who == "U"), None)
    asked = [_read_opening(one) for one in span.read if one.at == first]
    held = [belief.quote.text for belief in span.state.beliefs if belief.quote.position in span.positions][-3:]
    last = [line for line in lines if line.who == "A"][-1:]
    points = [*asked, *held, *(line.text for line in last)]
    return tuple(dict.fromkeys(point[:KEY_POINT_CHARS] for point in points if point))[:KEY_POINTS_MAX]


def _read_opening(one: ReadMessage) -> str:
    """Return the first line of a person's words; a tool's result may precede them in the same message."""
    said = next((event for event in one.events if isinstance(event, Utterance)), None)
    return one.message.parts[said.part].text[said.start :].partition("\n")[0].strip() if said else ""
