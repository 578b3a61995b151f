"""The index of exact values: found in a span, ranked by how likely they are needed again, written within a budget.

Filled by rules, never by a model; every value is a substring of what was said. The index is cumulative: a later fold
takes in the artifacts of an earlier one and ranks them again. A value is written with what its source says it is. A
value that the reader sees anyway, in what is kept or within a longer value, is not written again.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from refold.conversation.message import Message, Part, message_handle
from refold.conversation.reason import Language
from refold.conversation.view import Artifact
from refold.memo import Memo
from refold.patterns import lazy_regex
from refold.reading.values import RANDOM, VALUE_CHARS_MAX, find_values, shape_of
from refold.stages.extract.actions import Action, find_actions
from refold.stages.extract.layout import shorten_handle

# Limits of what a fold remembers for the next one; its text shows a fraction of that.
ARTIFACTS_MAX = 3_000
# An entry of an earlier fold counts less with each later fold, unless it is seen again.
CARRIED_SHARE = 0.85

# Parts that may hold a value.
READ_KINDS = frozenset(("text", "call", "result"))
# A call with so much text carries a script or a file.
SCRIPT_CHARS = 400
# So many ids of one shape in one output, none of them used again, are written as one line.
CROWD_MIN = 12
CROWDED = frozenset(("id", "number", "address", "time", "date", "money"))

Values = tuple[tuple[tuple[str, str], int], ...]
# What was read of texts may take so much memory in this process.
_READ: Memo[Values] = Memo(12_000_000, lambda values: sum(120 + len(value) for (_, value), _ in values))

# Values that mean nothing without their label.
_MEANT = frozenset(("id", "number", "money", "date", "time", "address", "version"))
_LABEL = lazy_regex(
    # On one line: "else:" is no label of the line number below it.
    r"""["']?\b([A-Za-z][\w.-]{1,28})["']?[ \t]{0,3}[:=][ \t]{0,3}["'$€£¥]{0,2}\Z"""
    r"""|\b([A-Za-z][\w-]{2,24})\s(?:is|are|was|of|number|no\.)\s(?:at\s|about\s)?["'`$€£¥]?\Z"""
    r"""|(?<![\u3400-\u9fff])([\u3400-\u9fff]{2,8}(?<![了就也都还才只不又已我你您他她它们这那的很要会能]))(?:是|为|：|:)\s?\Z"""
)
# "Its phone": whose it is was said before.
_PRONOUN_ZH = lazy_regex(r"\A(?:它|他|她|其|该|这|那|您|你|我)?(?:们|家|里|个)?的")
# A call is a line of code, no statement: ``password1 = forms.CharField(``.
_STATED = lazy_regex(
    r"\s{0,2}(?:=|: )\s{0,2}(?![^\n]{0,50}\w\()([^\s{\[\"',][^\n{}\[\]\"]{2,50})(?:\n|\Z|(?<=[.;])(?=\s)|(?<=[。；]))"
)


def find_meaning(sort: str, value: str, text: str) -> tuple[str, str]:
    """Return what a text says a value is: the key or label before it, or what is stated about it after it.

    Names of code and files say themselves what they are.
    """
    if sort not in _MEANT or not text:
        return "", ""
    at = text.find(value)
    if at < 0:
        return "", ""
    stop = at + len(value)
    if sort == "id" and (stated := _STATED.match(text, stop, stop + 80)):
        return "", stated[1].strip()
    before = _LABEL.search(text[max(0, at - 48) : at])
    return (_PRONOUN_ZH.sub("", next(filter(None, before.groups())).strip()), "") if before else ("", "")


# ``self.name``, ``store.claim_due``, ``__init__``: a crowd in every source file, and no use to a reader by itself.
_ATTRIBUTE = lazy_regex(r"(?:[a-z_]\w*(?:\.[a-z_]\w*)+|__\w+__)\Z")
_STEM = lazy_regex(r"[./_:\\-]+")
_RUN = lazy_regex(r"[A-Za-z0-9_$#@~%./\\:+-]+")


