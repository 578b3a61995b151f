"""Which language a text is in, as far as placeholders and summaries care: Chinese or English; and its plural.

Counts letters only, so that code, numbers and markup do not decide. Pure and linear; long texts are sampled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Language = Literal["en", "zh"]

_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[A-Za-z]{2,}")
_SAMPLE = 4_000
_ZH_SHARE = 0.3


def detect_language(texts: Iterable[str]) -> Language:
    """Return ``zh`` if Chinese characters make up a fair share of what is written, else ``en``."""
    han = words = 0
    for text in texts:
        sample = text[:_SAMPLE]
        han += len(_CJK.findall(sample))
        words += len(_WORD.findall(sample))
    # A Chinese character carries about as much as half an English word.
    return "zh" if han and han >= _ZH_SHARE * (han + 2 * words) else "en"


def count_things(number: int, thing: str) -> str:
    """Return a number of things in English: ``1 message``, ``2,000 messages``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
