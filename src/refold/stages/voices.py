"""The speakers of a source: a summary must not pass a tool's words off as a person's.

A quotation (``U>``, ``A>``) counts only if its speaker said it. A line that states a wish, a rule or a decision, by its
words, label or section, is dropped if it repeats a run of words that only a tool returned, however lines are broken,
letters are dressed up or the tool's text was encoded.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refold.conversation.author import Author, read_said
from refold.conversation.message import Message
from refold.patterns import lazy_regex
from refold.stages.extract.layout import HEADINGS, NOTE_HEADINGS
from refold.stages.ground import Ground, find_claims, normalise, split_words

# This many equal words in a row are no coincidence; nine Chinese characters weigh as much as five words.
RUN_WEIGHT, WORD_WEIGHT, HAN_WEIGHT = 90, 18, 10
# In a sentence that names a person as its source, six Chinese characters are enough.
HAN_WEIGHT_ATTRIBUTED = 15
# Words of a summary beyond this many are not compared, and their lines are dropped.
WORDS_MAX = 4_000

HEADING = lazy_regex(r"#{1,6}\s|\*\*[^*]{1,60}\*\*:?\s*\Z")
_LEVEL = lazy_regex(r"#{1,6}(?=\s)")
_LEADS_IN = lazy_regex(r"[^:：]{1,60}[:：]\Z")
_UNDERLINE = lazy_regex(r"(?:-{3,}|={3,})\Z")
# These sections hold what people want and what was decided: nothing there may come from a tool.
_WISHES = frozenset(
    name.casefold()
    for heading in (
        *(HEADINGS[section] for section in ("pending", "preferences", "decisions")),
        *(NOTE_HEADINGS[section] for section in ("asked", "found", "open")),
    )
    for name in heading.values()
)
_NEUTRAL = frozenset(
    name.casefold() for heading in (*HEADINGS.values(), *NOTE_HEADINGS.values()) for name in heading.values()
).difference(_WISHES)
# A section with another name holds the same if its name says so.
_WISH_NAME = lazy_regex(
    r"\b(?:users?|humans?|customers?|wish\w*|wants?|rules?|decisions?|decided|instructions?|orders?|policy|policies|"
    r"preferences?|requirements?|requests?|constraints?|guidelines?|agree\w*|todos?|tasks?|goals?|said)\b|"
    r"用户|客户|要求|规则|决定|指令|指示|偏好|需求|约定|规定|待办|任务|目标|原话",
    re.I,
)
# In other sections a line is checked if it sounds like a rule, a wish or a decision.
_RULES = lazy_regex(
    r"\b(?:always|never|must|from now on|decided|agreed|approved|the user (?:wants|asked|asks|said|prefers)|"
    r"do not|don't)\b|"
    r"必须|一律|以后|永远|决定|同意|用户(?:要求|希望|说)|不要|禁止",
    re.I,
)
# A sentence that says whose wish, rule or decision it is: a name or a number that only a tool returned is not theirs.
_ATTRIBUTED = lazy_regex(
    r"\b(?:users?|humans?|customers?|clients?|owners?|operators?|admins?|they|he|she|we) (?:wants?|ask(?:ed|s)|said|"
    r"says|prefers?|requires?|requested|decided|agreed|instructed|insist(?:s|ed)|confirmed|approved|ordered)\b|"
    r"\b(?:user|human|customer|client|owner|operator|admin)['’]s (?:\w+ )?(?:wish|rule|decision|instruction|order|"
    r"preference|requirement|request|words?)|"
    r"\bas (?:requested|instructed|agreed|decided)\b|\b(?:was|were|is|are|been) (?:agreed|decided|instructed)\b|"
    r"\b(?:according to|per|by order of|on behalf of) (?:the )?(?:user|human|customer|client|owner|operator|admin)\b|"
    r"\b(?:rules?|decisions?|instructions?|orders?|policy|preferences?|requirements?|requests?|constraints?|todos?|"
    r"user|human|said)[\"'*]{0,3}[ \t]{0,3}[:：|—–-]|"
    r"(?:用户|客户|对方|老板|管理员)(?:要求|希望|说|决定|同意|想|指示|规定|强调|表示|确认)|"
    r"(?:规则|决定|要求|约定|偏好|指令|指示|需求|待办|规定|用户|原话)[\"'*]{0,3}[ \t]{0,3}[：:|—–-]|"
    r"(?:按照?|根据|应)(?:用户|客户|要求)",
    re.I,
)
# Marks by which chat templates open a person's turn.
_TEMPLATE = lazy_regex(
    r"<\|?/?(?:im_start|im_end|user|human|start_header_id|start_of_turn|system)\b|\[/?INST\]|<<SYS>>|"
    r"^\W{0,6}(?:human|user|instruction)s?[ \t]*[:：]|^\W{0,6}(?:用户|人类|指令)[ \t]*[:：]",
    re.I,
)
# How a line names its speaker: as our records do, or in a form that could be taken for that.
_SPEAKER = lazy_regex(
    r"(?P<lead>[^\S\n]*(?:(?:[-*•>|]|\d{1,3}[.)])[^\S\n]*){0,4}\*{0,2})(?P<who>[UA])\*{0,2}[^\S\n]?(?:>|&gt;|›|»)\*{0,2}"
    r"[^\S\n]*(?P<said>.*)\Z",
    re.I | re.S,
)
_ITEM = lazy_regex(r"\s*(?:[-*•>|]|\d{1,3}[.)]|#{1,6}\s)")
_ENCODED = lazy_regex(r"[A-Za-z0-9+/_-]{24,4000}={0,2}")
# A blank after ``U+0041`` only separates it from the next one; after ``\u0041`` it ends a word.
_ESCAPED = lazy_regex(r"\\u([0-9a-fA-F]{4})|\bU\+([0-9a-fA-F]{4})[ ]?")
# Bytes in hexadecimal digits: of a URL, of a mail, of a string in code, or bare.
_BYTES = lazy_regex(r"(?:(?:%|=|\\x)[0-9a-fA-F]{2})+|\b(?:[0-9a-fA-F]{2}){12,2000}\b")
_BYTE_MARK = lazy_regex(r"%|=|\\x")
# Escapes of JSON, in however many strings, and of terminals, and tags: their letters would separate words.
_BLANKS = lazy_regex(r"(?<!\\)\\++[nrtbf]|\x1b\[[0-9;]{0,20}[A-Za-z]|<[^<>]{1,400}>")
ENCODED_MAX = 400


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line of a summary. ``is_claimed``: it states a wish, a rule or a decision. ``is_attributed``: of a person."""

    text: str
    is_claimed: bool = False
    is_attributed: bool = False


