"""Whether one sentence of a note is true of the messages that it cites.

Each check compares one thing that a sentence can claim with the events that would make it true: an outcome with the
outcome of the call, a deed with the call that did it, a value with its spelling and its owner, a wish with the words of
a person, a speaker with who said it, a denial with what was denied. A check drops a sentence where an event says
something else; where there is no event of its kind, it says nothing. Nothing here rewords a sentence or asks a model.
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
from refold.stages.ground import Deed, Scope, find_claims, is_number, join_thousands, normalise
from refold.stages.ground import share_words as share

# A wish repeats at least this share of a person's words; a wrong speaker has less than half of the right one's.
WISH_SHARE, SPEAKER_SHARE, DEED_SHARE, OBJECT_SHARE, STATED_SHARE, OWNED_SHARE = 0.5, 0.3, 0.25, 0.33, 0.6, 0.8
SHOWN_CHARS = 80

_PARTICLES = frozenset("的了是要在有和也都我你他她它这那吗呢吧啊去来到就把给请帮想个一并家")
_HAN_GAP = lazy_regex(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])")
_OPENS = lazy_regex(r"\A\W*(?:(?:so|but|and|then|however|later|also|之后|然后|后来|但是|但)\b[,，]?\s*)?", re.I)
_CLAUSE = lazy_regex(r"[,;，；。！!?？\n]|\.\s|\b(?:but|and)\b")
_RAISED = lazy_regex(r"\b[A-Z]\w+(?:Error|Exception|Warning)\b")
_NOUN_DENIED = lazy_regex(r"\b(?:no|without(?: an?| any)?) (error|warning|failure|exception)", re.I)
# Code and paths: a word in them says nothing of what happened.
_RUNS = ("test", "build", "run")
_REST = lazy_regex(r"\b(?:by|because|since|before|after|instead|so that|which|to (?:avoid|handle|prevent|make))\b.*")
_SPAN = lazy_regex(r"`[^`\n]*`|(?<![\w.<-])[\w.-]*+/[\w./-]+|(?<![\w-])[\w-]++\.[a-z]{1,4}\b")
_NO_VALUE = r"[\"'\s:=]{1,6}(?:no|none|false|null|0)\b"
_SMALL = lazy_regex(r"(?<![A-Za-z0-9_.,:/$#-])\$?(\d{1,2}(?:\.\d{1,2})?)(?![A-Za-z0-9_:/%-]|[.,]\d)")
_CALLED = lazy_regex(r"(?<=[a-z0-9,)] )[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*|[\u3400-\u9fff]{1,2}·[\u3400-\u9fff]{1,2}")
_NUMBER = lazy_regex(r"(?<![A-Za-z0-9_.-])(?:\d{4}-\d\d-\d\d|\d+(?:\.\d+)?)(?![A-Za-z0-9_-]|\.\d)")
_PIECE = lazy_regex(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_CODE = lazy_regex(r"(?<![\w./-])(?=[\w./-]*?(?:[A-Z0-9_]{4}|[/_]))[\w./-]++")
_CHANGES = {"created": "create", "deleted": "delete", "moved": "move", "reverted": "revert", "restored": "revert"}


@cache
def _list_generic() -> frozenset[str]:
    return matter_words("user users customer person people wants asked said wish wishes prefers decided rule assistant")


def _words(text: str) -> frozenset[str]:
    """Return what a sentence is about: no word for who said it, no pair of characters with grammar in it."""
    words = matter_words(text) - _list_generic()
    return frozenset(word for word in words if word.isascii() or not _PARTICLES.intersection(word))


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
    elif is_wish or (_rule("wish").search(text) and not _did_it(text, scope)):
        checks += [_check_wish, _check_numbers]
    elif states_order(text):
        checks += [_check_order]
    else:
        checks += [_check_speaker, _check_outcome, _check_deed, _check_numbers]
        # What a whole conversation says of a matter changes: only the messages that a line names contradict it.
        checks += [_check_owners, _check_denial] if scope.is_cited else []
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
    words = _words(text)
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


def _did_it(text: str, scope: Scope) -> bool:
    """Return whether a sentence only says that a person did something, or did not let a call run."""
    if _rule("declines").search(text) and any(step.sign < 0 for step in scope.steps):
        return True
    return bool(_rule("people").search(text)) and not _rule("says").search(text) and bool(_find_deed(text))


# Values: spelled as in the messages, beside their owner.


def _check_values(text: str, scope: Scope) -> Reason:
    claims = find_claims(text)
    invented = [claim for claim in claims if not scope.ground.whole.has(claim)]
    if invented:
        return because.NOT_IN_SOURCE(claims=", ".join(invented[:3]))
    absent = [claim for claim in claims if not scope.near.has(claim)]
    # A code of its shape with other digits is what these messages have in its place.
    away = [claim for claim in absent if is_number(claim) or scope.near.has_like(claim)]
    if not away and any(step.changes for step in scope.steps):
        # What was changed is in the messages that changed it.
        paths = [claim for claim in claims if "/" in claim and "." in claim]
        away = paths if not any(path in one for path in paths for one in scope.texts) else []
    return because.NOT_CITED(claims=", ".join(away[:3])) if away else NO_REASON


def _check_names(text: str, scope: Scope) -> Reason:
    for name in _CALLED.findall(text):
        held = scope.near.lower if " " in name else scope.ground.whole.lower
        if any(word not in held for word in name.lower().split()):
            return because.NOT_IN_SOURCE(claims=name)
    for place in _rule("place").finditer(text):
        tail = re.split(r"[的了在是有找订选这那家个住去到近]", place[0])[-1][-5:]
        if tail not in scope.ground.whole.text and tail != place[1]:
            return because.NOT_IN_SOURCE(claims=place[0])
    return NO_REASON


def _check_numbers(text: str, scope: Scope) -> Reason:
    """A small number occurs in a message on a line with one of the words around it, or counts what was done."""
    lines = [line for piece in scope.texts for line in piece.splitlines()]
    for number in filter(str.isdigit, find_claims(text) if scope.is_cited else ()):
        if (named := _read_fields(text, text.find(number), scope)) and number not in named:
            return because.NOT_CITED(claims=number)
    counted = {str(len(step.action.targets)) for step in scope.steps} | {str(len(set(_CODE.findall(text))))}
    # "Broke 9 tests" has the number of a run, not its words.
    sense = {-1: ("failed", "error"), 1: ("passed",), 0: ()}[_read_sign(text)]
    fields = (field for step in _narrow(text, scope.recent) if step.outcome for field in step.outcome.fields)
    counted |= {value for name, value in fields if name.startswith(sense)}
    for found in _SMALL.finditer(text):
        number, at = found[0].strip("$"), found.start()
        named = _read_fields(text, at, scope) if scope.is_cited else set()
        around = matter_words(text[max(0, at - 40) : at + 40]) - {number}
        is_held = any(_holds(line, number) and (not scope.is_cited or _speaks_of(line, around)) for line in lines)
        if number not in counted and (not is_held or (named and number not in named)):
            return because.NOT_CITED(claims=number)
    return NO_REASON


def _holds(line: str, number: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_.]){re.escape(number)}(?:\.0)?(?![A-Za-z0-9_]|\.\d)", line) is not None


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
    """A value belongs to what its clause names, not to something else that has a value of the same kind."""
    plain = join_thousands(text)
    for clause in filter(None, _CLAUSE.split(plain)):
        for number in dict.fromkeys(_NUMBER.findall(clause)):
            if owner := _find_owner(number, clause, plain, scope):
                return because.OTHER_OWNER(value=number, owner=owner)
    return _check_subject(plain, scope)


def _find_owner(number: str, clause: str, text: str, scope: Scope) -> str:
    """Return whose a value is if it is not that of what a sentence names; empty if it is, or if nothing says so."""
    own = [value.owner for value in scope.values if _bare(value.text) == number]
    lines = [line for piece in scope.texts for line in piece.splitlines() if number in join_thousands(line)]
    if not own or any(share(_words(clause), (line,)) >= OWNED_SHARE for line in lines):
        return ""
    found = ((_bare(value.text), value.owner) for value in (*scope.values, *scope.rivals))
    owners = [(figure, owner) for figure, owner in found if figure != number and _NUMBER.fullmatch(figure)]
    # Its thing: of the things that have values, the sentence names another one of that kind.
    heads = {owner.rpartition("›")[0].strip() for owner in own} - {""}
    if heads and not any(_names(text, head) for head in heads):
        kinds = {head.partition(" ")[0] for head in heads if head.isascii()}
        rivals = {owner.rpartition("›")[0].strip() for _, owner in owners} - heads - {""}
        if any(_names(text, one) for one in rivals if not one.isascii() or one.partition(" ")[0] in kinds):
            return next(iter(heads))
    # Its field: another field has more of the words around it.
    words = _list_pieces(clause) if "-" not in number else frozenset()
    best = max(len(words & _list_pieces(owner)) for owner in own)
    others = [owner for figure, owner in owners if figure not in _NUMBER.findall(clause)]
    return own[0] if any(len(words & _list_pieces(owner)) > best for owner in others) else ""


def _names(text: str, head: str) -> bool:
    """Return whether a text has the name at the end of an owner, or most of a Chinese one."""
    if head.isascii():
        return head.rpartition(" ")[2] in text
    return any(head[at : at + 4] in text for at in range(max(1, len(head) - 3)))


def _list_pieces(text: str) -> frozenset[str]:
    """Return the words of a text and of the names in it."""
    return _words(" ".join(_PIECE.findall(text))) | (_words(text) if not text.isascii() else frozenset())


def _bare(text: str) -> str:
    return join_thousands(text).strip("$¥€£元分%")


def _check_subject(text: str, scope: Scope) -> Reason:
    """What a Chinese sentence gives a number of is named in the message with the number, or in the ones before."""
    found = _rule("subject").match(text)
    numbers = _NUMBER.findall(text[found.end() :]) if found else []
    if found is None or not numbers:
        return NO_REASON
    name, number = found[1] or found[2], max(numbers, key=len)
    around = [window for own, window in scope.windows if number in join_thousands(own) and not own.isascii()]
    is_named = any(name[at : at + 2] in window for window in around for at in range(len(name) - 1))
    return because.NOT_CITED(claims=f"{name} {number}") if around and not is_named else NO_REASON


# What happened: outcomes of calls, deeds.


def _read_sign(text: str) -> int:
    plain = _rule("fine").sub(" OK ", _SPAN.sub("x", text))
    good, bad = (any(not _is_meant(one, plain) for one in _rule(way).finditer(plain)) for way in ("passed", "failed"))
    return good - bad


def _is_meant(found: re.Match[str], text: str) -> bool:
    """Return whether something is to be, may be or describes a thing, instead of having happened."""
    return _rule("modal").search(text[: found.start()]) is not None


def _narrow(text: str, steps: Sequence[Deed]) -> list[Deed]:
    """Return the steps whose call names what a sentence names; all if there is none."""
    named = [claim for claim in find_claims(text) if not is_number(claim)]
    own = [step for step in steps if any(name in step.action.text or name in step.action.targets for name in named)]
    return own or list(steps)


def _check_outcome(text: str, scope: Scope) -> Reason:
    sign = _read_sign(text)
    steps = _narrow(text, [step for step in scope.steps if step.outcome is not None])
    is_empty = bool(steps) and not any(step.result.strip(" []{}\n") for step in steps)
    if is_empty and _rule("finds").search(text) and not _rule("denies").search(text):
        return because.RUN_SAYS(says=_show(text), source="[]")
    failed = [step for step in steps if step.sign < 0]
    if not scope.is_cited and sign > 0 and steps:
        return _compare_newest(text, steps)
    if failed and scope.is_cited and _hides_failure(text, sign, failed, scope):
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(failed[-1])))
    if not sign:
        return NO_REASON
    said = (*scope.person, *scope.assistant)
    complaint = next((one for one in scope.person if _rule("complains").search(one)), "")
    if sign > 0 and complaint:
        return because.OTHER_SENSE(source=_show(complaint))
    if not steps:
        is_borne_out = not scope.ground.steps or share(_words(text), said) >= OBJECT_SHARE
        return NO_REASON if is_borne_out else because.NO_RUN(says=_show(text))
    if sign > 0 and failed and (len(failed) == len(steps) or _rule("every").search(text)):
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(failed[-1])))
    if sign < 0 and not failed and not _is_told(text, said) and not _shows_failure(text, steps, scope):
        return because.RUN_SAYS(says=_show(text), source=_show(_tell(steps[-1])))
    return NO_REASON


def _compare_newest(text: str, steps: Sequence[Deed]) -> Reason:
    """Of a whole conversation the newest run says how things are: then not all is well."""
    newest = [step for step in steps if step.sign and step.action.verb in ("test", "build", "run")][-1:]
    is_wrong = _rule("every").search(text) and newest and newest[0].sign < 0
    return because.RUN_SAYS(says=_show(text), source=_show(_tell(newest[0]))) if is_wrong else NO_REASON


def _hides_failure(text: str, sign: int, failed: Sequence[Deed], scope: Scope) -> bool:
    """Return whether a sentence denies a failure or names another one, or takes a change that failed for made."""
    denies = _rule("denies").search(text) is not None
    if not sign and failed == list(scope.steps) and all(step.changes for step in failed):
        return not denies and not _rule("declines").search(text)
    shown = "\n".join(step.result for step in scope.steps)
    named = _RAISED.findall(text)
    is_other = bool(named) and not any(name in shown for name in named) and _RAISED.search(shown) is not None
    told = _tell(failed[-1]).lower()
    return (is_other and not denies) or any(noun.lower() in told for noun in _NOUN_DENIED.findall(text))


def _shows_failure(text: str, steps: Sequence[Deed], scope: Scope) -> bool:
    """Return whether a result shows a failure although its run, or the one that the sentence names, went well."""
    if _rule("given").search(text) and any(step.sign < 0 for step in scope.recent):
        return True
    named = [claim for claim in find_claims(text) if not is_number(claim)]
    if any(name in step.text for step in scope.steps if step.sign < 0 for name in named):
        return True
    unsure = (step for step in steps if step.action.verb != "test" or not step.sign)
    return any(_rule("failed").search(step.result) for step in unsure)


def _is_told(text: str, said: Sequence[str]) -> bool:
    """Return whether somebody said that it failed."""
    words = matter_words(text)
    return any(_rule("failed").search(one) and share(words, (one,)) >= OBJECT_SHARE for one in said)


def _tell(step: Deed) -> str:
    outcome = step.outcome
    assert outcome is not None
    return outcome.error or outcome.text or (step.result.strip().splitlines() or ["ok"])[0]


def _find_deed(text: str) -> frozenset[str]:
    plain = _SPAN.sub("x", text)
    for pattern, verbs in _list_deeds():
        found = pattern.search(plain)
        denied = found and _rule("denies").search(_CLAUSE.split(plain[: found.start()])[-1] or "")
        if (
            found
            and not denied
            and not _is_meant(found, plain)
            and not _rule("described").search(plain[: found.start()])
        ):
            return verbs
    return frozenset()


def _find_verb(text: str) -> str:
    return next(found[0] for pattern, _ in _list_deeds() if (found := pattern.search(_SPAN.sub("x", text))))


def _check_deed(text: str, scope: Scope) -> Reason:
    verbs = _find_deed(text)
    if not verbs:
        return NO_REASON
    text = next(clause for clause in (*_CLAUSE.split(text), text) if clause and _find_deed(clause) == verbs)
    if _rule("deleted").search(text):
        verbs = verbs - {"edit"}
    text = _REST.sub("", text)
    if not _find_deed(text):
        return NO_REASON  # It is the reason of something else.
    words = _words(text)
    if _rule("people").match(text):
        return NO_REASON if share(words, scope.person) >= DEED_SHARE else because.NO_CALL(says=_show(text))
    if not scope.ground.steps:
        said = (*scope.person, *scope.assistant)
        deed = _find_verb(text).rstrip("了")
        return NO_REASON if any(deed in one for one in said) else because.NO_CALL(says=_show(text))
    if any(_find_deed(one) == verbs and share(words, (one,)) >= STATED_SHARE for one in scope.assistant):
        return NO_REASON
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
    undone = undone if _read_sign(text) >= 0 else []
    return because.RUN_SAYS(says=_show(text), source=_show(undone[-1].action.text)) if undone else NO_REASON


def _does(step: Deed, verbs: frozenset[str]) -> bool:
    kinds = {_CHANGES.get(change.kind, "edit") for change in step.changes}
    return bool(kinds & verbs) or (step.action.verb in verbs and step.action.verb not in ("run", "build"))


def _concerns(step: Deed, text: str, words: frozenset[str], scope: Scope) -> bool:
    """Return whether a step is about what a sentence names: its files, or else enough of its words."""
    claims = (claim for claim in find_claims(text) if not is_number(claim) and f"{claim}(" not in text)
    files = [claim for claim in claims if re.search(r"\.\w{1,5}$", claim)]
    if files:
        touched = (step.action.text, *step.action.targets, *(change.path for change in step.changes), step.result)
        return any(_flatten(name) in _flatten(text) for name in files for text in touched)
    if not any(word.isascii() for word in words):
        return True
    lower = "\n".join((step.text, *scope.texts)).lower() if step in scope.steps else step.text.lower()
    ascii_words = [word for word in words if word.isascii()]
    return sum(word in lower for word in ascii_words) >= OBJECT_SHARE * len(ascii_words)


def _flatten(name: str) -> str:
    """Return a name without the signs that differ between a file and what it defines."""
    return name.lower().replace("-", "").replace("_", "")


# Who said it, and in which sense.


def _check_order(text: str, scope: Scope) -> Reason:
    """An order that names nobody is a person's, or what the assistant itself means to do."""
    said = (*scope.person, *scope.assistant)
    return NO_REASON if share(_list_words(text), said) >= WISH_SHARE else because.NOBODYS_WISH()


