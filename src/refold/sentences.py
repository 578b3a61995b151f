"""The Chinese of the sentences that the command line, MCP and the page show, and errors in the reader's language.

An English sentence is written where it is printed or raised. ``locale/zh.json`` has its Chinese under the English
template, ``locale/reasons.json`` that of a reason under its code, and tests compare them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

from refold.errors import BudgetTooSmall, RefoldError, Sentence, find_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refold.conversation.reason import Language

_CHINESE = re.compile("[\u4e00-\u9fff]")


@cache
def read_chinese(name: str = "zh") -> dict[str, str]:
    """Return the Chinese texts by their English ones; with the name ``reasons``, those of reasons by their codes."""
    from importlib.resources import files  # The core loads this module, and needs a file only for Chinese.

    texts: dict[str, str] = json.loads(files("refold").joinpath("locale", f"{name}.json").read_text(encoding="utf-8"))
    return texts


def translate(text: str, language: Language) -> str:
    """Return a text in a language; one without a translation stays as it is."""
    if language == "en":
        return str(text)
    if not isinstance(text, Sentence):
        return read_chinese().get(text, text)
    template = read_chinese().get(text.template)
    if template is None:
        return str(text)
    values = {name: translate(one, language) if isinstance(one, Sentence) else one for name, one in text.values.items()}
    return template.format(**values) if values else template


def is_chinese(text: str) -> bool:
    return bool(_CHINESE.search(text))


def describe_steps(steps: Iterable[tuple[str, int]], language: Language) -> str:
    """Return stages with the tokens they freed: ``fold −2,046, mask +8``; + if a text is longer than its source."""
    shown = (f"{translate(stage, language)} {'−' if freed >= 0 else '+'}{abs(freed):,}" for stage, freed in steps)
    return translate(", ", language).join(shown)


def describe_error(error: RefoldError, language: Language) -> str:
    """Return an error in a language; one without a translation keeps its English under a translated heading."""
    message = find_sentence(error)
    if isinstance(error, BudgetTooSmall) and isinstance(message, Sentence):
        parts = (f"{translate(name, language)} {tokens:,}" for name, tokens in error.parts.items() if tokens)
        message = Sentence(message.template, **{**message.values, "listed": translate(", ", language).join(parts)})
    template = message.template if isinstance(message, Sentence) else message
    if language == "en" or template in read_chinese() or is_chinese(message):
        return translate(message, language)
    kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in read_chinese())
    return f"{translate(kind, language)}：{message}"


def choose_language(chosen: str, accepted: str) -> Language:
    """Return the language that the reader chose, else the best match of ``Accept-Language``."""
    if chosen in ("en", "zh"):
        return "zh" if chosen == "zh" else "en"
    ranked: list[tuple[float, int, Language]] = []
    for place, piece in enumerate(accepted[:1_000].split(",")):
        name, _, rest = piece.strip().lower().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            share = float(weight) if weight else 1.0
        except ValueError:
            share = 0.0
        primary = name.split("-")[0]
        if primary in ("en", "zh") and share > 0:
            ranked.append((-share, place, "zh" if primary == "zh" else "en"))
    return min(ranked)[2] if ranked else "en"
