"""Injection: whether the newest user message refers to what left the view, and the text that is added at the tail.

The decision is pure and says why. The added text is between two marked lines, is exact, and is never longer than its
budget; it goes after everything else, so that no cached prefix changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from refold.conversation import because
from refold.conversation.message import mark
from refold.conversation.reason import Reason, detect_language
from refold.patterns import lazy_regex
from refold.reading.sentences import split_sentences
from refold.recall.options import InjectMode
from refold.recall.originals import is_question
from refold.recall.search import Recalled, UnitPart
from refold.recall.words import STOP_WORDS, find_words, query_words, value_words
from refold.stages.record.frame import CLOSES, OPENS, neutralise

# Scores are shares of the message's words. Tuned on one half of the questions: rather too few snippets than too many.
SCORE_CUED = 0.3
SCORE_VALUE = 0.25
SCORE_ASKED = 0.5
SCORE_ALIKE = 0.65
SCORE_BESIDE = 0.45
SCORE_ALWAYS = 0.05
SNIPPETS_MAX = 3
NEVER = 9.0
# A message this long needs no context.
MESSAGE_CHARS_MAX = 2_000
# A snippet that mostly repeats the message adds nothing.
NEW_SHARE = 0.25
_WORDS_MIN = 2
_SAID = "said|told|mentioned|discussed|talked|suggested|recommended|noted"
_SETTLED = "decided|agreed|chose|picked|settled"
# "I decided" and "since we talked" bring news, "what was it like" asks about them.
_CUE = lazy_regex(
    rf"\b(?:earlier|previously|last time|a while (?:ago|back)|at the (?:start|beginning)|"
    rf"(?<!since )(?:you|we|I)(?: had| have|'ve|'d)?(?: both| already| just)? (?:{_SAID})|"
    rf"(?:you|we)(?: had| have|'ve|'d)?(?: both| already| just)? (?:{_SETTLED})|"
    rf"(?:did|had|have) (?:we|I|you)(?: ever)? "
    rf"(?:say|tell|mention|discuss|talk|decide|agree|choose|pick|settle|suggest|recommend|note|{_SAID}|{_SETTLED})|"
    r"(?:do you|can you) remember|remind me(?! why| how much)|(?:like|as|same as|than) before|go(?:ing)? back to|"
    r"was it again|(?:said|saw|did|used|was)(?: \w+)? before|before[.?!]|"
    r"(?:what|which|who|where|when) (?:was|were) (?:it(?! like)|that|the(?! best)|our|my|his|her))\b|"
    r"之前|刚才|上次|前面|早先|以前|还记得|记得吗|提到(?:过|的)|说过|讨论过|决定的|当时|先前|最初|原来的",
    re.I,
)
# A time stamp and a name before a message are not its content: its neighbours have them too.
_TIME = r"(?:\d{1,2}:\d\d|\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?/\d\d?/\d{2,4})"
_INSIDE = r"[^\n\[\](){}<>]{0,60}"
_STAMP = lazy_regex(
    rf"\s*(?:[\[(<]{_INSIDE}?{_TIME}{_INSIDE}[\])>]|{_TIME}(?:[\d:.,/TZ +-]|[ap]m\b){{0,30}})[ \t:,-]*"
    r"(?:[^\W\d][\w.' -]{0,40}:(?=\s))?",
    re.I,
)
# "Could you book it?" has the form of a question but does not ask about anything that was said.
_REQUEST = lazy_regex(r"\b(?:can|could|would|will|may) (?:you|we|i)\b", re.I)
# "What do you like about it?" asks the other one; "what did you find in it?" asks for what was said.
_ABOUT_YOU = lazy_regex(r"\byou(?:r|rs)?\b", re.I)
_YOU_DID = lazy_regex(r"\b(?:did|had|were) you\b|\byou (?:did|had|were|found|made|wrote|gave|ran|set|\w+ed)\b", re.I)
_ASKS = lazy_regex(r"\b(?:what|which|who|whom|whose|where|when|how|why|tell me|remind)\b", re.I)
# Times, amounts and small numbers are everywhere; a value with letters, or a long one, is a name.
_TELLING = lazy_regex(r"[^\W\d]|\d{5}")
# What a Chinese question wants to know: a passage that answers nearly always repeats it.
_WANTED_ZH = lazy_regex(
    r"的(?P<of>[\u3400-\u9fff]{2,4}?)都?(?:是|有|在|为|叫|要|得|呢|吗|多少|几|哪|什么|怎|[？?]|$)|"
    r"什么(?P<which>[\u3400-\u9fff]{2,4}?)[？?吗呢]|(?P<number>[\u3400-\u9fff]{2})[是有要]?(?:多少|几[点号楼])"
)
_WORDING = {
    "en": ("recalled from earlier in this conversation, exact; not part of the request", "end of recalled text"),
    "zh": ("以下为本次对话较早内容的原文摘录，不属于请求", "摘录结束"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason in a message to search hidden messages, and the score that a snippet needs.

    ``query`` is what to look for. ``values`` are exact values that the message names: they count if only hidden
    messages have them.
    """

    reason: Reason
    query: str = ""
    score_min: float = NEVER
    values: tuple[str, ...] = ()

    @property
    def is_one(self) -> bool:
        """True if hidden messages are worth a look."""
        return self.score_min < NEVER or bool(self.values)

    @property
    def needs_value(self) -> bool:
        """True if only a hidden message with one of the values would be added."""
        return self.score_min >= NEVER


