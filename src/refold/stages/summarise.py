"""Summaries by a model: ask for the words of one fold, check them against their source, ask once more if they fail.

All words that it returns are verified. After a failure there are none, but a reason, and the caller uses the extract.
Facts and index stay mechanical, except for facts that the prompt asked for, which are verified in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason, as_reason, join_reasons, say
from refold.conversation.view import Fact, FactKind, View
from refold.patterns import lazy_regex
from refold.reading.advance import advance, make_reader
from refold.reading.facts import FACT_CHARS_MAX, FACT_CHARS_MIN
from refold.reading.state import State
from refold.reading.state_page import write_facts
from refold.stages.claims import find_fault
from refold.stages.ground import Ground
from refold.stages.prompts import (
    FACT_KINDS,
    Demands,
    PromptRoom,
    Question,
    Told,
    name_messages,
    write_question,
    write_repair,
)
from refold.stages.record.frame import neutralise, shorten_words
from refold.stages.record.source import Source
from refold.stages.stage import Ask, Goal, Reply
from refold.stages.verify import Dropped, add_missing, verify_words

ROUNDS_MAX = 2
# If more sentences than this share are invented, the rest is not trusted either.
INVENTED_SHARE_MAX = 0.5
# How much rules and open requests may add to a model's words.
ADDED_SHARE = 0.3
FACTS_MAX = 40
# Of the lines that were dropped, so many are kept with a record, cut to so many characters.
DROPPED_MAX, LINE_CHARS = 20, 200
# An answer with more characters is far over the requested length and is not read at all.
CHARS_PER_TOKEN_MAX, CHARS_FREE = 20, 4_000
_SHOWN_MAX = 3
_BULLET = lazy_regex(r"^(?:[-*•·]+|\d{1,2}[.)、](?!\d))\s*")
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\s*\Z", re.S)


@dataclass(frozen=True, slots=True)
class ModelWords:
    """A model's verified words, or the reason why there are none. ``notes`` say what was dropped and added.

    ``declined``: there is no model to write them, which is not a failure. ``is_partial``: the answer was cut off, and
    these are the whole lines of it.
    """

    text: str = ""
    facts: tuple[Fact, ...] = ()
    notes: tuple[Reason, ...] = ()
    failure: Reason = NO_REASON
    declined: bool = False
    is_partial: bool = False
    dropped: tuple[str, ...] = ()
    usage: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request for the words of one fold: its source, the view it is part of, the goal, and the demands on it.

    ``opening`` are the lines that we put before the words. With ``kept``, the provider messages that stay in view after
    the fold, something other than the prompt may write the words the first time.
    """

    source: Source
    view: View
    goal: Goal
    demands: Demands
    room: PromptRoom
    opening: str = ""
    kept: tuple[object, ...] | None = None

    def ask(self) -> Generator[Ask, Reply, ModelWords]:
        """Ask for the words, at most twice."""
        source, goal, demands = self.source, self.goal, self.demands
        ids = {message.id for message in source.messages}
        numbers = [at for at, message in enumerate(self.view.messages, 1) if message.id in ids]
        state = advance(State(), source.spoken, make_reader())
        question = self.write(numbers, state)
        ground = Ground(source.spoken, numbers=numbers, also=goal.restored.values(), asked=source.asked)
        reasons: list[Reason] = []
        archived = () if self.kept is None else tuple(item.raw for item in source.items)
        prompt, usage = question.prompt, (0, 0, 0)
        for _ in range(ROUNDS_MAX):
            if reasons:
                prompt = write_repair(question, say(reasons[-1], goal.language), goal.language)
            ask = Ask(prompt, tokens_max=demands.tokens_max * 6 // 5)
            if question.follow and not reasons:
                ask = replace(ask, follow=question.follow, last=source.messages[-1].id)
            reply = yield ask if reasons else replace(ask, archived=archived, kept=self.kept or ())
            if reply.declined:
                return ModelWords(declined=True)
            usage = _add_usage(usage, reply)
            if reply.error:
                reasons.append(as_reason(reply.error))
                break
            is_partial = reply.finish_reason == "length" and demands.style == "note" and "\n" in reply.text.strip()
            if is_partial:
                reply = replace(reply, text=reply.text.rpartition("\n")[0], finish_reason="stop")
            # A model that was asked twice may write no headings; without a summary there would be no compression.
            is_last_chance = bool(reasons) and demands.style == "sections"
            words = self.judge(reply, question, ground, state, headings=() if is_last_chance else demands.headings)
            if not words.failure:
                again = tuple(because.ASKED_AGAIN(because=reason) for reason in reasons)
                cut = (because.ANSWER_CUT_OFF(),) if is_partial else ()
                return replace(words, notes=(*again, *cut, *words.notes), is_partial=is_partial, usage=usage)
            reasons.append(words.failure)
        first, *later = reasons
        failure = join_reasons((first, *(because.ASKED_AGAIN(because=reason) for reason in later)))
        return ModelWords(failure=failure, usage=usage)

    def write(self, numbers: Sequence[int], state: State) -> Question:
        """Return the question, with the state of the work as facts that a note must not contradict."""
        source, goal, demands = self.source, self.goal, self.demands
        is_note = demands.style == "note"
        fresh = {message.id for message in source.fresh}
        cited = tuple(at for at, one in zip(numbers, source.messages, strict=True) if one.id in fresh)
        told = Told(
            instructions=goal.instructions,
            asked=source.asked,
            facts=write_facts(state, goal.language) if is_note else "",
            numbers=cited if is_note else (),
            names=name_messages(source.spoken_fresh, cited) if is_note else "",
            restored=goal.restored,
        )
        return write_question(
            source.spoken_fresh, source.previous, demands, self.room, language=goal.language, told=told
        )

    def judge(
        self, reply: Reply, question: Question, ground: Ground, state: State, *, headings: Sequence[str]
    ) -> ModelWords:
        """Return the verified part of an answer; ``failure`` says why none of it can be used."""
        source, demands, count = self.source, self.demands, self.view.lens.count_text
        if len(reply.text) > demands.tokens_max * CHARS_PER_TOKEN_MAX + CHARS_FREE:
            return ModelWords(failure=because.ANSWER_HUGE(chars=len(reply.text)))
        words, listed = split_facts(clean_words(reply.text, self.opening), demands)
        size, source_size = count(words), sum(item.tokens for item in source.items)
        rejection = find_rejection(
            replace(reply, text=words), question, tokens=size, source_tokens=source_size, headings=headings
        )
        if rejection:
            return ModelWords(failure=rejection)
        verified = verify_words(neutralise(words), ground, self.goal.language if demands.style == "note" else None)
        text, dropped = verified.text, verified.dropped
        if verified.invented_share > INVENTED_SHARE_MAX or not text:
            return ModelWords(failure=because.MOSTLY_INVENTED(because=_name_faults(dropped)))
        notes = [because.DROPPED(sentences=len(dropped), because=_name_faults(dropped))] if dropped else []
        if demands.chars_max and len(text) > demands.chars_max:
            text = shorten_words(text, demands.chars_max)
            notes.append(because.CUT_TO(chars=demands.chars_max))
        room = max(120, int(demands.tokens_max * ADDED_SHARE))
        layout = demands.layout if headings else None
        added = add_missing(text, state, count, tokens_max=room, layout=layout, language=self.goal.language)
        if added.pending:
            notes.append(because.ASKS_ADDED(asks=added.pending))
        if added.rules:
            notes.append(because.RULES_ADDED(rules=added.rules))
        lines = tuple(f"{one.text.strip()[:LINE_CHARS]} ({say(one.why, self.goal.language)})" for one in dropped)
        return ModelWords(added.text, read_facts(listed, ground), tuple(notes), dropped=lines[:DROPPED_MAX])


def _add_usage(usage: tuple[int, int, int], reply: Reply) -> tuple[int, int, int]:
    read, cached, written = (
        reply.usage.get(name, 0) for name in ("input_tokens", "cache_read_tokens", "output_tokens")
    )
    return usage[0] + read, usage[1] + cached, usage[2] + written


def clean_words(text: str, opening: str) -> str:
    """Return an answer without a fence around all of it, and without the opening that we put there ourselves (S4.4)."""
    fenced = _FENCE.match(text.strip())
    words = (fenced[1] if fenced else text).strip()
    for line in filter(None, (one.strip() for one in opening.splitlines())):
        words = words.removeprefix(line).lstrip()
    return words


def split_facts(words: str, demands: Demands) -> tuple[str, list[str]]:
    """Return the summary and the lines of facts after their mark, if both were asked for."""
    if not demands.with_facts:
        return words, []
    lines = words.splitlines()
    at = next((at for at, line in enumerate(lines) if is_facts_heading(line)), None)
    if at is None:
        return words, []
    return "\n".join(lines[:at]).strip(), lines[at + 1 :]


def is_facts_heading(line: str) -> bool:
    """Return whether a line is the heading of a list of facts, as models write it with or without being asked."""
    return line.strip("#*:：- ").casefold() in {"facts", "key facts", "事实", "关键事实"}


def strip_bullet(line: str) -> str:
    """Return a line of a list without its bullet or number; a figure that it begins with stays."""
    return _BULLET.sub("", line.strip()).strip()


def read_facts(lines: list[str], ground: Ground) -> tuple[Fact, ...]:
    """Return the facts that their source bears out, each with its kind."""
    facts: dict[str, Fact] = {}
    for line in lines:
        if is_facts_heading(line):
            continue
        text = neutralise(strip_bullet(line))
        kind, text = _read_kind(text)
        is_wrong = bool(find_fault(text, ground.scope(), is_wish=kind == "preference"))
        if FACT_CHARS_MIN <= len(text) <= FACT_CHARS_MAX and not is_wrong:
            facts.setdefault(text, Fact(kind, text))
    return tuple(facts.values())[:FACTS_MAX]


def _read_kind(text: str) -> tuple[FactKind, str]:
    head, colon, rest = text.replace("：", ":", 1).partition(":")
    word = head.strip("[]*【】 ").casefold()
    for kind, names in FACT_KINDS.items():
        if colon and (word in names or word == kind):
            return kind, rest.strip()
    return "key", text


def _name_faults(dropped: tuple[Dropped, ...]) -> Reason:
    """Return the reasons of the first dropped lines, and how many more there are."""
    faults = list({str(one.why): one.why for one in dropped}.values())
    more = [because.MORE(count=len(faults) - _SHOWN_MAX)] if len(faults) > _SHOWN_MAX else []
    return join_reasons((*faults[:_SHOWN_MAX], *more)) if faults else because.NOT_A_RECORD()


# Answers that are not summaries.

# A text longer than this share of what it replaces is not a summary.
SIZE_SHARE_MAX = 0.7
HEADINGS_MIN = 1
ECHO_CHARS = 60
COPIED_CHARS = 400
# A refusal is short, or opens the answer; a summary may well mention one that happened.
REFUSAL_CHARS_MAX = 600

_REASONS = {
    "length": because.ANSWER_CUT_OFF(),
    "tool_calls": because.ANSWER_CALLS(),
    "refusal": because.ANSWER_REFUSES(),
    "content_filter": because.ANSWER_FILTERED(),
    "error": because.NO_ANSWER(),
}
_REFUSAL = lazy_regex(
    r"\A\W{0,4}(?:(?:I['’]?m|I am) (?:(?:very |really |so )?sorry|unable|not able)|(?:sorry|apologies|unfortunately),? "
    r"(?:but )?(?:I|as)\b|I (?:can(?:no|['’])t|could not|won['’]t|will not|must decline|do not feel)|as an AI\b|"
    r"很?抱歉|对不起|我(?:无法|不能|没有办法)|作为(?:一个|一名)?(?:AI|人工智能)|不好意思)",
    re.I,
)
_CALL = lazy_regex(
    r"\A\s*(?:```(?:json|xml)?\s*)?(?:<\|?(?:tool_call|function_call|tool_use|invoke|function=|antml)|"
    r"\[TOOL_CALLS?\]|\{\s*\"(?:name|tool|function|tool_name|tool_calls|action)\"\s*:)",
    re.I,
)
_PAGE = lazy_regex(r"\A\s*(?:<!doctype|<html|<\?xml|<head|<body)", re.I)
_DATA = lazy_regex(r"\A\s*(?:```(?:json)?\s*)?[\[{]\s*(?:[\"'{\[]|\Z)")
_WORD = lazy_regex(r"\w{2}|[\u3400-\u9fff]")


def find_rejection(
    reply: Reply, question: Question, *, tokens: int = 0, source_tokens: int = 0, headings: Sequence[str] = ()
) -> Reason:
    """Return why a reply cannot be a summary; no reason if it can. It must use some of ``headings``."""
    if reason := _REASONS.get(reply.finish_reason):
        return reason
    text = reply.text.strip()
    if not _WORD.search(text):
        return because.ANSWER_EMPTY()
    if _CALL.match(text):
        return because.ANSWER_CALLS()
    if _PAGE.match(text):
        return because.ANSWER_IS_PAGE()
    if _REFUSAL.match(text) and len(text) <= REFUSAL_CHARS_MAX:
        return because.ANSWER_REFUSES()
    if is_echo(text, question):
        return because.ANSWER_ECHOES()
    if source_tokens and tokens > source_tokens * SIZE_SHARE_MAX:
        return because.ANSWER_LONG(tokens=tokens, source=source_tokens)
    if _count_headings(text, headings) < min(HEADINGS_MIN, len(headings)):
        return because.ANSWER_BARE()
    if _DATA.match(text):
        return because.ANSWER_IS_DATA()
    return NO_REASON


def is_echo(text: str, question: Question) -> bool:
    """Return whether an answer is the question again, or a long piece of it."""
    opening = " ".join(question.demands.split())[:ECHO_CHARS]
    if len(opening) >= ECHO_CHARS // 2 and opening in " ".join(text[:20_000].split()):
        return True
    return len(text) >= COPIED_CHARS and text in question.prompt


def _count_headings(text: str, headings: Sequence[str]) -> int:
    lines = {line.strip().strip("#*:： ").casefold() for line in text.splitlines() if len(line) < 80}
    return sum(heading.casefold() in lines for heading in headings)
