"""Known facts, where each was said first and last, and which statements replace earlier ones.

Facts come from compressions (the ledger) and, by rule, from what people and the assistant said. A replaced fact stays,
with the one that replaced it. Nothing is reworded.

``put_newer_first`` moves a newer search result before the older one that it contradicts. Only the best few results are
compared, and a later one only moves up to the place of an earlier one: nothing is added and nothing is left out. A
question about the past keeps the order of the match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from refold.conversation.author import IsObserved
from refold.conversation.message import is_observation, message_handle
from refold.conversation.view import Fact, FactKind
from refold.ledger.records import SessionRow, format_of
from refold.ledger.sql.ledger import Ledger
from refold.patterns import lazy_regex
from refold.reading.facts import find_facts
from refold.reading.read import read
from refold.reading.sentences import split_sentences
from refold.recall.originals import read_stored
from refold.recall.words import STOP_WORDS, find_words, is_value, query_words, stem

if TYPE_CHECKING:
    from refold.recall.search import Recalled


_SENTENCE_CHARS_MAX = 400
_VALUE = lazy_regex(r"v?\d[\w.:/-]*|(?<![\w.-])[\w.-]*+/[\w./-]+|`[^`]{1,60}`|\"[^\"]{1,60}\"|“[^”]{1,60}”")
_FILLER = lazy_regex(
    r"(?:\s|[=:：]|\b(?:is|are|was|were|to|at|on|be|will|now|the|a|an|number|version|of|as|set|use|using|changed|moved|"
    r"switched|updated|from)\b|是|为|改为|改成|改到|换成|用|在|到|号|了|现在|定为)+$",
    re.I,
)
_NAME = lazy_regex(r"([A-Za-z][\w-]*|[\u3400-\u9fff]{1,4})$")
_SUBJECT = lazy_regex(
    r"^(?P<who>(?:my|our|the|his|her|their) [\w' -]{2,50}?|i|call me) "
    r"(?:(?:is|are|was|live in|work at|work as|am)(?: now)? |(?<=call me )(?=\w))(?P<what>.+)|"
    r"^(?P<who_zh>我(?:的[\u3400-\u9fff\w]{1,8}?)?|[\u3400-\u9fff\w]{2,8}?)(?:是|叫|住在|改为|改成|换成)(?P<what_zh>.+)",
    re.I,
)
# Several statements about these can hold at once.
_OPEN_SUBJECTS = frozenset(
    ("i", "issue", "problem", "bug", "cause", "fix", "error", "step", "result", "next", "tests", "我")
)
_REPLACES = lazy_regex(
    r"\b(?:instead of|rather than|no longer|not|replaces?|from)\s+(?:the\s+|port\s+|version\s+)?$|"
    r"(?:不再用|不用|而不是|代替|从)\s*$",
    re.I,
)
_NEUTRAL = STOP_WORDS | {
    stem(word)
    for word in re.findall(
        r"\w+",
        """use using decide decided go going choose chosen chose set change changed move moved switch switched instead
        now prefer preferred keep run runs listen listens new old number update updated agree agreed pick
        settle settled""",
    )
}


def contradicts(earlier: str, later: str, kind: str = "key") -> bool:
    """Return whether the later of two statements replaces the earlier one."""
    if earlier == later or max(len(earlier), len(later)) > _SENTENCE_CHARS_MAX:
        return False
    before, after = _slots(earlier), _slots(later)
    for name, value in after.items():
        if name in before and before[name] != value and _same_matter(earlier, later, {name}):
            return True
    shares_words = not _content(earlier) or not _content(earlier).isdisjoint(_content(later))
    if shares_words and any(_is_renounced(later, value) for value in before.values()):
        return True
    if _differ_in_predicate(earlier, later):
        return True
    return kind == "preference" and _differ_in_one_word(earlier, later)


@lru_cache(maxsize=8_192)
def _slots(text: str) -> dict[str, str]:
    """Return the named values of a statement: the word before each value, and the value."""
    found: dict[str, str] = {}
    for match in _VALUE.finditer(text):
        before = text[max(0, match.start() - 60) : match.start()]
        if _REPLACES.search(before):
            continue
        name = _NAME.search(_FILLER.sub("", before))
        if name is not None and not _NEUTRAL.issuperset({stem(name.group().lower())}):
            shape = "1" if match.group()[0].isdigit() else "x"
            found[f"{shape} {stem(name.group().lower())}"] = match.group().strip('`"“”.,:;/ ')
    return found


def _same_matter(earlier: str, later: str, slots: set[str]) -> bool:
    """Return whether two statements with a value of the same name are about the same thing."""
    names = {slot.partition(" ")[2] for slot in slots}
    before, after = _content(earlier) - names, _content(later) - names
    if not before or not after:
        return True
    return 2 * len(before & after) >= min(len(before), len(after))


@lru_cache(maxsize=8_192)
def _content(text: str) -> frozenset[str]:
    """Return the words that say what a statement is about, values left out."""
    words = find_words(_VALUE.sub(" ", text))
    return frozenset(word for word in words if word not in _NEUTRAL and len(word) > (2 if word.isascii() else 1))


def _is_renounced(later: str, value: str) -> bool:
    """Return whether a statement says that this value no longer holds."""
    found = re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", later) if value else ()
    return any(_REPLACES.search(later[max(0, one.start() - 40) : one.start()]) for one in found)


def _differ_in_predicate(earlier: str, later: str) -> bool:
    before, after = _SUBJECT.match(earlier.strip()), _SUBJECT.match(later.strip())
    if before is None or after is None:
        return False
    who = [(found["who"] or found["who_zh"] or "").casefold() for found in (before, after)]
    what = [(found["what"] or found["what_zh"] or "").strip(" .。!！").casefold() for found in (before, after)]
    if who[0] != who[1] or what[0] == what[1] or who[0].split()[-1] in _OPEN_SUBJECTS:
        return False
    # Only a short predicate is a value; a long one tells a story.
    return all(len(one.split()) <= 4 and len(one) <= 40 for one in what)


def _differ_in_one_word(earlier: str, later: str) -> bool:
    before, after = _content(earlier), _content(later)
    shared = before & after
    return bool(shared) and len(before - shared) == 1 and len(after - shared) == 1 and len(shared) <= 4


LOOKED_AT = 8
# A result that scores much lower is about something else, whatever words it shares.
SCORE_SHARE = 0.5
# A statement about the query holds most of its words.
HELD_SHARE = 0.6
# In a long sentence "now" is a word like any other.
_PLAIN_CHARS_MAX = 110
_SPOKEN_BY = ("user", "assistant")
_COLON = lazy_regex(r":\s+|：")
_SENTENCES_MAX = 40
_CHANGE = lazy_regex(
    r"\b(?:actually|now|no longer|not any ?more|instead|from now on|chang(?:e|ed|es|ing)|mov(?:e|ed|es|ing)|"
    r"switch(?:ed|es|ing)?|updat(?:e|ed|es|ing)|rais(?:e|ed)|lower(?:ed)?|increas(?:e|ed)|reduc(?:e|ed)|renam(?:e|ed)|"
    r"replac(?:e|ed|es)|reschedul(?:e|ed)|postpon(?:e|ed)|delay(?:ed)?|correct(?:ion|ed)|turns out)\b|"
    r"现在|如今|改为|改成|改到|改用|换成|换到|换了|不再|更新|更正|推迟|提前|调整|以后|其实",
    re.I,
)
_PAST = lazy_regex(
    r"\b(?:used to|before|previous(?:ly)?|earlier|original(?:ly)?|first(?:ly)?|initial(?:ly)?|(?<!how )old|"
    r"former(?:ly)?|at the (?:start|beginning)|history)\b|以前|之前|原来|最初|一开始|曾经|过去|当时|起初|旧",
    re.I,
)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A result's sentence with most words of the query, and which words these are."""

    place: int
    text: str
    held: frozenset[str]


