"""Whether one sentence of a note is true of the messages that it cites.

Each check compares one thing that a sentence can claim with the events that would make it true: an outcome with the
outcome of the call, a deed with the call that did it, a value with its spelling and its owner, a wish with the words of
a person, a speaker with who said it, a denial with what was denied. A check that finds no event of its kind does not
guess: the sentence is then supported by words alone, or not at all. Nothing here rewords a sentence or asks a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.patterns import lazy_regex
from refold.reading.rules import find_kinds, read_table
from refold.reading.same import matter_words
from refold.stages.ground import Deed, Scope, find_claims, is_number, is_whole_number, join_thousands, normalise
from refold.stages.ground import share_words as share

# A wish repeats at least this share of a person's words; a wrong speaker has less than half of the right one's.
WISH_SHARE, SPEAKER_SHARE, DEED_SHARE, OBJECT_SHARE, CAUSE_SHARE = 0.5, 0.3, 0.25, 0.34, 0.4
SHOWN_CHARS = 80
OCCURRENCES_MAX = 40

_HAN_GAP = lazy_regex(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])")
_CLAUSE = lazy_regex(r"[,;，；。！!?？\n]|\.\s|\b(?:but|and)\b")
_NO_VALUE = r"[\"'\s:=]{1,6}(?:no|none|false|null|0)\b"
_SMALL = lazy_regex(r"(?<![A-Za-z0-9_.,:/$#-])\$?(\d{1,2}(?:\.\d{1,2})?)(?![A-Za-z0-9_:/%-]|[.,]\d)")
_SMALL_ZH = lazy_regex(r"(\d{1,2}(?:\.\d)?|[两二三四五六七八九十])(?=[个次届家条种名件张位分份处项])")
_NAMES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS = {
    **dict(zip(_NAMES, range(2, 13), strict=True)),
    **dict(zip("二三四五六七八九十", range(2, 11), strict=True)),
    "两": 2,
}
_WORD_NUMBER = lazy_regex(rf"\b({'|'.join(_NAMES)})\b(?! of the\b)", re.I)
_CALLED = lazy_regex(r"(?<=[a-z0-9,)] )[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*|[\u3400-\u9fff]{1,2}·[\u3400-\u9fff]{1,2}")
_ID = lazy_regex(r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{3,40}\b|\b(?:case|step|test|page|option|phase) \d{1,2}\b")
_CODE = lazy_regex(r"(?<![\w./-])(?=[\w./-]*?(?:[A-Z0-9_]{4}|[/_]))[\w./-]++")
_PERSONAL = lazy_regex(r"\b[A-Z][a-z]{2,}\b(?!\()")
_CHANGES = {"created": "create", "deleted": "delete", "moved": "move", "reverted": "revert", "restored": "revert"}


@cache
def _list_generic() -> frozenset[str]:
    return matter_words("user users customer person people wants asked said wish wishes prefers decided rule assistant")


@cache
def _rule(name: str) -> re.Pattern[str]:
    return re.compile(read_table("rules/claims.toml")[name]["pattern"], re.I)


@cache
def _list_deeds() -> list[tuple[re.Pattern[str], frozenset[str]]]:
    deeds = read_table("rules/claims.toml")["deed"]
    return [(re.compile(deed["pattern"], re.I), frozenset(deed["verbs"])) for deed in deeds]


Check = Callable[[str, Scope], Reason]


def find_fault(sentence: str, scope: Scope, *, is_wish: bool = False, is_heading: bool = False) -> Reason:
    """Return what is wrong with a sentence; no reason if its messages bear it out or say nothing about it.

    ``is_wish``: it is in a section of wishes, where everything must be a person's.
    """
    text = _HAN_GAP.sub("", normalise(sentence).strip())
    if _rule("order").search(text) and text not in scope.ground.whole.text:
        return because.NOT_A_RECORD()
    checks: list[Check] = [_check_values, _check_names]
    if is_heading:
        checks = checks[:1]
    elif is_wish or (_rule("wish").search(text) and not _did_it(text)):
        checks += [_check_wish, _check_numbers]
    elif states_order(text):
        checks += [_check_order]
    else:
        checks += [
            _check_speaker,
            _check_outcome,
            _check_deed,
            _check_numbers,
            _check_owners,
            _check_denial,
            _check_cause,
        ]
    return next((fault for check in checks if (fault := check(text, scope))), NO_REASON)


def states_order(text: str) -> bool:
    """Return whether a sentence is an order or a rule by its words, whoever gave it; a report of one is a finding."""
    bare = text.lstrip("-*•#>|\"' ")
    # "Read all pages" is what was done: a note is written in the past.
    if (
        _rule("reports").search(text)
        or _read_sign(text)
        or bare.lower().startswith(("read ", "set ", "put ", "cut ", "let "))
    ):
        return False
    return bool(_rule("orders").search(bare) or find_kinds(bare, "person") & {"rule", "request"})


def is_supported(text: str, scope: Scope) -> bool:
    """Return whether the messages of a sentence have some of its words."""
    words = matter_words(text) - _list_generic()
    return not words or sum(word in scope.near.lower for word in words) >= SPEAKER_SHARE * len(words)


def carries_claim(text: str) -> bool:
    """Return whether a sentence claims something that must not stay unless it is borne out."""
    return bool(
        find_claims(text)
        or _SMALL.search(text)
        or _rule("passed").search(text)
        or _rule("failed").search(text)
        or _find_deed(text)
    )


def _did_it(text: str) -> bool:
    """Return whether a sentence only says that a person did something."""
    return bool(_rule("people").search(text)) and not _rule("says").search(text) and bool(_find_deed(text))


# Values: spelled as in the messages, beside their owner.


def _check_values(text: str, scope: Scope) -> Reason:
    claims = find_claims(text)
    invented = [claim for claim in claims if not scope.ground.whole.has(claim)]
    if invented:
        return because.NOT_IN_SOURCE(claims=", ".join(invented[:3]))
    away = [claim for claim in claims if not scope.near.has(claim) and any(char.isdigit() for char in claim)]
    return because.NOT_CITED(claims=", ".join(away[:3])) if away else NO_REASON


def _check_names(text: str, scope: Scope) -> Reason:
    for name in _CALLED.findall(text):
        held = scope.near.lower if " " in name else scope.ground.whole.lower
        if name.lower() not in held:
            return because.NOT_IN_SOURCE(claims=name)
    for place in _rule("place").findall(text):
        tail = re.split(r"[的了在是有找订选]", place)[-1][-5:]
        if tail not in scope.ground.whole.text:
            return because.NOT_IN_SOURCE(claims=place)
    return NO_REASON


def _read_numbers(text: str) -> Iterator[tuple[str, frozenset[str], int]]:
    """Yield the small numbers of a sentence, each with the ways to write it and its place."""
    for found in _SMALL.finditer(text):
        yield found[1], frozenset((found[1],)), found.start(1)
    for found in _SMALL_ZH.finditer(text):
        number = _DIGITS.get(found[1], found[1])
        yield found[1], frozenset((found[1], str(number))), found.start()
    for found in _WORD_NUMBER.finditer(text):
        yield found[1], frozenset((found[1].lower(), str(_DIGITS[found[1].lower()]))), found.start()


def _check_numbers(text: str, scope: Scope) -> Reason:
    """A small number occurs in a message on a line with one of the words around it, or counts what was done."""
    lines = [line for piece in scope.texts for line in piece.splitlines()]
    for number in filter(str.isdigit, find_claims(text)):
        if (named := _read_fields(text, text.find(number), scope)) and number not in named:
            return because.NOT_CITED(claims=number)
    for number, forms, at in _read_numbers(text):
        counted = {str(len(step.action.targets)) for step in scope.steps} | {str(len(set(_CODE.findall(text))))}
        if forms & counted:
            continue
        around = matter_words(text[max(0, at - 40) : at + 40]) - {number}
        holders = [line for line in lines if _holds(line, forms)]
        named = _read_fields(text, at, scope)
        if (named and not forms & named) or not holders or not any(_speaks_of(line, around) for line in holders):
            return because.NOT_CITED(claims=number)
    return NO_REASON


def _holds(line: str, forms: frozenset[str]) -> bool:
    return any(
        re.search(rf"(?<![A-Za-z0-9_.]){re.escape(form)}(?![A-Za-z0-9_]|\.\d)" if form.isascii() else form, line, re.I)
        for form in forms
    )


def _speaks_of(line: str, words: frozenset[str]) -> bool:
    lower = line.lower()
    return len(line) < 24 or any(word in lower for word in words)


def _read_fields(text: str, at: int, scope: Scope) -> set[str]:
    """Return what the runs say of what a sentence counts: passed, failed, skipped."""
    after = matter_words(text[at : at + 24])
    return {
        value
        for step in _narrow(text, scope.steps)
        if step.outcome
        for name, value in step.outcome.fields
        if matter_words(name) & after and value.isdigit()
    }


def _check_owners(text: str, scope: Scope) -> Reason:
    """A value belongs to the name before it, of all names of that shape, wherever both are in one piece of text."""
    plain = join_thousands(text)
    ids = set(_ID.findall(plain))
    people = {name for name in _PERSONAL.findall(plain[1:]) if name.lower() not in ("the",)} | set(
        _PERSONAL.findall(plain)[:1]
    )
    codes = re.findall(r"\b[A-Z]{3,6}\b", plain)
    numbers = [one.strip("$#~%+-") for one in find_claims(plain) if not re.search(r"[A-Za-z/]", one)] + [
        one[0] for one in _read_numbers(plain)
    ]
    for value in dict.fromkeys(
        (*numbers, *codes, *(one for one in find_claims(plain) if one not in ids and one.endswith("Error")))
    ):
        for shape, own in ((_ID, ids - {value}), (_PERSONAL, people if value[:1].isdigit() else set())):
            fault = _find_owner(value, shape, own, scope.texts)
            if fault:
                return because.OTHER_OWNER(value=value, owner=fault)
    return _check_subject(plain, numbers, scope) or _check_pairs(plain, scope)


def _check_subject(text: str, numbers: Sequence[str], scope: Scope) -> Reason:
    """What a Chinese sentence gives a number of is named in the message with the number, or in the one before."""
    found = _rule("subject").match(text)
    if found is None or not numbers:
        return NO_REASON
    pairs = {found[1][at : at + 2] for at in range(len(found[1]) - 1)}
    around = [text for own, text in scope.windows if numbers[-1] in join_thousands(own) and not own.isascii()]
    is_named = any(pair in text for text in around for pair in pairs)
    return because.NOT_CITED(claims=f"{found[1]} {numbers[-1]}") if around and not is_named else NO_REASON


def _find_owner(value: str, shape: re.Pattern[str], own: set[str], texts: Sequence[str]) -> str:
    """Return whose a value is if it is never that of ``own``; empty if it may be, or if nothing says so."""
    other, styles = "", {name.isupper() for name in own}
    for piece in map(join_thousands, texts) if own else ():
        # Codes such as flight numbers are written out wherever they are meant; other names may be meant by "it".
        if not any(name in piece for name in own) and (shape is not _ID or styles != {True}):
            continue
        for number, found in enumerate(re.finditer(re.escape(value), piece)):
            if number >= OCCURRENCES_MAX:
                return ""
            if value[:1].isdigit() and not is_whole_number(piece, *found.span()):
                continue
            names = (name[0] for name in shape.finditer(piece, max(0, found.start() - 400), found.start()))
            before = [name for name in names if name.isupper() in styles]
            after = piece[found.end() : found.end() + 60].split("\n")[0]
            if not before or before[-1] in own or any(name in after for name in own):
                return ""
            other = before[-1]
    return other


def _check_pairs(text: str, scope: Scope) -> Reason:
    """Of two numbers of a sentence, each with a subject of its own, neither has the other's."""
    parts = [part for part in re.split(r"\b(?:and|while|but)\b|，|、", text) if re.search(r"\d", part)]
    if len(parts) != 2:
        return NO_REASON
    figures = [re.findall(r"\d+(?:\.\d+)?", part)[-1] for part in parts]
    nouns = [matter_words(re.split(r"(?<!\S)\S*?\d", part)[0]) - _list_generic() for part in parts]
    own, others = nouns[0] - nouns[1], nouns[1] - nouns[0]
    for piece in scope.texts:
        lower = join_thousands(piece).lower().replace("_", " ")
        for found in re.finditer(rf"(?<!\d){re.escape(figures[0])}(?!\d)", lower):
            before = lower[max(0, found.start() - 120) : found.start()]
            mine, theirs = (max((before.rfind(word) for word in words), default=-1) for words in (own, others))
            if mine >= theirs or theirs < 0:
                break
            return because.OTHER_OWNER(value=figures[0], owner=" ".join(sorted(others)))
    return NO_REASON