@dataclass(frozen=True, slots=True)
class Injection:
    """The text that goes to the tail, and why. ``text`` is empty unless ``acts``."""

    acts: bool
    reason: Reason
    snippets: tuple[Recalled, ...] = ()
    text: str = ""
    tokens: int = 0


def find_cause(newest: str, mode: InjectMode) -> Cause:
    """Return what in the newest user message is a reason to add snippets, without reading anything else."""
    if mode == "off":
        return Cause(because.RECALL_OFF())
    if not newest.strip():
        return Cause(because.RECALL_NO_WORDS())
    if mode == "always":
        return Cause(because.RECALL_ALWAYS(), newest, SCORE_ALWAYS)
    if len(newest) > MESSAGE_CHARS_MAX:
        return Cause(because.RECALL_LONG())
    values = tuple(value for value in value_words(newest) if _TELLING.search(value))
    if stamp := _STAMP.match(newest):
        newest = newest[stamp.end() :]
    cue = _CUE.search(newest)
    # The words of the reference are not the words that were said then.
    rest = _CUE.sub(" ", newest) if cue else newest
    words = [word for word in query_words(rest) if word not in STOP_WORDS]
    if len(words) < (1 if cue else _WORDS_MIN):
        return Cause(because.RECALL_VAGUE(), newest, values=values)
    if cue is not None:
        return Cause(because.RECALL_CUE(cue=cue.group()), rest, SCORE_CUED, values)
    if is_question(newest.strip()) and _asks_for_record(newest):
        return Cause(because.RECALL_QUESTION(), newest, SCORE_ASKED, values)
    return Cause(because.RECALL_UNRELATED(), newest, values=values)


def _asks_for_record(newest: str) -> bool:
    """Return whether the last question is specific, and asks for what was said rather than for an action or opinion."""
    asked = next((sentence.text for sentence in reversed(split_sentences(newest))), "")
    if _REQUEST.search(newest) and not _ASKS.search(newest):
        return False
    if _ABOUT_YOU.search(asked) and not _YOU_DID.search(asked):
        return False
    return len([word for word in query_words(asked) if word not in STOP_WORDS]) >= _WORDS_MIN