@dataclass(slots=True)
class Evidence:
    """Occurrences of a value: in how many messages of each kind, among how many others, and when last."""

    sort: str
    value: str
    by_user: int = 0
    by_call: int = 0
    by_assistant: int = 0
    by_result: int = 0
    times: int = 0
    last_at: int = 0
    crowd: int = 1_000_000
    handle: str = ""

    @property
    def is_spoken(self) -> bool:
        """True if a person or the assistant used it, not only a tool."""
        return bool(self.by_user or self.by_call or self.by_assistant)


def find_artifacts(messages: Sequence[Message], actions: Sequence[Action] | None = None) -> list[Artifact]:
    """Return the exact values of these messages, most likely needed again first."""
    met: dict[str, Evidence] = {}
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if part.kind in READ_KINDS:
                _collect(met, at, message, number, part)
    notes = _note_files(find_actions(messages) if actions is None else actions)
    spoken = Counter(stem for seen in met.values() if seen.is_spoken for stem in _stems(seen.value))
    weights = {
        value: weigh(seen, note=notes.get(value, ""), kinship=_kinship(seen, spoken), size=len(messages))
        for value, seen in met.items()
        if seen.is_spoken or seen.sort != "identifier" or not _ATTRIBUTE.match(value)
    }
    crowds = _find_crowds(met, notes)
    for example, members in crowds.items():
        for value in members:
            if value != example:
                weights.pop(value, None)
    # Most values of a long span never make the index: only the best become artifacts.
    best = heapq.nsmallest(ARTIFACTS_MAX, weights, key=lambda value: (-weights[value], value))
    return [
        Artifact(
            met[value].sort,
            value,
            met[value].handle,
            notes.get(value, ""),
            weights[value],
            len(crowds.get(value, ())),
        )
        for value in best
    ]


def _find_crowds(met: dict[str, Evidence], notes: dict[str, str]) -> dict[str, list[str]]:
    """Return ids of one shape in one output that nobody has used since, by the one that is named as their example."""
    crowds: dict[tuple[str, str], list[str]] = {}
    for value, seen in met.items():
        is_one_of_many = seen.sort in CROWDED or RANDOM.fullmatch(value)
        if is_one_of_many and not seen.is_spoken and value not in notes:
            crowds.setdefault((seen.handle, shape_of(value)), []).append(value)
    # What is a crowd in one output is one in others, too.
    shapes = {shape for (_, shape), members in crowds.items() if len(members) >= CROWD_MIN}
    return {members[0]: members for (_, shape), members in crowds.items() if shape in shapes and len(members) > 1}