# What happened: outcomes of calls, deeds.


def _read_sign(text: str) -> int:
    plain = _rule("fine").sub(" OK ", text)
    good, bad = _rule("passed").search(plain) is not None, _rule("failed").search(plain) is not None
    return good - bad


def _narrow(text: str, steps: Sequence[Deed]) -> list[Deed]:
    """Return the steps whose call names what a sentence names; all if there is none."""
    named = [claim for claim in find_claims(text) if not is_number(claim)]
    own = [step for step in steps if any(name in step.action.text or name in step.action.targets for name in named)]
    return own or list(steps)


def _check_outcome(text: str, scope: Scope) -> Reason:
    sign = _read_sign(text)
    if not sign:
        return NO_REASON
    steps = _narrow(text, [step for step in scope.steps if step.outcome is not None])
    said = (*scope.person, *scope.assistant)
    if sign > 0 and any(_rule("complains").search(one) for one in scope.person) and scope is not scope.ground.scope():
        return because.OTHER_SENSE(source=_show(next(one for one in scope.person if _rule("complains").search(one))))
    signs = [step.sign for step in steps]
    if not steps:
        words = matter_words(text) - _list_generic()
        return (
            NO_REASON
            if not scope.ground.steps or share(words, said) >= OBJECT_SHARE
            else because.NO_RUN(says=_show(text))
        )
    bad = [step for step in steps if step.sign < 0]
    if sign > 0 and bad and (len(bad) == len(steps) or _rule("every").search(text)):
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(bad[-1])))
    if (
        sign < 0
        and min(signs) >= 0
        and not _is_told(text, said)
        and not any(_rule("failed").search(step.result) for step in steps)
    ):
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(steps[-1])))
    return NO_REASON


