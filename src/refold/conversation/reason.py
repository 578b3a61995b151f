"""Reasons why something was done, postponed or refused: a code and plain values. Pure.

The program stores, counts and compares codes, never sentences. People read ``say(reason, language)``, which fills the
template of the code in English or Chinese; ``str(reason)`` is the English. ``because.py`` has the codes with their
English, ``locale/zh.json`` the Chinese. Records of earlier versions hold sentences, and so may edits of plugins: such a
text becomes a reason with the code ``text``, which reads the same in every language. This module also decides which
language a text is in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from string import Formatter
from typing import Any, Literal, Union

from refold.sentences import count_things as count_things
from refold.sentences import fill_template, read_texts

Language = Literal["en", "zh"]

_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z]{2,}")
_SAMPLE = 4_000
_ZH_SHARE = 0.3


def detect_language(texts: Iterable[str]) -> Language:
    """Return ``zh`` if Chinese characters make up a good part of the letters in a sample of the texts, else ``en``."""
    han = words = 0
    for text in texts:
        sample = text[:_SAMPLE]
        han += len(_CJK.findall(sample))
        words += len(_WORD.findall(sample))
    # A Chinese character carries about as much as half an English word.
    return "zh" if han and han >= _ZH_SHARE * (han + 2 * words) else "en"


def shorten_number(value: float) -> str:
    """Return a number in its shortest readable form: 950, 12.3k, 4.1M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:  # What rounds to 1,000 of a unit is one of the next.
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


ReasonValue = Union[str, int, float, bool, None, "Reason"]
_TEXT = "text"
_DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class Reason:
    """A dotted code such as ``fold.hard``, and its values, which may be reasons. Without a code it is false."""

    code: str = ""
    values: Mapping[str, ReasonValue] = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        return bool(self.code)

    def __str__(self) -> str:
        return say(self)

    def is_a(self, kind: ReasonKind) -> bool:
        return self.code == kind.code

    def holds(self, kind: ReasonKind) -> bool:
        """Return whether this is a reason of a kind, or one within it is."""
        return self.is_a(kind) or any(isinstance(value, Reason) and value.holds(kind) for value in self.values.values())

    def to_json(self) -> dict[str, Any]:
        """Return the code and the values for storage; ``read_reason`` reads it."""
        values = {name: one.to_json() if isinstance(one, Reason) else one for name, one in self.values.items()}
        return {"code": self.code, "values": values}

    def to_dict(self) -> dict[str, Any]:
        """Return the code, the values and the English text, for JSON interfaces."""
        return {**self.to_json(), "text": say(self)}

    def to_header(self) -> str:
        """Return the reason in one line of ASCII: ``fold.hard; tokens=131072; limit=128000``."""
        return "; ".join((self.code, *(f"{name}={_quote(one)}" for name, one in _flatten(self, 0))))


NO_REASON = Reason()


def text_reason(text: str) -> Reason:
    """Return words that have no code: those of an old record, a plugin or a provider."""
    return Reason(_TEXT, {_TEXT: text}) if text else NO_REASON


@dataclass(frozen=True, slots=True)
class ReasonKind:
    """A code with its English template. Call it with a value for each of its ``fields`` to make a reason."""

    code: str
    fields: tuple[str, ...]
    english: str

    def __call__(self, **values: ReasonValue) -> Reason:
        if values.keys() != set(self.fields):
            raise TypeError(f"the reason {self.code!r} needs the values {self.fields}, not {tuple(values)}")
        return Reason(self.code, values)


CATALOGUE: dict[str, ReasonKind] = {}


def define_reason(code: str, english: str, *unsaid: str) -> ReasonKind:
    """Add a kind of reason to the catalogue. Its values are those that its template names, and the ``unsaid`` ones."""
    if code in CATALOGUE:
        raise ValueError(f"the reason {code!r} is defined already")
    said = dict.fromkeys(name for _, name, _, _ in Formatter().parse(english) if name)
    CATALOGUE[code] = ReasonKind(code, (*said, *unsaid), english)
    return CATALOGUE[code]


