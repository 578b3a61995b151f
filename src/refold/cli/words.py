"""Words of the commands: the user's language, figures and times as people read them, and text that is safe to print.

The language is ``language`` of the settings, else that of the terminal; ``tr`` and errors follow it
(``refold.sentences``). Answers of the context tools follow the conversation. Conversation text is printed as text:
control characters cannot move the cursor.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import TYPE_CHECKING

from refold import sentences
from refold.errors import RefoldError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refold.conversation.reason import Language, Reason
    from refold.ladder.report import StageReport

# In the order in which a C library asks.
_LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
_chosen: Language | None = None
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_SPACE = re.compile(r"\s+")
# Sequences that a terminal obeys: colours and cursor, titles and links, and any other escape.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])")


def use_language(setting: str | None) -> None:
    """Speak the language that the settings name; None follows the terminal."""
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


def tr(text: str, /, **values: object) -> str:
    """Return a text in the user's language, with its values filled in; one without a translation stays as it is."""
    return sentences.tr(text, find_language(), **values)


def describe_error(error: RefoldError) -> str:
    """Return an error in the user's language."""
    return sentences.describe_error(error, find_language())


def describe_steps(stages: Iterable[StageReport]) -> str:
    """Return the stages that made edits, each with the tokens it freed, in the user's language."""
    return sentences.describe_steps(((one.stage, one.tokens_freed) for one in stages if one.edits), find_language())


def count_things(number: int, thing: str) -> str:
    """Return ``1 message``, ``12 messages``, in the user's language."""
    return tr(f"# {thing}", count=number) if find_language() == "zh" else sentences.count_things(number, thing)


def say_reason(reason: Reason | str) -> str:
    """Return a reason in the user's language; old ledgers hold sentences, which stay as they are."""
    from refold.conversation.reason import say

    return reason if isinstance(reason, str) else say(reason, find_language())


def clean_line(text: str, chars_max: int = 200) -> str:
    """Return text as one line that is safe to print, shortened to ``chars_max``."""
    line = _SPACE.sub(" ", _CONTROL.sub(" ", text[: chars_max * 4])).strip()
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def strip_controls(text: str) -> str:
    """Return text, line breaks kept, without anything that a terminal would obey."""
    plain = _ESCAPE.sub("", text)
    return _CONTROL.sub(lambda found: "".join(one for one in found[0] if one in "\n\t"), plain)


def describe_change(before: int, after: int) -> str:
    """Return the tokens before and after: ``182,410 → 41,022 tokens``."""
    return tr("{before:,} → {after:,} tokens", before=before, after=after)


def describe_share(before: int, after: int) -> str:
    """Return the relative change: ``−91%``."""
    if before <= 0 or before == after:
        return "±0%"
    share = (before - after) / before
    text = f"{abs(share):.0%}"
    return f"−{text}" if share > 0 else f"+{text}"


def shorten_tokens(tokens: int) -> str:
    """Return a short form of a number of tokens: 940, 7.8k, 128k, 1.05M."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 9_950:
        return f"{tokens / 1_000:.1f}k"
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.2f}M"


def name_scope(session: str | None) -> str:
    """Return the phrase for where a command looked: the session that changed last may not be the intended one."""
    if session is None:
        return tr(" in any session")
    return tr(" in session '{session}'", session=clean_line(session, 80))


def format_time(seconds: float) -> str:
    """Return a time in the local time zone, to the minute."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