def _is_told(text: str, said: Sequence[str]) -> bool:
    """Return whether somebody said that it failed."""
    words = matter_words(text)
    return any(_rule("failed").search(one) and share(words, (one,)) >= OBJECT_SHARE for one in said)


def _tell(step: Deed) -> str:
    outcome = step.outcome
    assert outcome is not None
    return outcome.error or outcome.text or (step.result.strip().splitlines() or ["ok"])[0]


def _find_deed(text: str) -> frozenset[str]:
    for pattern, verbs in _list_deeds():
        if (found := pattern.search(text)) and not _rule("modal").search(text[: found.start()]):
            return verbs
    return frozenset()


def _check_deed(text: str, scope: Scope) -> Reason:
    verbs = _find_deed(text)
    if not verbs:
        return NO_REASON
    words = matter_words(text) - _list_generic()
    if _rule("people").match(text):
        return NO_REASON if share(words, scope.person) >= DEED_SHARE else because.NO_CALL(says=_show(text))
    if not scope.ground.steps:
        said = (*scope.person, *scope.assistant)
        deed = next(found[0] for pattern, _ in _list_deeds() if (found := pattern.search(text)))
        return NO_REASON if any(deed.rstrip("了") in one for one in said) else because.NO_CALL(says=_show(text))
    own = [step for step in scope.recent if _does(step, verbs)]
    done = [step for step in own or scope.ground.steps if _does(step, verbs) and _concerns(step, text, words, scope)]
    if not done:
        return because.NO_CALL(says=_show(text))
    good = [step for step in done if step.sign >= 0]
    if not good:
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(done[-1])))
    denied = next(
        (word for word in words if word.isalpha() and re.search(rf"\b{word}\w*{_NO_VALUE}", good[-1].result, re.I)), ""
    )
    if denied:
        return because.RUN_SAYS(says=_show(text), source=f"{denied}: no")
    paths = {change.path for step in good for change in step.changes}
    later = [step for step in scope.ground.steps if step.number > good[-1].number and step.sign >= 0]
    undone = [step for step in later for change in step.changes if change.kind == "reverted" and change.path in paths]
    return because.RUN_SAYS(says=_show(text), source=_show(undone[-1].action.text)) if undone else NO_REASON


