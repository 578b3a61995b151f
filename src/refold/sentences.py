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