def say(reason: Reason, language: Language = "en") -> str:
    """Return a reason in words. An unknown code or value is shown as it is; this never raises."""
    return _say(reason, language, 0)


def _say(reason: Reason, language: Language, depth: int) -> str:
    kind = CATALOGUE.get(reason.code)
    if kind is None or depth > _DEPTH_MAX:
        return reason.to_header() if reason else ""
    values = {
        name: _say(one, language, depth + 1) if isinstance(one, Reason) else one for name, one in reason.values.items()
    }
    try:
        return fill_template(kind.english if language == "en" else read_texts("zh")[f"reason.{kind.code}"], values)
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return reason.to_header()


def as_reason(words: Reason | str) -> Reason:
    """Return a reason; plain text, such as a plugin's, becomes one with the code ``text``."""
    return words if isinstance(words, Reason) else text_reason(words)


def join_reasons(reasons: Iterable[Reason]) -> Reason:
    """Return one reason that states each of these once, in order, as a balanced tree, since nesting is limited."""
    found = list(dict.fromkeys(filter(None, reasons)))
    if len(found) < 2:
        return found[0] if found else NO_REASON
    half = len(found) // 2
    return Reason("both", {"first": join_reasons(found[:half]), "second": join_reasons(found[half:])})


def change_words(reason: Reason, change: Callable[[str], str]) -> Reason:
    """Return a reason with each text among its values changed, for example masked."""
    values: dict[str, ReasonValue] = {}
    for name, one in reason.values.items():
        values[name] = (
            change_words(one, change) if isinstance(one, Reason) else change(one) if isinstance(one, str) else one
        )
    return Reason(reason.code, values)


def read_reason(stored: object, depth: int = 0) -> Reason:
    """Return a stored reason: the value of ``to_json``, or the plain sentence that an earlier version wrote."""
    if isinstance(stored, str):
        return text_reason(stored)
    if not isinstance(stored, Mapping) or not isinstance(stored.get("code"), str) or depth > _DEPTH_MAX:
        return NO_REASON
    values = stored.get("values")
    found: dict[str, ReasonValue] = {}
    for name, one in values.items() if isinstance(values, Mapping) else ():
        if isinstance(one, Mapping):
            found[str(name)] = read_reason(one, depth + 1)
        elif one is None or isinstance(one, str | int | float):
            found[str(name)] = one
    return Reason(stored["code"], found)


def is_plain(reason: Reason, depth: int = 0) -> bool:
    """Return whether a reason from outside can be stored and read back: it has a code, and plain values by name."""
    code: object = reason.code
    values: object = reason.values
    if not isinstance(code, str) or not isinstance(values, Mapping) or depth > _DEPTH_MAX:
        return False
    return all(
        isinstance(name, str)
        and (is_plain(one, depth + 1) if isinstance(one, Reason) else one is None or isinstance(one, str | int | float))
        for name, one in values.items()
    )


def describe(value: Any) -> dict[str, Any]:
    """Return a dataclass as plain values like ``asdict``, its reasons with their English text, for JSON interfaces."""
    return asdict(value, dict_factory=_make_dict)


def _make_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return {**made, "text": say(read_reason(made))} if made.keys() == {"code", "values"} else made


def _flatten(reason: Reason, depth: int) -> Iterator[tuple[str, object]]:
    for name, one in reason.values.items():
        if not isinstance(one, Reason):
            yield name, one
        elif depth < _DEPTH_MAX:
            yield name, one.code
            yield from ((f"{name}.{inner}", value) for inner, value in _flatten(one, depth + 1))


def _quote(value: object) -> str:
    """Return a value for the one-line form; text with special characters becomes a JSON string in ASCII."""
    if isinstance(value, str) and value.isascii() and value.replace(".", "").replace("_", "").isalnum():
        return value
    return json.dumps(value)