def _does(step: Deed, verbs: frozenset[str]) -> bool:
    kinds = {_CHANGES.get(change.kind, "edit") for change in step.changes}
    return bool(kinds & verbs) or (step.action.verb in verbs and step.action.verb not in ("run", "build"))


def _concerns(step: Deed, text: str, words: frozenset[str], scope: Scope) -> bool:
    """Return whether a step is about what a sentence names: its files, or else enough of its words."""
    files = [claim for claim in find_claims(text) if re.search(r"\.\w{1,5}$", claim) and not is_number(claim)]
    if files:
        touched = (step.action.text, *step.action.targets, *(change.path for change in step.changes), step.result)
        return any(name in text for name in files for text in touched)
    if not any(word.isascii() for word in words):
        return True
    lower = "\n".join((step.text, *scope.texts)).lower() if step in scope.steps else step.text.lower()
    ascii_words = [word for word in words if word.isascii()]
    return sum(word in lower for word in ascii_words) >= OBJECT_SHARE * len(ascii_words)


# Who said it, and in which sense.


def _check_order(text: str, scope: Scope) -> Reason:
    """An order that names nobody is a person's, or what the assistant itself means to do."""
    said = (*scope.person, *scope.assistant)
    return NO_REASON if share(_list_words(text), said) >= WISH_SHARE else because.NOBODYS_WISH()


