"""Every text of the page, in English and Chinese: ``locale/en.json`` and ``locale/zh.json``.

Pages call ``refold.web.visit.say("area.key", count=3)``. Both files have the same keys; a test fails on any key that is
missing in one of them. Values are inserted as plain text; numbers are grouped (``{count:,}``). Never build a sentence
from pieces. What a setting means comes from the config schema; only its Chinese is in a file.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Literal

import orjson

from refold.config import PRESETS, CompressionConfig

Tongue = Literal["en", "zh"]
TONGUES: tuple[Tongue, ...] = ("en", "zh")
_MEANS = "settings.means_"
_PRESET = "settings.preset_"


@cache
def read_words(tongue: Tongue) -> dict[str, str]:
    """Return all texts of a language by their keys."""
    words: dict[str, str] = orjson.loads((files("refold.web") / "locale" / f"{tongue}.json").read_bytes())
    return {**_describe_settings(), **words} if tongue == "en" else words


def _describe_settings() -> dict[str, str]:
    """Return what settings and presets are for, as the schema says it."""
    words = {f"{_PRESET}{name}": means for name, means in PRESETS.items()}
    for key, field in CompressionConfig.model_fields.items():
        plain = re.sub(r"^S\d+\.\d+: ", "", field.description or "")
        words[f"{_MEANS}{field.alias or key}"] = plain[:1].upper() + plain[1:]
    return words


def say_in(tongue: Tongue, key: str, **values: object) -> str:
    """Return a text in a language."""
    text = read_words(tongue)[key]
    return text.format(**values) if values else text


def has_words(key: str) -> bool:
    """Tell whether there is a text of this name."""
    return key in read_words("zh")


def list_words(tongue: Tongue, prefix: str) -> dict[str, str]:
    """Return all texts whose keys begin with a prefix: for what is put together in the browser."""
    return {key: text for key, text in read_words(tongue).items() if key.startswith(prefix)}


def choose_tongue(chosen: str, accepted: str) -> Tongue:
    """Return the language a reader chose, else the first language of ``Accept-Language`` that the page has."""
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