@dataclass(frozen=True, slots=True)
class Voices:
    """The source split by speaker: a quote counts only for its own speaker, and tools make no decisions."""

    user: Ground
    assistant: Ground
    tool: Ground

    @classmethod
    def of_messages(cls, messages: Sequence[Message], asked: str = "", *, answer: str | None = None) -> Voices:
        """Return the voices of these messages; ``asked`` is what the user said before them.

        ``answer`` is what a model wrote about them. Words that are not in it do not hide that it repeats the others.
        """

        def said_by(author: Author) -> list[str]:
            return [said for one in messages if one.role == author and (said := read_said(one, author))]

        results = [part.text for one in messages for part in one.parts if part.kind in ("result", "media")]
        encoded = (text for result in results for text in decode(result))
        words = None if answer is None else frozenset(split_words(answer))
        texts = ([*said_by("user"), asked], said_by("assistant"), [*results, *encoded])
        return cls(*(Ground(spoken, words) for spoken in texts))

    def screen(self, words: str) -> tuple[list[str], int]:
        """Return the lines of a summary that do not pass a tool's words off as a person's, and how many others do."""
        rows = self._read_rows(words.splitlines())
        gone: set[int] = set()
        block: list[int] = []
        for at, row in enumerate([*rows, SummaryLine("")]):
            if row.is_claimed:
                block.append(at)
            elif row.text.strip() or at == len(rows):
                gone |= self._find_borrowed(rows, block)
                block = []
        return [row.text for at, row in enumerate(rows) if at not in gone], len(gone)

    def is_borrowed(self, sentence: str, *, is_attributed: bool = False) -> bool:
        """Return whether a sentence repeats a run of words that only a tool ever returned.

        If it names a person as its source, one name or number that only a tool returned is enough.
        """
        is_theirs = is_attributed or _ATTRIBUTED.search(sentence) is not None
        return bool(self._find_borrowed([SummaryLine(sentence, True, is_theirs)], [0]))

    def _read_rows(self, lines: Sequence[str]) -> list[SummaryLine]:
        rows: list[SummaryLine] = []
        wish_level = 0
        is_wish = in_item = in_quote = False
        first = 0
        for at, line in enumerate(lines):
            plain = normalise(line).strip()
            below = lines[at + 1].strip() if at + 1 < len(lines) else ""
            if not plain or HEADING.match(plain) or _LEADS_IN.match(plain) or _UNDERLINE.match(below):
                if plain:
                    is_wish, wish_level = _read_heading(plain, is_wish, wish_level)
                rows.append(SummaryLine(line))
                in_item = in_quote = False
                continue
            continues = in_item and not _ITEM.match(plain) and not _SPEAKER.match(plain)
            row, in_quote = self._read_line(line, in_quote and continues)
            if is_wish and not in_quote:
                row = replace(row, is_claimed=True)
            if not continues:
                first = at
            elif row.is_claimed != rows[-1].is_claimed and not in_quote:
                # A sentence that runs over lines is judged as one; each line of it changes once at most.
                if row.is_claimed:
                    rows[first:] = [replace(one, is_claimed=True) for one in rows[first:]]
                row = replace(row, is_claimed=True)
            rows.append(row)
            in_item = True
        return rows

    def _read_line(self, line: str, continues: bool) -> tuple[SummaryLine, bool]:
        """Return a line as a row, and whether it is a true quotation; ``continues``: the line before it was one."""
        if continues:
            said = line.strip()
            holds = self.user.has_sentence(said)
            return (SummaryLine(line) if holds else SummaryLine(f"- {said}", True)), holds
        speaker = _SPEAKER.match(normalise(line))
        if speaker:
            who, said = speaker["who"].upper(), speaker["said"].strip()
            if said and (self.user if who == "U" else self.assistant).has_sentence(said):
                return SummaryLine(line if f"{who}> " in line else f"{who}> {said}"), True
            return SummaryLine(f"{speaker['lead'].strip('*') or '- '}{said}" if said else "", True, True), False
        is_attributed = _ATTRIBUTED.search(line) is not None
        is_claimed = is_attributed or bool(_RULES.search(line) or _TEMPLATE.search(line))
        return SummaryLine(line, is_claimed, is_attributed), False

    def _find_borrowed(self, rows: Sequence[SummaryLine], block: Sequence[int]) -> set[int]:
        """Return which of these lines, read as one text, have something that only a tool returned."""
        found = {
            at
            for at in block
            if rows[at].is_attributed and any(self._is_of_tool(Ground.has, one) for one in find_claims(rows[at].text))
        }
        words = [(word, at) for at in block for word in split_words(rows[at].text)]
        found.update(at for _, at in words[WORDS_MAX:])
        han = HAN_WEIGHT_ATTRIBUTED if any(rows[at].is_attributed for at in block) else HAN_WEIGHT
        weights = [WORD_WEIGHT if word.isascii() else han for word, _ in words[:WORDS_MAX]]
        stop = weight = 0
        for start, own in enumerate(weights):
            while stop < len(weights) and weight < RUN_WEIGHT:
                weight += weights[stop]
                stop += 1
            if weight < RUN_WEIGHT:
                break
            if self._is_of_tool(Ground.has_run, [word for word, _ in words[start:stop]]):
                found.update(at for _, at in words[start:stop])
            weight -= own
        return found

    def _is_of_tool(self, has: Callable[[Ground, Any], bool], piece: Any) -> bool:
        return has(self.tool, piece) and not has(self.user, piece) and not has(self.assistant, piece)


