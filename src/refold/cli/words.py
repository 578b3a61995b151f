"""The words of the command line in the language of the person at the terminal: English or Chinese.

An English sentence is written where it is printed, as the argument of ``tr``; ``locale/zh.json`` has each sentence in
Chinese, under its English template. A test fails if one is missing, unused, or names other values. The language is
``language`` of the settings, else the locale. Answers of the context tools follow the conversation.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from refold.errors import Sentence

if TYPE_CHECKING:
    from refold.conversation.reason import Language, Reason

_ZH = Path(__file__).parent / "locale" / "zh.json"
# In the order in which a C library asks.
_LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
_chosen: Language | None = None


def use_language(setting: str | None) -> None:
    """Speak the language that the settings name; None goes by the terminal."""
    global _chosen
    _chosen = "zh" if setting == "zh" else "en" if setting == "en" else None


def find_language() -> Language:
    """Return the language of the settings, else that of the terminal."""
    if _chosen is not None:
        return _chosen
    named = os.environ.get("REFOLD_LANGUAGE", "").strip().lower()
    if named in ("en", "zh"):
        return "zh" if named == "zh" else "en"
    name = next((value for variable in _LOCALE_VARIABLES if (value := os.environ.get(variable, ""))), "")
    return "zh" if name.lower().startswith("zh") else "en"


def tr(template: str, /, **values: object) -> str:
    """Return a sentence in the user's language, with its values filled in."""
    return translate(Sentence(template, **values))


def translate(text: str) -> str:
    """Return a text in the user's language; one without a translation stays as it is."""
    if find_language() == "en":
        return str(text)
    if not isinstance(text, Sentence):
        return read_words().get(text, text)
    template = read_words().get(text.template)
    if template is None:
        return str(text)
    values = {name: translate(one) if isinstance(one, Sentence) else one for name, one in text.values.items()}
    return template.format(**values) if values else template


def is_translated(text: str) -> bool:
    """Tell whether a text has words in Chinese."""
    return (text.template if isinstance(text, Sentence) else text) in read_words()


def count_things(number: int, thing: str) -> str:
    """Return ``1 message``, ``12 messages``, in the user's language."""
    if find_language() == "zh":
        return read_words()[f"# {thing}"].format(count=number)
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def say_reason(reason: Reason | str) -> str:
    """Return a reason in the user's language; old ledgers hold sentences, which stay as they are."""
    from refold.conversation.reason import say

    return reason if isinstance(reason, str) else say(reason, find_language())


@cache
def read_words() -> dict[str, str]:
    """Return the Chinese words by their English ones."""
    words: dict[str, str] = json.loads(_ZH.read_text(encoding="utf-8"))
    return words
