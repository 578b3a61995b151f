"""The summary without a model: what a span said and did, extracted by rules, within a budget of tokens.

Anchored: an earlier fold's facts and artifacts are carried on, and the words behind it are read from the originals,
never from the earlier summary's text, so nothing wears away from fold to fold. Everything written is verbatim or
stands in the frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from refold.conversation.message import Message, fold_handle, mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.speaker import judge_speaker
from refold.conversation.view import Artifact, FoldRecord
from refold.patterns import lazy_regex
from refold.stages.extract.actions import first_line
from refold.stages.extract.index import (
    READ_KINDS,
    Meant,
    find_artifacts,
    find_useful,
    merge_artifacts,
    read_part,
    write_index,
)
from refold.stages.extract.layout import (
    BEFORE_ALL,
    FRAME_TOKENS_MIN,
    SMALL_TOKENS,
    Layout,
    Line,
    choose_leads,
    choose_lines,
    close_frame,
    leave_seen,
    neutralise,
    open_frame,
    shorten_handle,
    wrap_prefix,
    wrap_record,
    write_lines,
)
from refold.stages.extract.steer import read_wish, steer_lines, steer_values
from refold.stages.extract.steps import expand_alike
from refold.stages.extract.story import Span, quote, read_saying, read_span, tell_story
from refold.stages.extract.words import Saying, is_polite, shorten_words
from refold.stages.stage import check_nothing
from refold.stages.task import TASK_SHARE, cut_task

Count = Callable[[str], int]
Style = Literal["note", "sections", "short", "truncated"]

# Bare values take no more than this of a record; nor do the user's words before the story has its part.
VALUES_SHARE = 0.25
# A record with room for a story spends more of it on words.
STORY_VALUES_SHARE = 0.18
# Where the assistant works by itself, a word about each of its many steps tells more.
WORK_VALUES_SHARE = 0.12
# Where nothing was done, nothing will be called with a value: words come first.
TALK_VALUES_SHARE = 0.1
VALUES_TOKENS_MIN = 100
ASKED_SHARE = 0.25
# Where the assistant works by itself, commands and their outcomes come first, in this share of the words' room. Then
# comes a lead of each message; what is left is for details.
DONE_SHARE, LEADS_SHARE = 0.15, 0.9
# In a summary bounded by characters exact values take what the words leave of it, and at least this share.
BOUNDED_INDEX_SHARE = 0.3
# Below so many characters a full frame would take most of a bounded summary.
SMALL_CHARS = 1_200
HEADING_TOKENS = 8
KEY_POINTS_MAX = 5
KEY_POINT_CHARS = 160
SHORT_LINES_MAX, STANDING_LINES_MAX = 5, 20
SHORT_WORTH_SHARE = 0.4
SENTENCE_ENDS = tuple(".!?;。！？；…")
TRUNCATED_CHARS = 100
LEFT_OUT = {"en": "[{count:,} of the messages are left out here]", "zh": "[另有 {count:,} 条消息未在此列出]"}
_REMEMBER = lazy_regex(r"\b(?:remember|(?:never|do not|don't) forget|keep in mind)\b|记住|记牢|别忘|不要忘", re.I)
INDEX_TITLES = {"en": "## Exact values", "zh": "## 精确值"}


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    """Options of a summary. ``opening`` of "" is the full frame.

    ``chars_max`` of 0 sets no limit in characters; a short summary keeps to it as a whole, frame and handle included.
    ``words_share`` is how much of the room the words may take where the index does not need its own; ``instructions``
    say what a person wants kept. ``closing`` is a sentence below the summary, before the handle. With ``is_work`` the
    assistant works by itself, and every step of it gets a word before any gets a second. With ``states_task`` the task
    comes first, whole as far as it fits. ``with_state`` is for
    records from the state. ``check`` is called between passes and raises OutOfTime when the work has
    taken too long.
    """

    tokens_max: int = 4_000
    index_tokens_max: int = 1_500
    style: Style = "note"
    opening: str = ""
    closing: str = ""
    chars_max: int = 0
    words_share: float = 1.0
    instructions: str = ""
    turn_range: tuple[int, int] = (0, 0)
    is_work: bool = False
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


class TaskLine(NamedTuple):
    """The task of a span as a record quotes it, and the place of its message."""

    at: int
    written: str

    @property
    def words(self) -> str:
        """The quoted words, without who said them."""
        return self.written[3:]


@dataclass(frozen=True, slots=True)
class Extract:
    """A fold and the text that represents it in the view."""

    fold: FoldRecord
    text: str


def extract_summary(
    messages: Sequence[Message],
    previous: Sequence[FoldRecord],
    options: ExtractOptions,
    count: Count,
    *,
    language: Language = "en",
    known: frozenset[str] = frozenset(),
    seen: str = "",
    secrets: frozenset[str] = frozenset(),
    is_answered: bool = False,
) -> Extract:
    """Return the summary of ``messages``; those with ids in ``known`` are behind the ``previous`` folds.

    ``seen`` is what stays in view: exact values that it shows are not written again. ``secrets`` never are. With
    ``is_answered`` the assistant spoke right after them: the last ask of the span is part of what happened, not open.
    """
    fresh = [message for message in messages if message.id not in known]
    span = read_span(messages, fresh, previous, language, is_answered=is_answered)
    options.check()
    carried = [artifact for fold in previous for artifact in fold.artifacts]
    found = find_artifacts(fresh, span.actions if len(fresh) == len(messages) else None)
    options.check()
    fold = FoldRecord(
        handle=fold_handle(messages),
        summary="",
        facts=tuple(span.facts),
        artifacts=tuple(_leave_secrets(merge_artifacts(carried, found), secrets)),
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
    fold: FoldRecord, span: Span, options: ExtractOptions, count: Count, *, seen: str = "", words: str | None = None
) -> Extract:
    """Write a fold's text within its budget; ``words`` are a model's own, in the place of the extracted sections."""
    opening, closing = _make_frame(options, len(span.messages), fold.handle, span.language, seen)
    room = options.tokens_max - count(f"{opening}\n\n{closing}\n")
    body = text = ""
    if options.whole_chars_max:
        chars = options.whole_chars_max - len(opening) - len(closing) - 2
        body = _write_bounded(fold, span, replace(options, chars_max=max(0, chars)), count, seen, words)
        text = wrap_prefix(body, opening, closing) if options.opening else wrap_record(body, opening, closing)
        return Extract(replace(fold, summary=body), text)
    wish = read_wish(options.instructions)
    values = find_useful(steer_values(fold.artifacts, wish), count, _read_originals(span.messages), seen)
    is_told = words is None and options.style != "truncated"
    lines = steer_lines(leave_seen(tell_story(span), seen), wish) if is_told else []
    # Counts do not add up exactly; a text over its limit is written again with less room, at most a few times.
    for _ in range(8):
        options.check()
        if words is None:
            body = _write_body(lines, values, span, options, room, count, seen)
        else:
            body = _write_told(words, values, span, options, room, count, seen)
        text = wrap_prefix(body, opening, closing) if options.opening else wrap_record(body, opening, closing)
        size = count(text)
        if size <= options.tokens_max or not body or words is not None:
            break
        room -= max(size - options.tokens_max, room // 10, 1)
    return Extract(replace(fold, summary=body), text)


def read_ahead(messages: Sequence[Message]) -> None:
    """Read messages as a fold will, which then finds them in memory; they should begin with a call or a person."""
    span = read_span(messages, messages, (), "en")
    for saying in (*span.asks, *span.replies):
        read_saying(saying, is_talk=span.is_talk)
    for message in messages:
        for part in message.parts:
            if part.kind in READ_KINDS:
                read_part(part)


def _make_frame(options: ExtractOptions, size: int, handle: str, language: Language, seen: str) -> tuple[str, str]:
    """Return the first and the last line; beside a record that explains itself a short one is enough."""
    if options.opening:
        return options.opening, f"{options.closing}\n{mark(handle)}" if options.closing else mark(handle)
    small = options.is_small or close_frame(language=language) in seen
    opening = open_frame(count=size, turns=options.turn_range, handle=handle, language=language, is_small=small)
    return opening, close_frame(language=language, is_small=small)


def _write_body(
    lines: Sequence[Line],
    values: Sequence[Meant],
    span: Span,
    options: ExtractOptions,
    room: int,
    count: Count,
    seen: str,
) -> str:
    """Write the story and the values. The story gets the room that the values do not need."""
    if room <= 0:
        return ""
    if options.style == "truncated":
        return _write_truncated(span, options, room, count, seen=seen)
    share = VALUES_SHARE if room < SMALL_TOKENS else STORY_VALUES_SHARE
    if options.is_work and room >= SMALL_TOKENS:
        share = WORK_VALUES_SHARE
    if not span.actions:
        share = TALK_VALUES_SHARE
    most = min(options.index_tokens_max, int(room * share))
    needed = count(write_index(values, most, count, language=span.language).text)
    body = _write_words(lines, span, options, room - needed, count, seen)
    # Values that the story names are not listed again. Those with a statement get what the story leaves.
    told = count(body)
    left = room - told
    stated_max = max(0, left - most) if room >= SMALL_TOKENS else 0
    if room >= SMALL_TOKENS:
        # Where there is little to tell, a list of names is no record either.
        most = min(most, max(VALUES_TOKENS_MIN, told // 2))
    body = _add_values(body, values, min(most, left), span.language, count=count, stated_max=stated_max)
    # Small talk has nothing that is worth a line; its first words still say more than an empty record.
    return body or _write_truncated(span, options, room, count, seen=seen)


def _write_told(
    words: str, values: Sequence[Meant], span: Span, options: ExtractOptions, room: int, count: Count, seen: str
) -> str:
    """Write a model's words between the user's own and the values."""
    body = _add_asked(neutralise(words.strip()), span, options, int(room * ASKED_SHARE), count, seen)
    room = min(options.index_tokens_max, room) + HEADING_TOKENS
    is_plain = options.style == "truncated"
    return _add_values(body, values, room, span.language, count=count, is_plain=is_plain)


def _add_values(
    body: str,
    values: Sequence[Meant],
    room: int,
    language: Language,
    *,
    count: Count,
    stated_max: int = 0,
    is_plain: bool = False,
) -> str:
    # A summary in plain text gets no heading of markdown.
    title = f"{INDEX_TITLES[language].removeprefix('## ')}:" if is_plain else INDEX_TITLES[language]
    seen = f"{body}\n{expand_alike(body)}"
    room = max(0, room - HEADING_TOKENS)
    index = write_index(values, room, count, seen=seen, language=language, stated_max=stated_max)
    return f"{body}\n{title}\n{neutralise(index.text)}".lstrip("\n") if index.text else body


def _add_asked(words: str, span: Span, options: ExtractOptions, room: int, count: Count, seen: str) -> str:
    """Put the user's own words before a model's note: rules, and messages whole, or their best sentences."""
    if options.style != "note":
        return words
    lines = [line for line in tell_story(span) if line.topic in ("rule", "asked") and line.text not in words]
    asked = _choose_asked(span, room, count, f"{seen}\n{words}")
    whole = {int(line.at) for line in asked}
    left = room - sum(count(f"{line.written}\n") for line in asked)
    rest = choose_lines([line for line in lines if int(line.at) not in whole], left, count)
    asked = [replace(line, topic="asked") for line in asked]
    return "\n".join(filter(None, (write_lines([*asked, *rest], "note", span.language), words)))


def _write_bounded(
    fold: FoldRecord, span: Span, options: ExtractOptions, count: Count, seen: str, words: str | None
) -> str:
    """Write words, then exact values, in ``chars_max`` characters as a whole."""
    wish, most = read_wish(options.instructions), options.chars_max
    values = find_useful(steer_values(fold.artifacts, wish), count, _read_originals(span.messages), seen)
    if words is None:
        task = _quote_task(span, options, most, len, seen=seen)
        told = [line for line in tell_story(span) if task is None or line.who != "U" or int(line.at) != task.at]
        chosen = choose_lines(steer_lines(told, wish), options.tokens_max, count)
        room = int(most * (1 - BOUNDED_INDEX_SHARE)) if values else most
        body = _write_short(chosen, span, room - len(task.written) - 1 if task else room)
        body = f"{task.written}\n{body}".strip() if task else body
        if not body and not values:
            body = _write_truncated(span, options, most, len, seen=seen)
    else:
        body = shorten_words(neutralise(words.strip()), most)
    title = INDEX_TITLES[span.language]
    left = most - len(f"{body}\n{title}\n")
    room = min(options.index_tokens_max, left)
    while room > HEADING_TOKENS:
        written = write_index(values, room, count, seen=body, language=span.language)
        index = neutralise(written.text)
        if len(index) <= left:
            return f"{body}\n{title}\n{index}".lstrip("\n") if index else body
        room = min(room - 1, room * left // len(index))
    return body


def _read_originals(messages: Sequence[Message]) -> Callable[[str], str]:
    """Return what reads an original by its handle."""
    by_handle = {message_handle(message): message for message in messages}
    known: dict[str, str] = {}

    def read(handle: str) -> str:
        if handle not in known:
            head, _, number = handle.partition(".")
            message = by_handle.get(head)
            texts = [part.text for part in message.parts] if message else []
            is_part = number.isdecimal() and int(number) < len(texts)
            known[handle] = texts[int(number)] if is_part else "\n".join(texts)
        return known[handle]

    return read


def _write_words(lines: Sequence[Line], span: Span, options: ExtractOptions, room: int, count: Count, seen: str) -> str:
    """Write the user's words first, whole while they take less than their share, then what is worth most."""
    if options.style == "short":
        task = _quote_task(span, options, room, count, seen=seen)
        rest = [line for line in lines if line.who != "U" or int(line.at) != task.at] if task else lines
        left = room - count(f"{task.written}\n") if task else room
        body = _write_short(choose_lines(rest, left, count), span, options.chars_max)
        return f"{task.written}\n{body}".strip() if task else body
    layout: Layout = "sections" if options.style == "sections" else "note"
    room -= HEADING_TOKENS * 3
    quarter = int(room * ASKED_SHARE)
    asked = _choose_asked(span, quarter, count, seen)
    task = _quote_task(span, options, room, count, seen=seen)
    if task:
        # It comes before everything else.
        asked = [Line("asked", task.words, 1.0, BEFORE_ALL, "U"), *(line for line in asked if line.at != task.at)]
        lines = [line for line in lines if line.who != "U" or int(line.at) != task.at]
        quarter += count(f"{task.written}\n")
    whole = {int(line.at) for line in asked}
    rest = [line for line in lines if line.who != "U" or int(line.at) not in whole]
    # What is left of their quarter goes to the best sentences of older messages, before anything else; in a talk,
    # where the words of both sides are one thread, to the rules.
    older = [line for line in rest if line.topic == "rule" or (line.who == "U" and not span.is_talk)]
    asked += choose_lines(older, quarter - _cost(asked, count), count, told=_tell(asked))
    taken = set(map(id, asked))
    rest = [line for line in rest if id(line) not in taken]
    room -= _cost(asked, count)
    done: list[Line] = []
    leads: list[Line] = []
    if options.is_work and not span.is_talk:
        done = choose_lines([line for line in rest if not line.who], int(room * DONE_SHARE), count)
        room -= _cost(done, count)
        taken = set(map(id, done))
        leads, rest = choose_leads([line for line in rest if id(line) not in taken], int(room * LEADS_SHARE), count)
    told = _tell([*asked, *done, *leads])
    chosen = choose_lines(rest, room - _cost(leads, count), count, told=told, begun=leads)
    return write_lines(_leave_quoted([*asked, *done, *leads, *chosen]), layout, span.language)