def _read_heading(line: str, is_wish: bool, wish_level: int) -> tuple[bool, int]:
    """Return whether the lines below a heading are wishes, and the level of the heading that says so.

    A heading within such a section, a bold line and a line that leads in do not end it, unless they are ours.
    """
    name = line.strip("#*:：- ").casefold()
    marks = _LEVEL.match(line)
    level = len(marks[0]) if marks else 0
    if name in _WISHES or _WISH_NAME.search(name):
        return True, level or wish_level or 6
    if is_wish and name not in _NEUTRAL and (not level or level > wish_level):
        return True, wish_level
    return (False, 0) if level or name in _NEUTRAL else (is_wish, wish_level)


def decode(text: str, depth: int = 1) -> Iterable[str]:
    """Yield what a text says in the usual encodings, where a model could read it: escapes, entities, bytes, base64."""
    if _BLANKS.search(text):
        text = _BLANKS.sub(" ", text)
        yield text
    if "\\u" in text or "U+" in text:
        yield _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
    if "&" in text:
        yield html.unescape(text)
    if _BYTES.search(text):
        # Not urllib's ``unquote``: the core imports nothing that could reach a network.
        yield _BYTES.sub(lambda found: bytes.fromhex(_BYTE_MARK.sub("", found[0])).decode(errors="replace"), text)
    for number, found in enumerate(_ENCODED.finditer(text)):
        if number >= ENCODED_MAX:
            return
        body = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            plain = base64.b64decode(body + "=" * (-len(body) % 4)).decode()
        except (binascii.Error, ValueError):
            continue
        if plain.replace("\n", "").isprintable():
            yield plain
            if depth:
                yield from decode(plain, depth - 1)