def put_newer_first(found: Sequence[tuple[int, Recalled]], query: str) -> list[Recalled]:
    """Return results, best first, each later statement before the earlier one that it replaced."""
    ranked = [one for _, one in found]
    words = frozenset(word for word, weight in query_words(query).items() if weight >= 1)
    if len(found) < 2 or not words or is_value(query) or _PAST.search(query):
        return ranked
    stated = {id(one): _find_statement(place, one, words) for place, one in found[:LOOKED_AT]}
    at = 0
    while at < min(LOOKED_AT, len(ranked)) - 1:
        later = [
            other
            for other in ranked[at + 1 : LOOKED_AT]
            if other.score >= SCORE_SHARE * ranked[at].score and _replaces(stated[id(ranked[at])], stated[id(other)])
        ]
        if later:
            newest = max(later, key=lambda one: stated[id(one)].place)  # type: ignore[union-attr]
            moved = replace(newest, score=ranked[at].score)
            stated[id(moved)] = stated[id(newest)]
            ranked.remove(newest)
            ranked.insert(at, moved)
        at += 1
    return ranked


def _find_statement(place: int, one: Recalled, words: frozenset[str]) -> _Statement | None:
    if one.role not in _SPOKEN_BY:
        return None
    best: _Statement | None = None
    # The statement proper follows a colon: "I thought again: …".
    spoken = (piece for sentence in split_sentences(one.text) for piece in _COLON.split(sentence.text))
    for piece in islice(spoken, _SENTENCES_MAX):
        held = words.intersection(find_words(piece))
        if len(held) >= max(HELD_SHARE * len(words), len(best.held) if best else 0):
            best = _Statement(place, piece, held)
    return best