def _find_task(span: Span, options: ExtractOptions, seen: str) -> Saying | None:
    """Return the task of a span if its record states it and nothing that stays in view does."""
    stated: Saying | None = None
    for ask in span.asks if options.states_task else ():
        if judge_speaker(ask.text, stated.text if stated else "") == "task":
            stated = ask
    is_told = stated is not None and (stated.text in seen or any(ask.at == stated.at for ask in span.pending))
    return None if is_told else stated


def _quote_task(span: Span, options: ExtractOptions, room: int, count: Count, *, seen: str) -> TaskLine | None:
    """Return the task of a span as a line: whole or its ends; in a summary of few characters whole or not at all."""
    stated = _find_task(span, options, seen)
    if stated is None:
        return None
    text, size_max = stated.text, int(room * TASK_SHARE)
    if count(text) > size_max and options.whole_chars_max:
        return None
    if count(text) > size_max:
        handle = shorten_handle(stated.handle)
        text = cut_task(text, size_max, handle=handle, count=count, language=span.language)
    return TaskLine(stated.at, quote(replace(stated, text=text), len(text), span.language))


def _leave_quoted(lines: Sequence[Line]) -> list[Line]:
    """Leave out rules that are within an ask that is written whole."""
    asks = "\n".join(line.text for line in lines if line.topic != "rule" and line.who == "U")
    return [line for line in lines if line.topic != "rule" or line.text not in asks]