def rank(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Return artifacts by weight, heaviest first, ties by value so that the order is always the same."""
    return sorted(artifacts, key=lambda artifact: (-artifact.weight, artifact.value))


def merge_artifacts(earlier: Iterable[Artifact], later: Iterable[Artifact]) -> list[Artifact]:
    """Take what an earlier fold knew into what the new span shows, and rank them together."""
    merged = {artifact.value: replace(artifact, weight=artifact.weight * CARRIED_SHARE) for artifact in earlier}
    for artifact in later:
        before = merged.get(artifact.value)
        if before is not None:
            artifact = replace(artifact, weight=artifact.weight + before.weight, note=_join_notes(before, artifact))
        merged[artifact.value] = artifact
    return rank(merged.values())[:ARTIFACTS_MAX]


def _join_notes(earlier: Artifact, later: Artifact) -> str:
    """Return what became of a file: that it was read once more does not undo that it was written."""
    return earlier.note if later.note in ("", "read") and earlier.note else later.note


def weigh(seen: Evidence, *, note: str, kinship: float, size: int) -> float:
    """Return the odds that a value is needed again.

    The figures are rounded from what later calls of recorded agents really used: what a person names, what the agent
    has put into calls and files it has written come back; a value among many others, or an old one, seldom does.
    """
    odds = 1.0 * (seen.by_user > 0) + 0.4 * (seen.by_assistant > 0) + 0.3 * (seen.by_assistant > 1)
    odds += 1.0 * (seen.by_call > 0) + 0.9 * (seen.by_call > 1) + 0.4 * (seen.by_call > 3)
    odds += 0.3 * math.log2(1 + seen.times) - 0.4 * math.log2(1 + seen.by_result)
    odds -= 1.2 * (size - seen.last_at) / max(1, size) + 0.2 * math.log2(1 + seen.crowd)
    odds += 0.6 * kinship + 1.6 * (note in ("written", "deleted"))
    odds += _SORT_ODDS.get(seen.sort, 0.0) - 0.3 * math.log2(len(seen.value))
    # A small bare number, or a phrase that only the assistant put in capitals or quotes, seldom names anything.
    if not seen.by_user and ((seen.value.isdecimal() and len(seen.value) < 5) or seen.sort == "name"):
        odds -= 0.8
    return round(math.exp(odds), 5)


_SORT_ODDS = {
    "id": 1.2,
    "identifier": 0.6,
    "date": 0.6,
    "name": 0.5,
    "file": 0.4,
    "email": 0.3,
    "url": 0.1,
    "money": -0.3,
    "number": -0.5,
    "version": -0.5,
    "term": -1.2,
    "time": -2.0,
}


def _stems(value: str) -> set[str]:
    return {stem for stem in _STEM.split(value) if len(stem) > 2}


def _kinship(seen: Evidence, spoken: Counter[str]) -> float:
    """Return the share of a value's words that also occur in other values that a person or the assistant used."""
    stems = _stems(seen.value)
    own = 1 if seen.is_spoken else 0
    return sum(spoken[stem] > own for stem in stems) / len(stems) if stems else 0.0


def _collect(met: dict[str, Evidence], at: int, message: Message, number: int, part: Part) -> None:
    is_spoken = part.kind == "text"
    is_user = is_spoken and message.role == "user"
    # A script or a file that a call carries names a crowd of things; only what a short call names was asked for.
    is_script = len(part.text) >= SCRIPT_CHARS
    handle = message_handle(message, number)
    values = read_part(part)
    for (sort, value), times in values:
        if len(value) > VALUE_CHARS_MAX:
            continue
        seen = met.get(value)
        if seen is None:
            seen = met[value] = Evidence(sort, value)
        seen.times += times
        seen.last_at = at
        seen.crowd = min(seen.crowd, len(values))
        seen.by_user += is_user
        seen.by_call += part.kind == "call" and not (is_script and sort == "identifier")
        seen.by_assistant += is_spoken and not is_user
        seen.by_result += part.kind == "result"
        # The handle leads to the newest place that tells most: a result or a person, rather than a mere mention.
        if not seen.handle or is_user or part.kind == "result":
            seen.handle = handle


def read_part(part: Part) -> Values:
    """Return the exact values of one part of a message, each with how often it occurs."""
    text = _unescape(part.text) if part.kind == "call" else part.text
    with_names = part.kind == "text"
    return _READ.recall(lambda: tuple(find_values(text, with_names=with_names).items()), text, with_names)


def _unescape(arguments: str) -> str:
    """Return JSON text with its line breaks and quotes as separators, so that ``\\n`` glues no ``n`` to a word."""
    return arguments.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"') if "\\" in arguments else arguments


def _note_files(actions: Iterable[Action]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for action in actions:
        for touch, path in action.touched:
            if touch != "read" or path not in notes:
                notes[path] = touch
    return notes


Count = Callable[[str], int]
Read = Callable[[str], str]

# A bare handle of six digits costs about as much as two values: it pays from this many on.
GROUP_MIN = 4
# Names of which nothing is said take at most this part of the index; words say more than they do.
BARE_PART = 0.4
# So many values of one label are listed, and so many places of values that are written as one.
LISTED_MAX = 8
PLACES_MAX = 3
# Chinese and English names of the sorts, in the order of their lines.
SORT_NAMES: dict[str, tuple[str, str]] = {
    "file": ("files", "文件"),
    "id": ("ids", "编号"),
    "email": ("emails", "邮箱"),
    "url": ("links", "链接"),
    "address": ("addresses", "地址"),
    "date": ("dates", "日期"),
    "time": ("times", "时间"),
    "money": ("amounts", "金额"),
    "number": ("numbers", "数字"),
    "version": ("versions", "版本"),
    "flag": ("options", "选项"),
    "identifier": ("identifiers", "标识符"),
    "name": ("names", "名称"),
    "term": ("terms", "词语"),
}
_NOTES: dict[str, tuple[str, str]] = {
    "read": ("read", "已读"),
    "written": ("written", "已写"),
    "deleted": ("deleted", "已删"),
}
# Names of things; of these a record lists a few.
_NAMED = frozenset(("identifier", "name", "flag", "file"))
# These are noise without it.
_BARE = frozenset(("number", "money", "time", "version", "term"))
# One word of code or of a quotation, an option, signs: `yield`, "Run", `-rA`, `./.a`.
_NO_NAME = lazy_regex(r"-*[A-Za-z]+[:.!?]?|[\W_]*\w?[\W_]*")


@dataclass(frozen=True, slots=True)
class Index:
    """The written index, and the artifacts that are in it."""

    text: str
    shown: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True)
class Meant:
    """An exact value with what its source says it is: the label before it, or what is stated about it after it.

    ``cost`` is that of the value in a list, ``line_cost`` that of a line with its statement.
    """

    artifact: Artifact
    cost: int
    label: str = ""
    statement: str = ""
    line_cost: int = 0

    @property
    def is_bare(self) -> bool:
        """True for a name of which nothing is said: a list of them tells a reader little."""
        return self.artifact.sort in _NAMED and not (self.says_more or self.label)

    @property
    def says_more(self) -> bool:
        """True if the index says more of a value than the value itself."""
        return bool(self.artifact.note or self.artifact.alike or self.statement)


def find_useful(artifacts: Iterable[Artifact], count: Count, read: Read, seen: str = "") -> list[Meant]:
    """Return the values that tell a reader something new, with what they mean and what they cost.

    ``read`` returns an original by its handle; ``seen`` is what stays in view.
    """
    useful = []
    # Texts repeat their words: a value that is a run of such signs is looked for among the different runs.
    runs = "\n".join(dict.fromkeys(_RUN.findall(seen)))
    for artifact in artifacts:
        if artifact.value in (runs if _RUN.fullmatch(artifact.value) else seen):
            continue
        if artifact.sort == "name" and _NO_NAME.fullmatch(artifact.value):
            continue
        label, statement = find_meaning(artifact.sort, artifact.value, read(artifact.handle))
        if artifact.sort not in _BARE or label or statement:
            line_cost = count(f"{artifact.value} = {statement}\n") if statement else 0
            useful.append(Meant(artifact, count(f" {artifact.value},"), label, statement, line_cost))
    return useful


def write_index(
    values: Sequence[Artifact | Meant],
    tokens_max: int,
    count: Count,
    *,
    seen: str = "",
    language: Language = "en",
    stated_max: int = 0,
) -> Index:
    """Write the best values that fit into ``tokens_max``, leaving out what ``seen`` shows already.

    Values with a statement are words, too: they may take ``stated_max`` tokens more.
    """
    meant = [one if isinstance(one, Meant) else Meant(one, count(f" {one.value},")) for one in values]
    chosen = choose_values(meant, tokens_max, seen, stated_max)
    while chosen:
        text = _write_lines(chosen, language)
        size = count(text)
        if size <= tokens_max + stated_max:
            return Index(text, tuple(one.artifact for one in chosen))
        # The estimate was too kind: let go of the lightest share, at least one, so that this ends soon.
        surplus = max(1, len(chosen) * (size - tokens_max - stated_max) // size)
        chosen = chosen[:-surplus]
    return Index("", ())


def choose_values(values: Iterable[Meant], tokens_max: int, seen: str = "", stated_max: int = 0) -> list[Meant]:
    """Return the values to write: those worth most for each token that they cost."""
    priced = [(one, one.cost + (2 if one.says_more else 0)) for one in values]
    priced.sort(key=lambda pair: (-pair[0].artifact.weight / pair[1], pair[0].artifact.value))
    chosen = _choose_stated((one for one, _ in priced), stated_max, seen)
    taken = set(map(id, chosen))
    written = "".join(f"{one.artifact.value}\n" for one in chosen)
    room, bare_room = tokens_max, int(tokens_max * BARE_PART)
    misses = 0
    for one, cost in priced:
        value = one.artifact.value
        if id(one) in taken or value in seen or (value in written and not one.says_more):
            continue
        if one.is_bare and cost > bare_room:
            continue
        if cost > room:
            misses += 1
            if misses > 20:
                break
            continue
        room -= cost
        bare_room -= cost if one.is_bare else 0
        chosen.append(one)
        written += f"{value}\n"
    # A short value may have come before a longer one that contains it.
    return [one for one in chosen if one.says_more or written.count(one.artifact.value) == 1]


def _choose_stated(ranked: Iterable[Meant], tokens_max: int, seen: str) -> list[Meant]:
    """Return the best values with a statement that fit, whole lines counted."""
    chosen: list[Meant] = []
    for one in ranked:
        if one.statement and one.line_cost <= tokens_max and one.artifact.value not in seen:
            tokens_max -= one.line_cost
            chosen.append(one)
    return chosen


def _write_lines(chosen: Sequence[Meant], language: Language) -> str:
    """Write values under what they are: their own key or label, else their message or their sort."""
    zh = language == "zh"
    labelled: dict[str, list[str]] = {}
    crowds: dict[tuple[str, str], list[Artifact]] = {}
    stated: list[str] = []
    rest: list[Artifact] = []
    for one in chosen:
        artifact = one.artifact
        if artifact.alike:
            crowds.setdefault((artifact.sort, shape_of(artifact.value)), []).append(artifact)
        elif one.statement:
            stated.append(f"{artifact.value} = {one.statement}")
        elif one.label and not artifact.note:
            labelled.setdefault(one.label, []).append(artifact.value)
        else:
            rest.append(artifact)
    stated = [*(_write_crowd(alike, zh) for alike in crowds.values()), *stated]
    told = "\n".join(stated)
    labelled = {
        label: left for label, values in labelled.items() if (left := [one for one in values if one not in told])
    }
    keyed = "; ".join(f"{label}: {_list_some(values, zh)}" for label, values in labelled.items())
    return "\n".join(filter(None, (*stated, keyed, *_write_sorts(rest, zh))))


def _write_sorts(chosen: Sequence[Artifact], zh: bool) -> list[str]:
    groups: dict[str, list[Artifact]] = {}
    for artifact in chosen:
        if not artifact.note:
            groups.setdefault(artifact.handle, []).append(artifact)
    grouped = {handle for handle, members in groups.items() if handle and len(members) >= GROUP_MIN}
    by_sort: dict[str, list[Artifact]] = {}
    for artifact in chosen:
        if artifact.note or artifact.handle not in grouped:
            by_sort.setdefault(artifact.sort, []).append(artifact)
    lines = [
        f"{SORT_NAMES[sort][zh]}: {', '.join(_write_value(artifact, zh) for artifact in by_sort[sort])}"
        for sort in SORT_NAMES
        if sort in by_sort
    ]
    lines += [
        f"{shorten_handle(handle)} {', '.join(artifact.value for artifact in groups[handle])}"
        for handle in groups
        if handle in grouped
    ]
    return lines


def _write_crowd(crowd: Sequence[Artifact], zh: bool) -> str:
    """Write values of one shape as one line: how many, one of them, and where they are."""
    first, many = crowd[0], sum(one.alike for one in crowd)
    where = ", ".join(dict.fromkeys(shorten_handle(one.handle) for one in crowd[:PLACES_MAX]))
    where += f", +{len(crowd) - PLACES_MAX}" if len(crowd) > PLACES_MAX else ""
    name = SORT_NAMES["id" if first.sort == "identifier" else first.sort][zh]
    return f"{many} 个{name}，形如 {first.value}，见 {where}" if zh else f"{many} {name} like {first.value} in {where}"


def _list_some(values: Sequence[str], zh: bool) -> str:
    """List values of one label: all of a few, of many the first and how many there are."""
    if len(values) <= LISTED_MAX:
        return ", ".join(values)
    left = len(values) - LISTED_MAX
    return f"{', '.join(values[:LISTED_MAX])} {f'等 {left} 个' if zh else f'and {left} more'}"


def _write_value(artifact: Artifact, zh: bool) -> str:
    return f"{artifact.value} ({_NOTES[artifact.note][zh]})" if artifact.note in _NOTES else artifact.value