def _list_words(text: str) -> frozenset[str]:
    """Return the words of a wish that say what is wished."""
    named = _rule("people").sub(" ", text).replace("-", " ")
    words = _words(named if text.isascii() else _rule("says").sub(" ", named))
    return frozenset(word for word in words if not _rule("says").fullmatch(word))


def _check_wish(text: str, scope: Scope) -> Reason:
    """A wish is a person's: most of its words are theirs, and it does not turn their sense round."""
    words = _list_words(text)
    person = scope.person
    if not scope.has_person:
        # No message of a person is cited: then one sentence of theirs must say it.
        person = tuple(one for one in scope.ground.scope().person if share(words, (one,)) >= STATED_SHARE)
    # A choice has the words of the one who proposed it.
    is_chosen = scope.has_person and _rule("chooses").search(text)
    chosen = scope.said if is_chosen else scope.assistant if scope.approves else ()
    said = (*person, *(() if _rule("proposes").search(text) else chosen))
    asked = (*said, *scope.ground.texts_of("user"))
    alien = (
        [] if chosen else [name for name in find_claims(text) if not any(name.lower() in one.lower() for one in asked)]
    )
    if not person or share(words, said) < WISH_SHARE or (alien and scope.has_person and scope.is_cited):
        return because.NOBODYS_WISH()
    return _compare_sense(text, person, is_wish=scope.is_cited)


