"""Days that a question names by their distance: yesterday, last Friday, three days ago, 上周五. Pure.

They become the same words that dates have in the index. The reader's own clock is not asked: ``now`` is handed in.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_ZH = "一二三四五六日"
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "两": 2} | {
    character: at for at, character in enumerate("一二三四五六七", 1)
}
_NEAR = {
    "today": 0, "yesterday": 1, "the day before yesterday": 2, "今天": 0, "昨天": 1, "前天": 2, "昨晚": 1,
}  # fmt: skip
_NEAR_WORD = re.compile("|".join(sorted(_NEAR, key=len, reverse=True)), re.I)
_LAST_DAY = re.compile(rf"\b(?:last|on|this past) ({'|'.join(_DAYS)})\b", re.I)
_LAST_DAY_ZH = re.compile(r"上(?:周|星期|个星期|礼拜)([一二三四五六日天])")
_AGO = re.compile(r"\b(\d{1,3}|one|two|three|four|five|six|seven|a) (day|week)s? ago\b", re.I)
_AGO_ZH = re.compile(r"(\d{1,3}|[一两二三四五六七])(天|周|个星期)前")


def name_day(moment: float) -> tuple[str, ...]:
    """Return the words of the day of a moment, as the index has them; none for a moment that is not set."""
    return _name_day(int(moment // 86_400)) if 0 < moment < 32_503_680_000 else ()


@lru_cache(maxsize=1_024)
def _name_day(day: int) -> tuple[str, ...]:
    return tuple(_write(datetime.fromtimestamp(day * 86_400, UTC).date()))


def find_relative_days(query: str, now: float) -> list[str]:
    """Return the words of every day that a query names by its distance from ``now``."""
    if not 0 < now < 32_503_680_000:
        return []
    today = datetime.fromtimestamp(now, UTC).date()
    found: list[str] = []
    near = _NEAR_WORD.search(query)
    if near:
        found += _write(today - timedelta(_NEAR[near.group().lower()]))
    for name in _LAST_DAY.findall(query):
        found += _write(_last_weekday(today, _DAYS.index(name.lower())))
    for character in _LAST_DAY_ZH.findall(query):
        monday = today - timedelta(today.weekday() + 7)
        found += _write(monday + timedelta(_DAYS_ZH.index("日" if character == "天" else character)))
    for number, unit in (*_AGO.findall(query), *_AGO_ZH.findall(query)):
        days = 1 if number.lower() == "a" else _NUMBERS.get(number.lower()) or int(number)
        found += _write(today - timedelta(days * (1 if unit.lower() in ("day", "天") else 7)))
    return found


def _last_weekday(today: date, weekday: int) -> date:
    return today - timedelta((today.weekday() - weekday - 1) % 7 + 1)


def _write(day: date) -> list[str]:
    return [f"@{day:%m-%d}", f"@{day:%Y-%m-%d}"]