def _replaces(earlier: _Statement | None, later: _Statement | None) -> bool:
    if earlier is None or later is None or later.place <= earlier.place or later.text.endswith(("?", "？")):
        return False
    if not earlier.held <= later.held:
        return False  # It may lack the very value that the query asks about.
    is_plain = max(len(earlier.text), len(later.text)) <= _PLAIN_CHARS_MAX
    return (is_plain and _CHANGE.search(later.text) is not None) or contradicts(earlier.text, later.text)


# Only the newest messages are read for facts; older ones are in the ledger since they were folded.
MESSAGES_MAX = 2_000
_PAGE = 1_000
# Each fact is compared with this many before it: old contradictions are rare, and all pairs would be quadratic.
_COMPARED_MAX = 400


@dataclass(frozen=True, slots=True)
class KnownFact:
    """One fact, where it was said (``handles``) and when; ``superseded_by`` is the text of the one that replaced it."""

    kind: FactKind
    text: str
    handles: tuple[str, ...] = ()
    first_seen: float = 0.0
    last_seen: float = 0.0
    superseded_by: str = ""
    session_id: str = ""

    @property
    def holds(self) -> bool:
        """True while no later fact contradicts this one."""
        return not self.superseded_by


def collect_facts(
    ledger: Ledger, row: SessionRow | None, *, with_history: bool = False, is_observed: IsObserved = is_observation
) -> list[KnownFact]:
    """Return the facts of a session, or of all of them, in the order they were last said."""
    if row is None:
        by_session: dict[str, list[tuple[Fact, float]]] = {}
        for one in ledger.read_facts(None):
            by_session.setdefault(one.session_id, []).append((one.fact, one.created_at))
        known = [fact for name, said in by_session.items() for fact in resolve_facts(said, name)]
    else:
        said = [(fact.fact, fact.created_at) for fact in ledger.read_facts(row.id)]
        ids = ledger.read_path(row.id).ids[-MESSAGES_MAX:]
        known = resolve_facts([*said, *find_said(ledger, row, ids, is_observed)], row.id)
    return [fact for fact in known if with_history or fact.holds]


def resolve_facts(said: Iterable[tuple[Fact, float]], session_id: str = "") -> list[KnownFact]:
    """Merge repeated facts and mark those that a later one contradicts; in the order they were last said."""
    known: dict[str, KnownFact] = {}
    for fact, seen in said:
        key = " ".join(fact.text.split()).casefold()
        if not key:
            continue
        before = known.pop(key, None)
        if before is None:
            said_at = (fact.handle,) if fact.handle else ()
            known[key] = KnownFact(fact.kind, fact.text, said_at, seen, seen, session_id=session_id)
            continue
        handles = tuple(dict.fromkeys((*before.handles, *filter(None, (fact.handle,)))))
        times = [time for time in (before.first_seen, before.last_seen, seen) if time]
        known[key] = replace(
            before, handles=handles, first_seen=min(times, default=0.0), last_seen=max(times, default=0.0)
        )
    # The same time for a whole batch is common: the sort keeps the order in which things were said.
    return _mark_superseded(sorted(known.values(), key=lambda fact: fact.last_seen))


def _mark_superseded(facts: Sequence[KnownFact]) -> list[KnownFact]:
    marked = list(facts)
    for at, later in enumerate(facts):
        for earlier in range(max(0, at - _COMPARED_MAX), at):
            if marked[earlier].holds and contradicts(facts[earlier].text, later.text, later.kind):
                marked[earlier] = replace(marked[earlier], superseded_by=later.text)
    return marked


def find_said(ledger: Ledger, row: SessionRow, ids: Sequence[str], is_observed: IsObserved) -> list[tuple[Fact, float]]:
    """Return the facts in what a person or the assistant said in these messages, by rule."""
    form = format_of(row)
    found: list[tuple[Fact, float]] = []
    for start in range(0, len(ids), _PAGE):
        for stored in ledger.read_messages(row.id, ids[start : start + _PAGE]):
            if stored.role not in ("user", "assistant") or stored.is_forgotten:
                continue
            message = read_stored(stored, form)
            is_result = message.role == "user" and is_observed(message)
            events = read(message, as_result=is_result)
            found += [(fact, stored.created_at) for fact in find_facts(events, message_handle(message))]
    return found
