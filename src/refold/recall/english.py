"""Light English: one stem for the forms of a word, and the words that say nothing about what is looked for. Pure.

The stem need not be a word; it must only be the same on both sides. Irregular forms are listed, the rest goes by its
ending. Anything that is not plain lower-case English letters is returned as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about again all also am an and any are as at be because been before being both but by can cannot could did
        do doe does doing done for from further get give got had has have having he her here hers him his how
        i if in into is it its itself just kind let like may me might mine more most much must my need no nor
        not now of off on once one only or other our out over own please remember said same say shall she
        should so some such tell than that the their them then there these they thing this those through to
        too type under until up us use very want was way we well were what when where which while who whom
        whose why will with would yes you your im ive id dont didnt doesnt isnt wasnt cant wont thats whats""",
    )
)

_IRREGULAR = {
    form: base
    for base, forms in {
        "go": "went gone goes going", "buy": "bought", "bring": "brought", "think": "thought", "teach": "taught",
        "catch": "caught", "find": "found", "make": "made", "take": "took taken", "give": "gave given", "come": "came",
        "become": "became", "begin": "began begun", "break": "broke broken", "build": "built", "choose": "chose chosen",
        "draw": "drew drawn", "drink": "drank", "drive": "drove driven", "eat": "ate eaten", "fall": "fell fallen",
        "feel": "felt", "fight": "fought", "fly": "flew flown", "forget": "forgot forgotten", "get": "got gotten",
        "grow": "grew grown", "hear": "heard", "hold": "held", "keep": "kept", "know": "knew known", "lead": "led",
        "learn": "learnt", "leave": "left", "lend": "lent", "lose": "lost", "mean": "meant", "meet": "met",
        "pay": "paid", "ride": "rode ridden", "ring": "rang", "run": "ran", "say": "said", "see": "saw seen",
        "sell": "sold", "send": "sent", "sing": "sang sung", "sit": "sat", "sleep": "slept", "speak": "spoke spoken",
        "spend": "spent", "stand": "stood", "steal": "stole stolen", "swim": "swam", "tell": "told", "throw": "threw",
        "understand": "understood", "wake": "woke", "wear": "wore worn", "win": "won", "write": "wrote written",
        "child": "children kid kids", "man": "men", "woman": "women", "person": "people", "wife": "wives",
        "life": "lives", "mother": "mom mum", "father": "dad", "photo": "photograph photos pic picture",
        "die": "died dying", "movie": "film films",
    }.items()
    for form in forms.split()
}  # fmt: skip


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return _IRREGULAR.get(word, word)
    if word in _IRREGULAR:
        return _cut_end(_IRREGULAR[word])
    return _cut_end(word)


def list_forms(stemmed: str) -> tuple[str, ...]:
    """Return the irregular forms of a stem."""
    return _FORMS.get(stemmed, ())


def _cut_end(word: str) -> str:
    word = _cut_plural(word)
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and any(c in "aeiouy" for c in word[: -len(ending)]):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "aeiouls":
                word = word[:-1]
            break
    if word.endswith("ly") and len(word) > 5:
        word = word[:-2]
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > 3 else word


def _cut_plural(word: str) -> str:
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


# The stems of common words tell next to nothing, unless they are words of their own ("Sam", "Don", minutes) or say
# enough after all: what somebody likes, gives or had before, more or once (benchmarks/bench_recall.py --half tune).
_TELLING = frozenset(("sam", "don", "min", "lik", "giv", "typ", "mor", "onc", "befor", "hav", "som"))
FAINT_STEMS = frozenset(stem(word) for word in STOP_WORDS) - STOP_WORDS - _TELLING
_FORMS: dict[str, tuple[str, ...]] = {}
for _form in _IRREGULAR:
    _FORMS[stem(_form)] = (*_FORMS.get(stem(_form), ()), _form)
