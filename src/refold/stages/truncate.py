"""truncate: cut a tool output that is over its limit to its head, its tail and the lines that report failures.

Every kept piece is verbatim. Between two pieces, one marker line says exactly how many characters of the source are not
shown, and names the handle that brings them back. The result is within the limit, so truncating again changes nothing.
It never rewrites a line and never looks at budget, position or query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

from refold.conversation import because
from refold.conversation.message import mark
from refold.conversation.reason import Language, ReasonKind, detect_language
from refold.errors import ConfigError
from refold.reading.outputs import TellingLine, find_lines, looks_like_log
from refold.reading.tools import prints_output
from refold.stages.gist import count_lines
from refold.stages.stage import OutputStage, When, check_options

_SHELL_HEAD = 0.2
_OTHER_HEAD = 0.5
_LANDMARK_SHARE = 0.25
_LANDMARK_CHARS_MAX = 400
_LINES_MAX, _BYTES_MAX = 2_000, 51_200
_LIMITS_MIN = {"lines_max": 10, "bytes_max": 500, "chars_max": 200}


@dataclass(frozen=True, slots=True)
class Room:
    """The largest size of a piece of text: lines, bytes of UTF-8 and characters."""

    lines: int
    bytes: int
    chars: int

    def share(self, ratio: float) -> Room:
        return Room(int(self.lines * ratio), int(self.bytes * ratio), int(self.chars * ratio))

    def less(self, other: Room) -> Room:
        return Room(self.lines - other.lines, self.bytes - other.bytes, self.chars - other.chars)

    def holds(self, other: Room) -> bool:
        return other.lines <= self.lines and other.bytes <= self.bytes and other.chars <= self.chars


class OutputText:
    """A text to be cut to one or several sizes. Its landmarks are searched once."""

    def __init__(self, text: str, tool: str = "", *, is_cut_again: bool = False) -> None:
        self.text = text
        self.is_log = prints_output(tool) or looks_like_log(text)
        self._is_cut_again = is_cut_again
        self._landmarks: list[TellingLine] | None = None

    def find_landmarks(self, head: int, tail: int) -> list[TellingLine]:
        """Return the telling lines between head and tail."""
        if not self._is_cut_again:
            return find_lines(self.text, head, tail, is_log=self.is_log)
        if self._landmarks is None:
            self._landmarks = find_lines(self.text, 0, len(self.text), is_log=self.is_log)
            self._landmarks.sort(key=lambda one: (one.rank, one.start))
        return [one for one in self._landmarks if head < one.start and one.stop < tail]


@dataclass(frozen=True)
class Truncate(OutputStage):
    """Options of the stage. An output over any of its limits is cut to fit all of them.

    ``texts`` lets it cut plain text parts too, not only tool results; ``landmarks_max`` bounds the lines kept
    from the middle. ``on_arrival`` cuts an output before the model has seen it whole; by default only an explicitly
    set limit does that (L11), and otherwise outputs are cut in a batch.
    """

    name: ClassVar[str] = "truncate"
    when: ClassVar[When] = "arrival"
    reason: ClassVar[ReasonKind] = because.OUTPUT_CUT

    lines_max: int = _LINES_MAX
    bytes_max: int = _BYTES_MAX
    chars_max: int | None = None
    landmarks_max: int = 60
    language: Literal["auto", "en", "zh"] = "auto"
    texts: bool = False
    on_arrival: bool | None = None

    @property
    def acts_on_arrival(self) -> bool:
        """True if outputs are cut when they come, not with a batch."""
        limits = (self.lines_max, self.bytes_max, self.chars_max)
        return limits != (_LINES_MAX, _BYTES_MAX, None) if self.on_arrival is None else self.on_arrival

    def __post_init__(self) -> None:
        for key, least in _LIMITS_MIN.items():
            value = getattr(self, key)
            if value is not None and value < least:
                raise ConfigError(
                    "{setting} is {value}; give {least} or more, a marker alone takes about 60",
                    setting=f"truncate.{key}",
                    value=value,
                    least=least,
                )
        check_options(self)
        if self.language not in ("auto", "en", "zh"):
            setting = "truncate.language"
            raise ConfigError("{setting} is {value!r}; give auto, en or zh", setting=setting, value=self.language)

    def speak(self, language: Language) -> Truncate:
        """Return the stage with markers in the language of a conversation, unless the settings name one."""
        return replace(self, language=language) if self.language == "auto" else self

    def rewrite(self, text: str, handle: str, tool: str) -> str | None:
        """Return the text cut to the limits; None if it is within them."""
        cut = self.cut(text, handle, tool)
        return None if cut is text else cut

    def cut(self, text: str, handle: str, tool: str = "") -> str:
        """Return a text cut to the limits, with ``handle`` in its markers; the text itself if it is within them."""
        return self.cut_read(OutputText(text, tool), handle)

    def cut_read(self, source: OutputText, handle: str) -> str:
        """Like ``cut``, for a text that may be cut again to another size: its landmarks are found only once."""
        text = source.text
        room = Room(self.lines_max, self.bytes_max, len(text) if self.chars_max is None else self.chars_max)
        if _fits(text, room):
            return text
        language = detect_language([text]) if self.language == "auto" else self.language
        marker_cost = _measure_marker(len(text), handle, language)
        ratio = _SHELL_HEAD if source.is_log else _OTHER_HEAD
        room = room.less(marker_cost)
        head, tail = _find_ends(text, room.share(1 - _LANDMARK_SHARE), ratio)
        found = source.find_landmarks(head, tail) if self.landmarks_max else []
        kept, used = _choose_landmarks(
            text, found, room.share(_LANDMARK_SHARE), marker=marker_cost, count_max=self.landmarks_max
        )
        head, tail = _find_ends(text, room.less(used), ratio)
        spans = [(0, head), *(span for span in kept if head < span[0] and span[1] < tail), (tail, len(text))]
        joined = _join_near(text, spans, marker_cost.chars)
        is_long = count_lines(written := _write(text, joined, handle, language)) > self.lines_max
        return _write(text, _join_near(text, spans, 2), handle, language) if is_long else written


def _fits(text: str, room: Room) -> bool:
    if len(text) > room.chars or len(text) > room.bytes or count_lines(text) > room.lines:
        return False
    return len(text) * 3 <= room.bytes or _count_bytes(text) <= room.bytes


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _mark_gap(chars: int, handle: str, language: Language) -> str:
    gap = f"... [截断 {chars} 字符] ..." if language == "zh" else f"... [truncated {chars} characters] ..."
    return f"{gap} {mark(handle)}"


def _measure_marker(chars: int, handle: str, language: Language) -> Room:
    """Return the size of the longest marker, with the line breaks around it."""
    marker = _mark_gap(chars, handle, language)
    # Two lines: the marker itself, and one more because a cut inside a line splits it.
    return Room(2, _count_bytes(marker) + 2, len(marker) + 2)


def _find_ends(text: str, room: Room, ratio: float) -> tuple[int, int]:
    """Return where the head ends and where the tail begins, neither touching the other."""
    head_room = room.share(ratio)
    head = _find_head(text, head_room)
    tail = max(_find_tail(text, room.less(head_room)), head + 1)
    return head, min(tail, len(text))


def _find_head(text: str, room: Room) -> int:
    """Return where the longest head within the room ends; before a line break if possible."""
    limit = max(1, min(room.chars, room.bytes))
    end = limit
    if text.count("\n", 0, limit + 1) >= room.lines:
        end = -1
        for _ in range(max(1, room.lines)):
            end = text.find("\n", end + 1, limit + 1)
            if end < 0:
                end = limit
                break
    piece = text[: max(1, end)]
    if not piece.isascii():
        encoded = piece.encode("utf-8", "surrogatepass")
        stop = min(room.bytes, len(encoded))
        while 0 < stop < len(encoded) and encoded[stop] & 0xC0 == 0x80:
            stop -= 1
        piece = piece[: max(1, len(encoded[:stop].decode("utf-8", "surrogatepass")))]
    if text[len(piece) : len(piece) + 1] == "\n":
        return len(piece)
    border = piece.rfind("\n")
    return border if border >= len(piece) // 2 > 0 else len(piece)


def _find_tail(text: str, room: Room) -> int:
    """Return where the longest tail within the room begins; after a line break if possible."""
    # One more character shows whether a line break comes before the tail.
    turned = text[-max(1, min(room.chars, room.bytes)) - 1 :][::-1]
    # A line break at the very end closes the last line; it opens no new one.
    lines = max(1, room.lines) + turned.startswith("\n")
    return len(text) - _find_head(turned, Room(lines, room.bytes, room.chars))


def _choose_landmarks(
    text: str, found: list[TellingLine], room: Room, *, marker: Room, count_max: int
) -> tuple[list[tuple[int, int]], Room]:
    """Return the spans of the most telling landmarks that fit, in order, and what they take with their markers."""
    chosen: list[tuple[int, int]] = []
    seen: set[str] = set()
    used = Room(0, 0, 0)
    for landmark in sorted(found, key=lambda mark_: (mark_.rank, mark_.start)):
        if len(chosen) >= count_max:
            break
        start = max(landmark.start, min(landmark.at - _LANDMARK_CHARS_MAX // 4, landmark.stop - _LANDMARK_CHARS_MAX))
        stop = min(landmark.stop, start + _LANDMARK_CHARS_MAX)
        line = text[start:stop]
        cost = Room(marker.lines + 1, marker.bytes + _count_bytes(line), marker.chars + len(line))
        after = Room(used.lines + cost.lines, used.bytes + cost.bytes, used.chars + cost.chars)
        # A repeated complaint adds nothing. If a long line does not fit, a shorter one still may.
        if line.strip() in seen or not room.holds(after):
            continue
        seen.add(line.strip())
        used = after
        chosen.append((start, stop))
    return sorted(chosen), used


def _join_near(text: str, spans: list[tuple[int, int]], chars: int) -> list[tuple[int, int]]:
    """Join spans with so little between them that a marker would be longer."""
    joined = [spans[0]]
    for start, stop in spans[1:]:
        last_start, last_stop = joined[-1]
        if start - last_stop <= chars and _count_bytes(text[last_stop:start]) <= chars:
            joined[-1] = (last_start, stop)
        else:
            joined.append((start, stop))
    return joined


def _write(text: str, spans: list[tuple[int, int]], handle: str, language: Language) -> str:
    """Return the spans with a marker line in each gap: lengths of the spans and gaps add up to the whole text."""
    pieces = [text[: spans[0][1]]]
    for (_, stop), (start, end) in pairwise(spans):
        pieces += [_mark_gap(start - stop, handle, language), text[start:end]]
    return "\n".join(pieces)
