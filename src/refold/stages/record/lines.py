"""Lines of a record, and which of them are written within a budget of tokens.

The floor is a short lead of every step, equal for all: a reader who takes over wants a word about each step before a
second one about any. Above it lines are taken by worth for cost; a line that repeats what is written already scores
lower. Lines of one message that follow each other are joined; any others are quoted separately, so no gap is hidden.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from refold.conversation.message import frozen
from refold.conversation.reason import Language
from refold.patterns import lazy_regex
from refold.stages.record.frame import (
    CUT_CHARS_MIN,
    Layout,
    Topic,
    cut_text,
    heading_of,
    order_headings,
    shorten_handle,
)

Count = Callable[[str], int]

# A second line of the same message adds less than the first; a long line is paid for, but not in full.
SAME_MESSAGE = 0.8
COST_POWER = 0.75
COST_MIN = 10
# A line worth less than this for its cost is noise even where there is room.
PRICE_MIN = 0.02
NOVELTY_SHARE = 0.4
# A line of which less than this is new is left out.
KNOWN_SHARE = 0.3
# After so many lines that differ in their figures alone another one is worth half of the first, in the end this share.
SHAPES_FEW, SHAPE_SHARE_MIN = 4, 0.3
# A lead has so many characters, more where there is room.
LEAD_CHARS_MIN, LEAD_CHARS_MAX = 70, 400
# A line worth less ("Looks good.") is not a lead.
LEAD_WORTH_MIN = 0.4
_MISSES_MAX = 60
# A shorter quotation may be a name.
QUOTED_CHARS_MIN = 40
_QUOTE = lazy_regex('["“”「」]')
_HAN = lazy_regex(r"[\u3400-\u9fff]")
_FIGURES = lazy_regex(r"\bm:[0-9a-f]{6}(?:\.\d{1,4})?|\d+")
_WORD = lazy_regex(r"[A-Za-z0-9_./-]{3,40}|\d{1,2}|[\u3400-\u9fff]{2}")


@frozen
class RecordLine:
    """One line of a record. ``at`` is the position of its message, ``start`` and ``stop`` its place in the text.

    ``who`` is ``U``, ``A`` or empty for what was done; ``worth`` is what a reader would miss without it. Of a line that
    ``is_firm`` no part is left out because something similar was written. ``brief`` is written where there is no room
    for the whole line. ``stamp`` is the time and the name before the words of a recorded talk.
    """

    topic: Topic
    text: str
    worth: float
    at: int
    who: str = ""
    start: int = 0
    stop: int = 0
    handle: str = ""
    is_firm: bool = False
    brief: str = ""
    stamp: str = ""

    @property
    def written(self) -> str:
        """The line as it is written in a record."""
        return f"{self.who}> {self.text}" if self.who else self.text


class SeenText:
    """What is in view, on one line, with its words."""

    def __init__(self, seen: str) -> None:
        # Issue trackers put spaces of no width into names.
        words = seen.replace("\u200b", "").split()
        self._flat = " ".join(words)
        self._words = frozenset(words)

    def __contains__(self, text: str) -> bool:
        # Most texts have a word that the view has not: looking that up is faster than searching the whole view.
        words = text.split()
        return self._words.issuperset(words[1:-1]) and " ".join(words) in self._flat

    def has_words(self, text: str) -> bool:
        """Return whether a text is in view, or a long quotation from it in other words: ``The task says: "…"``."""
        if text in self:
            return True
        quoted = max(_QUOTE.split(text), key=len).strip(" .…")
        is_long = len(quoted) >= QUOTED_CHARS_MIN and 2 * len(quoted) > len(text)
        return is_long and quoted != text and quoted in self


def estimate_costs(lines: Sequence[RecordLine], count: Count) -> dict[int, int]:
    """Return about how many tokens each line takes, by identity: characters, scaled by one count of all of them."""
    sizes = [_width(line.written) for line in lines]
    sample = "\n".join(line.written for line in lines[:: max(1, len(lines) // 200)])
    per_char = count(sample) / max(1, _width(sample)) if lines else 0.0
    return {id(line): max(1, round(size * per_char) + 1) for line, size in zip(lines, sizes, strict=True)}


def choose_leads(
    lines: Sequence[RecordLine], tokens_max: int, costs: dict[int, int]
) -> tuple[list[RecordLine], list[RecordLine]]:
    """Return the lead of each step, as long as fits for all, and the lines that are left.

    If not even short leads fit, the steps whose best line is worth most have theirs.
    """
    steps: dict[int, list[RecordLine]] = {}
    seen: set[str] = set()
    # Newest first: of a sentence that was said again and again the newest counts.
    for line in sorted(lines, key=lambda line: (-line.at, -line.start)):
        if line.who == "A" and line.worth >= LEAD_WORTH_MIN and line.text not in seen:
            steps.setdefault(line.at, []).insert(0, line)
            seen.add(line.text)
    by_worth = sorted(steps.values(), key=lambda own: -max(line.worth for line in own))
    low, high = LEAD_CHARS_MIN, LEAD_CHARS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        cost = sum(costs[id(line)] * share for own in by_worth for line, share in _take_lead(own, middle))
        low, high = (middle, high) if cost <= tokens_max else (low, middle - 1)
    leads: list[RecordLine] = []
    used: set[int] = set()
    room = float(tokens_max)
    for line, share in (pair for own in by_worth for pair in _take_lead(own, low)):
        room -= costs[id(line)] * share
        if room < 0:
            break
        leads.append(line if share == 1 else _cut_line(line, share))
        used.add(id(line))
    return leads, [line for line in lines if id(line) not in used]


def _take_lead(lines: Sequence[RecordLine], chars: int) -> list[tuple[RecordLine, float]]:
    """Return the first lines of a step that fit, each with the share of it that does."""
    taken: list[tuple[RecordLine, float]] = []
    for line in lines:
        width = _width(line.text)
        if width <= chars + CUT_CHARS_MIN:
            taken.append((line, 1.0))
        elif chars >= LEAD_CHARS_MIN:
            taken.append((line, chars / width))
        chars -= width
        if chars < LEAD_CHARS_MIN:
            break
    return taken


def _cut_line(line: RecordLine, share: float) -> RecordLine:
    sentence, _, block = line.text.partition("\n")
    chars = int(len(line.text) * share)
    if block and len(sentence) <= chars:
        text = f"{sentence} [+{block.count(chr(10)) + 1} lines {shorten_handle(line.handle)}]"
    else:
        text = cut_text(sentence, chars, line.handle)
    return line if len(text) >= len(line.text) else replace(line, text=text, stop=-1)


def _width(text: str) -> int:
    """Return the length of a text; a Chinese character says as much as two others."""
    return len(text) if text.isascii() else len(text) + len(_HAN.findall(text))


def choose_lines(
    lines: Iterable[RecordLine], tokens_max: int, costs: dict[int, int], *, written: Sequence[RecordLine] = ()
) -> list[RecordLine]:
    """Take the lines worth most for their cost until the budget is full, beside those that are ``written``."""
    waiting = [
        (-_price(line.worth, costs[id(line)]), -line.at, -number, line)
        for number, line in enumerate(lines)
        if costs[id(line)] <= tokens_max
    ]
    heapq.heapify(waiting)
    known: dict[str, set[str]] = {"": set(), "U": set(), "A": set()}
    for line in written:
        known[line.who] |= _words(line.text)
    taken: Counter[int] = Counter(line.at for line in written if line.who)
    shapes: Counter[str] = Counter()
    chosen: list[RecordLine] = []
    room, misses = tokens_max, 0
    while waiting and misses <= _MISSES_MAX:
        before, age, number, line = heapq.heappop(waiting)
        if -before < PRICE_MIN:
            break
        fresh = _fresh_share(line, known, taken)
        if not fresh:
            continue
        cost = costs[id(line)]
        price = _price(line.worth * fresh, cost)
        # Other lines come before the tenth that differs in its figures alone; it is left out only if there is no room.
        again = max(SHAPE_SHARE_MIN, 1 / (1 + shapes[shape_line(line.text)] / SHAPES_FEW))
        now = -min(price, max(PRICE_MIN, price * again))
        if now > before * 0.999 and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, age, number, line))
            continue
        if cost > room:
            misses += 1
            continue
        room -= cost
        chosen.append(line)
        known[line.who] |= _words(line.text)
        taken[line.at] += bool(line.who)
        shapes[shape_line(line.text)] += 1
    return chosen


def _price(worth: float, cost: int) -> float:
    return float(worth / max(COST_MIN, cost) ** COST_POWER)


def _fresh_share(line: RecordLine, known: dict[str, set[str]], taken: Counter[int]) -> float:
    """Return how much of a line's worth is left beside what was chosen already."""
    words = _words(line.text)
    # An answer repeats the words of its question and says more.
    fresh = words - known["A"] - known[""] - (set() if line.who == "A" else known["U"])
    new = len(fresh) / len(words) if words else 1.0
    if new < KNOWN_SHARE and not line.is_firm:
        # A repeated step keeps half of its worth: that a command was run once more matters. So does a sentence that
        # states the same of another thing, such as the port of the next service.
        has_figure = any(any(map(str.isdigit, word)) for word in fresh)
        return 0.5 if not line.who or has_figure else 0.0
    again = SAME_MESSAGE ** taken[line.at] if line.who else 1.0
    return (1 - NOVELTY_SHARE + NOVELTY_SHARE * new) * again