def _compare_sense(text: str, said: Sequence[str], *, is_wish: bool = False) -> Reason:
    """Compare the sense of a sentence with that of the clauses that have its words: denied, permitted, or neither."""
    known: dict[str, set[str]] = {}
    for clause, sense in _read_clauses(said):
        for word in matter_words(clause):
            known.setdefault(word, {"says"} if sense == "permits" else set()).add(sense)
    own = [(word, sense) for clause, sense in _read_clauses([text]) for word in _words(clause)]
    turned = [word for word, sense in own if word in known and sense not in known[word]]
    if len(turned) * 2 <= (sum(word in known for word, _ in own) if is_wish else len(own)):
        return NO_REASON
    return because.OTHER_SENSE(source=_show(max(said, key=lambda one: share(frozenset(turned), (one,)))))


def _read_clauses(said: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield clauses with their sense; a question counts only with its answer, if that is a no."""
    for one, answer in zip(said, (*said[1:], ""), strict=False):
        is_question = bool(_rule("asks").search(one))
        if is_question and not _rule("no").match(answer):
            continue
        for clause in _CLAUSE.split(one):
            plain = _rule("relative").sub(" ", clause or "")
            permits, denies = _rule("permits").search(plain), _rule("denies").search(plain)
            yield plain, "permits" if permits else "denies" if denies or is_question else "says"


def _check_speaker(text: str, scope: Scope) -> Reason:
    opening = _OPENS.sub("", text)
    is_assistants = _rule("assistant").match(opening) is not None
    if is_assistants == (_rule("people").match(opening) is not None):
        return NO_REASON
    words = _words(_rule("assistant").sub("", _rule("people").sub("", text)))
    sides = (scope.assistant, scope.person) if is_assistants else (scope.person, scope.assistant)
    own, other = (share(words, said) for said in sides)
    if is_assistants and scope.has_person and not scope.spoke:
        return because.OTHER_SPEAKER(source=_show(scope.person[0]))
    if not is_assistants and not scope.has_person:
        own = max((share(words, (one,)) for one in scope.ground.scope().person), default=0.0)
    if not is_assistants and (scope.approves or _rule("chooses").search(text)):
        return NO_REASON  # It may have the words of the one who proposed it.
    if other >= SPEAKER_SHARE and own < other * 0.75:
        return because.OTHER_SPEAKER(source=_show(max(sides[1], key=lambda one: share(words, (one,)))))
    return NO_REASON


def _check_denial(text: str, scope: Scope) -> Reason:
    return _compare_sense(text, scope.said)


def _show(text: str) -> str:
    line = " ".join(text.split()).strip("-*• ")
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"