def _cost(lines: Sequence[Line], count: Count) -> int:
    return sum(count(f"{line.written}\n") for line in lines)


def _tell(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _choose_asked(span: Span, tokens_max: int, count: Count, seen: str) -> list[Line]:
    """Return the user's messages that are written whole: all if they fit, else the newest in half of the room.

    What is not here competes sentence by sentence with the rest of the story.
    """
    open_asks = {ask.at for ask in span.pending}
    ruled = {rule.at for rule in span.rules}
    lines: list[tuple[Line, int]] = []
    told: set[str] = set()
    for ask in reversed(span.asks):
        if ask.at in open_asks or ask.text in told or ask.text in seen or is_polite(ask.text):
            continue
        told.add(ask.text)
        text = quote(ask, len(ask.text), span.language)[3:]
        line = Line("happened" if span.is_talk and ask.at not in ruled else "asked", text, 1.0, ask.at, "U")
        lines.append((line, count(f"{line.written}\n")))
    if sum(cost for _, cost in lines) <= tokens_max:
        return [line for line, _ in lines]
    chosen: list[Line] = []
    room = 0 if span.is_talk else tokens_max // 2
    for line, cost in lines:
        if cost <= room:
            room -= cost
            chosen.append(line)
    return chosen


def _write_short(chosen: Sequence[Line], span: Span, chars_max: int) -> str:
    """Write the few best lines without headings, within a limit of characters: whole lines, else whole sentences.

    What a person wants from now on comes first and does not count as one of the few.
    """
    standing = {id(line) for line in chosen if line.topic == "rule" or (line.who == "U" and _stands(line.text, span))}
    best = sorted(chosen, key=lambda one: (id(one) not in standing, -one.worth))
    most = SHORT_LINES_MAX + min(len(standing), STANDING_LINES_MAX)
    room = chars_max or sum(len(line.written) + 1 for line in best)
    kept: list[tuple[float, str]] = []
    # A greeting that fits into what is left says nothing.
    worth_min = SHORT_WORTH_SHARE * max((line.worth for line in best if id(line) not in standing), default=0.0)
    for line in best:
        if id(line) not in standing and line.worth < worth_min:
            break
        text = shorten_words(line.written, max(0, room))
        is_whole = text == line.written or text.endswith(SENTENCE_ENDS)
        if text and is_whole and len(kept) < most:
            kept.append((line.at, text))
            room -= len(text) + 1
    if not kept and best:
        return shorten_words(best[0].written, room)
    return "\n".join(text for _, text in sorted(kept))


def _stands(text: str, span: Span) -> bool:
    """Return whether words of a person hold from now on: a preference, a fact to know, or what not to forget."""
    return bool(_REMEMBER.search(text)) or any(
        fact.text in text for fact in span.facts if fact.kind in ("preference", "key")
    )


def _write_truncated(span: Span, options: ExtractOptions, room: int, count: Count, *, seen: str) -> str:
    """Write the first characters of each message: of the task, of standing orders, then of the newest that fit.

    The first line says how many are left out; a line that was cut ends with three dots.
    """
    task = _find_task(span, options, seen)
    orders = {rule.at for rule in span.rules} | {ask.at for ask in span.asks if _stands(ask.text, span)}
    order = [*([task.at] if task else []), *sorted(orders), *range(len(span.messages) - 1, -1, -1)]
    room -= count(f"{LEFT_OUT[span.language].format(count=len(span.messages))}\n")
    lines: dict[int, str] = {}
    for at in dict.fromkeys(order):
        message = span.messages[at]
        text = " ".join(
            " ".join(part.text for part in message.parts if part.kind in ("text", "call", "result")).split()
        )
        cut = "..." if len(text) > TRUNCATED_CHARS else ""
        line = neutralise(f"[{message.role}]: {text[:TRUNCATED_CHARS]}{cut}")
        room -= count(f"{line}\n")
        if room < 0:
            break
        lines[at] = line
    left_out = len(span.messages) - len(lines)
    head = [LEFT_OUT[span.language].format(count=left_out)] if left_out and lines else []
    return "\n".join([*head, *(lines[at] for at in sorted(lines))])


def _find_key_points(span: Span) -> tuple[str, ...]:
    """Return a few short lines that name what a span was about: the first ask, decisions, the last conclusion."""
    points = [first_line(span.asks[0].text, KEY_POINT_CHARS)] if span.asks else []
    points += [fact.text[:KEY_POINT_CHARS] for fact in span.facts if fact.kind == "decision"][-3:]
    points += [first_line(span.replies[-1].text, KEY_POINT_CHARS)] if span.replies else []
    return tuple(dict.fromkeys(point for point in points if point))[:KEY_POINTS_MAX]