def shape_line(text: str) -> str:
    """Return a text without its figures and handles, which is what repeated steps have in common."""
    return _FIGURES.sub("#", text)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def write_lines(lines: Iterable[RecordLine], layout: Layout, language: Language) -> str:
    """Write lines under their headings, in the order of the conversation."""
    lines = _leave_parts(list(lines))
    sections: dict[str, list[RecordLine]] = {heading: [] for heading in order_headings(layout, language)}
    for line in lines:
        sections[heading_of(line.topic, layout)[language]].append(line)
    blocks = []
    for heading, own in sections.items():
        if own:
            # Within a message a rule or an outcome keeps its place; the sort is stable.
            own.sort(key=lambda line: (line.at, line.start))
            blocks.append("\n".join((f"## {heading}", *_join_lines(own))))
    return "\n".join(blocks)


def _leave_parts(lines: Sequence[RecordLine]) -> list[RecordLine]:
    """Leave out words that another line of the same message has."""
    by_message: dict[int, list[RecordLine]] = {}
    for line in lines:
        if line.who:
            by_message.setdefault(line.at, []).append(line)
    return [
        line
        for line in lines
        if not any(
            line is not other and line.text in other.text and len(line.text) < len(other.text)
            for other in by_message.get(line.at, ())
            if line.who
        )
    ]


