"""Every text of the page, in English and Chinese. One module for each area; a text is a pair, so none can be missing.

Pages call ``refold.web.visit.say("area.key", count=3)``. To add texts: a module here with ``WORDS``, and its name in
``_AREAS``. Values are put in as plain text; numbers are grouped (``{count:,}``). Never build a sentence from pieces.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal

Tongue = Literal["en", "zh"]
Words = dict[str, tuple[str, str]]
TONGUES: tuple[Tongue, ...] = ("en", "zh")
_AREAS = ("shell", "chat", "session", "table", "statistics", "recall", "memory", "sessions", "settings")


def _gather() -> Words:
    gathered: Words = {}
    for area in _AREAS:
        words: Words = import_module(f"{__name__}.{area}").WORDS
        strange = [key for key in words if not key.startswith(f"{area}.") or key in gathered]
        assert not strange, f"words of {area} must be called {area}.…: {strange}"
        gathered |= words
    return gathered


_WORDS = _gather()


def say_in(tongue: Tongue, key: str, **values: object) -> str:
    """Return a text in a language."""
    text = _WORDS[key][TONGUES.index(tongue)]
    return text.format(**values) if values else text


def has_words(key: str) -> bool:
    """Tell whether there is a text of this name."""
    return key in _WORDS


def list_words(tongue: Tongue, prefix: str) -> dict[str, str]:
    """Return all texts whose keys begin so: for what is put together in the browser."""
    return {key: pair[TONGUES.index(tongue)] for key, pair in _WORDS.items() if key.startswith(prefix)}


def choose_tongue(chosen: str, accepted: str) -> Tongue:
    """Return the language a reader chose, else the first one of ``Accept-Language`` that there is."""
    if chosen == "zh":
        return "zh"
    if chosen == "en":
        return "en"
    wishes: list[tuple[float, int, Tongue]] = []
    for place, piece in enumerate(accepted[:1_000].split(",")):
        name, _, rest = piece.strip().lower().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            share = float(weight) if weight else 1.0
        except ValueError:
            share = 0.0
        primary = name.split("-")[0]
        if primary in TONGUES and share > 0:
            wishes.append((-share, place, "zh" if primary == "zh" else "en"))
    return min(wishes)[2] if wishes else "en"
