"""The one catalogue of what people read: ``tr`` returns a text in their language by its key.

A sentence that is printed or raised is written in English where that happens; the template is its key. Texts of the
page have keys such as ``session.title``, those of the context tools begin with ``tool.``, and the Chinese of a reason
is ``reason.`` and its code. ``locale/en.json`` and ``locale/zh.json`` hold them, and tests compare both with the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from string import Formatter
from typing import TYPE_CHECKING, Any

from refold.errors import BudgetTooSmall, RefoldError, Sentence, find_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refold.conversation.reason import Language

_CHINESE = re.compile("[\u4e00-\u9fff]")


@cache
def read_texts(language: Language) -> dict[str, str]:
    """Return the texts of a language by their keys."""
    from importlib.resources import files  # The core loads this module, and needs no file for its English.

    path = files("refold").joinpath("locale", f"{language}.json")
    texts: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return texts


def tr(text: str, language: Language, /, **values: object) -> str:
    """Return a text by its key, or a sentence by its English words, with its values; unknown ones stay as they are."""
    if isinstance(text, Sentence):
        if language == "en":
            return str(text)
        values, text = text.values, text.template
    template = read_texts(language).get(text, text)
    if not values:
        return template
    said = {name: tr(value, language) if isinstance(value, Sentence) else value for name, value in values.items()}
    return fill_template(template, said)


class _TemplateWriter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        noun = format_spec.removeprefix("count ")
        return count_things(value, noun) if noun != format_spec else format(value, format_spec)


_WRITER = _TemplateWriter()


def fill_template(template: str, values: Mapping[str, object]) -> str:
    """Return a template with its values; ``{requests:count request}`` is a figure with its noun in the right number."""
    return _WRITER.vformat(template, (), values)


def count_things(number: int, thing: str) -> str:
    """Return a number of things in English: ``1 message``, ``2,000 messages``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def is_chinese(text: str) -> bool:
    return bool(_CHINESE.search(text))


def describe_steps(steps: Iterable[tuple[str, int]], language: Language) -> str:
    """Return stages with the tokens they freed: ``fold −2,046, mask +8``; + if a text is longer than its source."""
    shown = (f"{tr(stage, language)} {'−' if freed >= 0 else '+'}{abs(freed):,}" for stage, freed in steps)
    return tr(", ", language).join(shown)


def describe_error(error: RefoldError, language: Language) -> str:
    """Return an error in a language; one without a translation keeps its English under a translated heading."""
    message = find_sentence(error)
    if isinstance(error, BudgetTooSmall) and isinstance(message, Sentence):
        parts = (f"{tr(name, language)} {tokens:,}" for name, tokens in error.parts.items() if tokens)
        message = Sentence(message.template, **{**message.values, "listed": tr(", ", language).join(parts)})
    template = message.template if isinstance(message, Sentence) else message
    if language == "en" or template in read_texts("zh") or is_chinese(message):
        return tr(message, language)
    kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in read_texts("zh"))
    return f"{tr(kind, language)}：{message}"


def choose_language(chosen: str, accepted: str) -> Language:
    """Return the language that the reader chose, else the best match of ``Accept-Language``."""
    if chosen in ("en", "zh"):
        return "zh" if chosen == "zh" else "en"
    shares: dict[str, float] = {}
    for piece in accepted[:1_000].split(","):
        name, _, weight = piece.replace(" ", "").lower().partition(";")
        language = name.partition("-")[0]
        with suppress(ValueError):
            shares[language] = max(shares.get(language, 0.0), float(weight.removeprefix("q=") or 1))
    spoken = {language: share for language, share in shares.items() if language in ("en", "zh") and share > 0}
    return "zh" if max(spoken, key=lambda language: spoken[language], default="en") == "zh" else "en"