def _join_lines(lines: Sequence[RecordLine]) -> list[str]:
    """Write each line; sentences that follow each other in a message share one."""
    written: list[str] = []
    named: dict[str, str] = {}
    last: RecordLine | None = None
    for line in lines:
        follows = (
            last is not None
            and bool(line.who)
            and (last.who, last.at) == (line.who, line.at)
            and 0 <= line.start - last.stop <= 2
            and last.stop > 0
        )
        if follows and last is not None and "\n" not in written[-1]:
            glue = "" if line.text[:1] >= "\u3000" or line.start == last.stop else " "
            written[-1] = f"{written[-1]}{glue}{line.text}"
        else:
            written.append(_stamp(line, named))
        last = line
    return [end_line(text) for text in written]


def end_line(text: str) -> str:
    """Return a line without the comma that led to the clause after it."""
    return text.rstrip("，；,;")


def _stamp(line: RecordLine, named: dict[str, str]) -> str:
    """Return a line with its stamp where the time has changed, with the name where that speaker was not named since."""
    if not line.stamp:
        return line.written
    time, _, name = line.stamp.rpartition(") ")
    is_new = named.get("") != time
    if is_new:
        named.clear()
    elif named.get(line.who) == name:
        return line.written
    named[""], named[line.who] = time, name
    return f"{line.who}> {line.stamp if is_new else name} {line.text}"