def decide_injection(
    newest: str,
    found: Sequence[Recalled],
    cause: Cause,
    *,
    rare: frozenset[str],
    in_view: str,
    tokens_max: int,
    count_text: Callable[[str], int],
) -> Injection:
    """Decide whether snippets of hidden messages go to the tail.

    ``in_view`` is the text that the model sees anyway; ``rare`` are the words of the query that few passages have.
    """
    # A passage that is only near a match may answer a search; without a search it would be noise.
    asked, said = query_words(cause.query).keys(), frozenset(find_words(newest))
    matching = [one for one in found if one.role != "system" and not asked.isdisjoint(find_words(one.unit))]
    unseen = [one for one in matching if one.text.strip() not in in_view and _tells_more(one.unit, said)]
    if not unseen:
        return Injection(False, because.RECALL_IN_VIEW() if matching else because.RECALL_NO_MATCH())
    needed, why = cause.score_min, cause.reason
    answers = needed == SCORE_ALWAYS or any(_is_answer(one, cause, rare) for one in unseen)
    # What one passage answers, those beside it may complete.
    chosen = [one for one in unseen if answers and one.score >= min(needed, SCORE_BESIDE)]
    named = "" if chosen else _find_hidden_value(cause.values, unseen, in_view)
    if named:
        needed, why = SCORE_VALUE, because.RECALL_VALUE(value=named[:60])
        chosen = [one for one in unseen if named in one.unit.casefold() and one.score >= needed]
    if not chosen and needed >= NEVER:
        return Injection(False, why)
    if not chosen:
        score = round(unseen[0].score, 4)
        return Injection(False, because.RECALL_WEAK(because=why, score=score, needed=needed))
    return _write(newest, chosen[:SNIPPETS_MAX], why, tokens_max=tokens_max, count_text=count_text)


def _is_answer(one: Recalled, cause: Cause, rare: frozenset[str]) -> bool:
    """Return whether a passage has a rare word or an exact value of the question, such as a name, and what it asks for.

    A word that stands everywhere names nothing. "What did you say earlier" needs less of the other words.
    """
    if rare.isdisjoint(find_words(one.unit)) and not any(value in one.unit.casefold() for value in cause.values):
        return False
    if wanted := _WANTED_ZH.search(cause.query):
        return one.score >= cause.score_min and wanted[wanted.lastgroup or 0] in one.unit
    return one.score >= (SCORE_BESIDE if cause.score_min <= SCORE_CUED else SCORE_ALIKE)


def _tells_more(text: str, said: frozenset[str]) -> bool:
    """Return whether a text says something that the message does not."""
    words = frozenset(find_words(text))
    return len(words - said) >= NEW_SHARE * len(words)


def _find_hidden_value(values: Sequence[str], unseen: Sequence[Recalled], in_view: str) -> str:
    """Return the first of these values that is in a snippet and nowhere in view."""
    seen = in_view.casefold() if values else ""
    texts = [one.unit.casefold() for one in unseen]
    return next((value for value in values if value not in seen and any(value in text for text in texts)), "")


def _write(
    newest: str, chosen: Sequence[Recalled], why: Reason, *, tokens_max: int, count_text: Callable[[str], int]
) -> Injection:
    """Write the snippets out, fewer if they do not fit."""
    for count in range(len(chosen), 0, -1):
        text = write_snippets(chosen[:count], newest)
        tokens = count_text(text)
        if tokens <= tokens_max:
            handles = ", ".join(mark(one.handle) for one in chosen[:count])
            return Injection(
                True, because.RECALL_QUOTED(because=why, handles=handles), tuple(chosen[:count]), text, tokens
            )
    return Injection(False, because.RECALL_NO_FIT(because=why, tokens=tokens_max))


def write_snippets(found: Sequence[Recalled], like: str = "") -> str:
    """Return results between two lines that mark them as recalled; what is quoted cannot leave them."""
    opening, closing = _WORDING[detect_language([like or found[0].text])]
    body = "\n".join(f"{write_head(one, said)}\n{neutralise(said.text)}" for one in found for said in one.said)
    return f"{OPENS}{opening}{CLOSES}\n{body}\n{OPENS}{closing}{CLOSES}"


def write_head(one: Recalled, said: UnitPart) -> str:
    """Return the line above words of a result: their handle, who said them, and which part of a message they are."""
    part = "" if one.is_whole or said.handle != one.handle else f", characters {one.start}–{one.stop}"
    return f"{mark(said.handle)} {said.role}{part}:"