def _list_words(text: str) -> frozenset[str]:
    """Return the words of a wish that say what is wished."""
    words = matter_words(_rule("people").sub(" ", text)) - _list_generic()
    return frozenset(word for word in words if not _rule("says").fullmatch(word))


def _check_wish(text: str, scope: Scope) -> Reason:
    """A wish is a person's: most of its words are theirs, and it does not turn their sense round."""
    words = _list_words(text)
    if not scope.has_person:
        return because.NOBODYS_WISH()
    said = (*scope.person, *(scope.assistant if scope.approves and not _rule("proposes").search(text) else ()))
    if share(words, said) < WISH_SHARE:
        return because.NOBODYS_WISH()
    clauses = [clause for one in scope.person for clause in _CLAUSE.split(one) if clause and clause.strip()]
    best = max(clauses, key=lambda clause: share(words, (clause,)), default="")
    mine = _read_sense(text)
    close = [clause for clause in clauses if share(words, (clause,)) >= SPEAKER_SHARE]
    turned = bool(close) and all(_read_sense(clause) != mine for clause in close)
    if mine == "wants":
        firm = [word for word in words if any(word in matter_words(one) for one in clauses)]
        turned = turned or any(_read_sense(_all_with(word, clauses)) == "denies" for word in firm)
    return because.OTHER_SENSE(source=_show(best)) if turned else NO_REASON


def _all_with(word: str, clauses: Sequence[str]) -> str:
    """Return a clause with a word: one that does not deny, if there is one."""
    own = [clause for clause in clauses if word in matter_words(clause)]
    return next((clause for clause in own if _read_sense(clause) != "denies"), own[0])


def _read_sense(text: str) -> str:
    plain = _rule("relative").sub(" ", text)
    return "permits" if _rule("permits").search(plain) else "denies" if _rule("denies").search(plain) else "wants"


def _check_speaker(text: str, scope: Scope) -> Reason:
    is_assistants = _rule("assistant").search(text[:30]) is not None
    if is_assistants == (_rule("people").search(text[:30]) is not None):
        return NO_REASON
    words = matter_words(_rule("assistant").sub("", _rule("people").sub("", text))) - _list_generic()
    sides = (scope.assistant, scope.person) if is_assistants else (scope.person, scope.assistant)
    own, other = (share(words, said) for said in sides)
    if (scope.approves and not is_assistants) or re.search(r"accept|agree|接受|同意", text):
        return NO_REASON  # It may have the words of the one who proposed it.
    if other >= SPEAKER_SHARE and own < other * 0.75:
        return because.OTHER_SPEAKER(source=_show(max(sides[1], key=lambda one: share(words, (one,)))))
    return NO_REASON


def _check_denial(text: str, scope: Scope) -> Reason:
    """A denial is in the messages, too; and what a person asked and was denied is not so."""
    said = (*scope.person, *scope.assistant)
    words = matter_words(text) - _list_generic()
    best = max(said, key=lambda one: share(words, (one,)), default="")
    if best.rstrip().endswith(("?", "？", "吗", "呢")) and share(words, (best,)) >= SPEAKER_SHARE:
        answer = next(iter(said[said.index(best) + 1 :]), "")
        if re.match(r"\A\W*+(?:no\b|not\b|不是|没有|不)", answer, re.I) and not _rule("denies").search(text):
            return because.OTHER_SENSE(source=_show(answer))
    found = re.search(r"\b(?:no|not|never) (\w{4,})|[没不](?:有|是|在)([\u3400-\u9fff]{2})", text)
    plain = "\n".join(scope.texts)
    is_empty = any(not step.result.strip(" []{}\n") for step in scope.steps)
    if (
        found
        and not _rule("denies").search(plain)
        and not is_empty
        and not re.search(r"\b(?:none|null|false)\b", plain, re.I)
    ):
        return because.OTHER_SENSE(source=_show(best or plain))
    return NO_REASON


def _check_cause(text: str, scope: Scope) -> Reason:
    """A cause has words of the messages that are cited for it."""
    found = _rule("because").search(text)
    if found is None:
        return NO_REASON
    words = matter_words(found[1] or found[2]) - _list_generic()
    lower = scope.near.lower
    known = [word for word in words if word in lower]
    return (
        because.NO_CAUSE(cause=_show((found[1] or found[2]).strip()))
        if len(known) < CAUSE_SHARE * len(words)
        else NO_REASON
    )


def _show(text: str) -> str:
    line = " ".join(text.split()).strip("-*• ")
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"
