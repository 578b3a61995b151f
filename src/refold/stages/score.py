"""score: the importance of a message, from 0 to 1, with the reasons, by rules that anyone can check.

The weights are those of the ``importance`` preset, added up in hundredths, so that sums never drift. Importance keeps
whole units: an important result brings its call along. Nothing here edits; fold asks which units to leave.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from refold.conversation.message import Part, is_notice
from refold.conversation.view import View
from refold.errors import ConfigError
from refold.reading.rules import lazy_rule

KEYWORDS_EN = (
    "important", "must", "always", "never", "remember", "critical", "require", "required", "requirement", "decide",
    "decided", "decision", "conclusion", "deadline", "prefer", "preference", "bug", "error", "fix", "fixed",
    "root cause", "warning", "security", "todo", "do not", "don't", "from now on", "make sure", "key point",
    "note that",
)  # fmt: skip
KEYWORDS_ZH = (
    "重要", "必须", "务必", "记住", "关键", "决定", "结论", "需求", "要求", "不要", "禁止", "以后", "一定", "截止",
    "偏好", "错误", "修复", "问题", "注意", "警告", "安全", "待办", "方案", "总是", "从不", "永远",
)  # fmt: skip

_CODE = lazy_rule("words", "form", "code", "is")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_SCAN_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Weights from -1 to 1, and the rules for them. Lengths are in characters; a Chinese character counts as two."""

    user: float = 0.2
    keyword: float = 0.2
    code: float = 0.1
    tool_result: float = -0.2
    short: float = -0.1
    rich: float = 0.1
    short_chars_max: int = 20
    rich_chars_min: int = 200
    keywords: tuple[str, ...] = KEYWORDS_EN + KEYWORDS_ZH

    def __post_init__(self) -> None:
        for name in ("user", "keyword", "code", "tool_result", "short", "rich"):
            weight = getattr(self, name)
            if not -1 <= weight <= 1:
                raise ConfigError(
                    "{setting} is {value}; give a weight from -1 to 1", setting=f"score.{name}", value=weight
                )
        for name in ("short_chars_max", "rich_chars_min"):
            if (value := getattr(self, name)) < 0:
                raise ConfigError("{setting} is {value}; give 0 or more", setting=f"score.{name}", value=value)


@dataclass(frozen=True, slots=True)
class MessageImportance:
    """A score from 0 to 1 in steps of a hundredth, and each reason with its weight, such as ``user +0.2``."""

    score: float
    reasons: tuple[str, ...] = ()

    def reaches(self, threshold: float) -> bool:
        """Return whether the score is at the threshold or above, without the drift of floats."""
        return round(self.score * 100) >= round(threshold * 100)


DEFAULT_OPTIONS = ScoreOptions()


def score_message(role: str, parts: Sequence[Part], options: ScoreOptions = DEFAULT_OPTIONS) -> MessageImportance:
    """Return the importance of a message, with the reasons."""
    text = "\n".join(part.text for part in parts if part.kind in ("text", "result"))
    is_result = role == "tool" or any(part.kind == "result" for part in parts)
    length = measure_length(text)
    keyword = find_keyword(text, options.keywords)
    has_call = any(part.kind == "call" for part in parts)
    applied = (
        ("user", options.user, role == "user" and not is_result and not is_notice(role, parts)),
        (f"keyword '{keyword}'", options.keyword, keyword is not None),
        ("code or command", options.code, has_call or _CODE.search(text[:_SCAN_CHARS]) is not None),
        ("tool result", options.tool_result, is_result),
        ("too short", options.short, length < options.short_chars_max and not has_call),
        ("rich", options.rich, length >= options.rich_chars_min),
    )
    counted = [
        (reason, hundredths) for reason, weight, holds in applied if holds and (hundredths := round(weight * 100))
    ]
    total = min(100, max(0, sum(hundredths for _, hundredths in counted)))
    return MessageImportance(
        total / 100, tuple(f"{reason} {_write_weight(hundredths)}" for reason, hundredths in counted)
    )


def _write_weight(hundredths: int) -> str:
    """Write +0.2 for 20 and −0.05 for -5."""
    whole, rest = divmod(abs(hundredths), 100)
    digits = f"{whole}.{rest:02d}".rstrip("0").rstrip(".")
    return f"{'+' if hundredths > 0 else '−'}{digits}"


def measure_length(text: str) -> int:
    """Return the number of characters without surrounding blanks; a Chinese one counts as two."""
    return len(text.strip()) + len(_HAN.findall(text[:_SCAN_CHARS]))


def find_keyword(text: str, keywords: Sequence[str]) -> str | None:
    """Return the first of the keywords that a text has, as a whole word where it is written in letters; or None."""
    sample = text[:_SCAN_CHARS].lower()
    for word in keywords:
        lowered = word.lower()
        if lowered not in sample:
            continue
        if not lowered.isascii() or re.search(rf"(?<![A-Za-z0-9_]){re.escape(lowered)}(?![A-Za-z0-9_])", sample):
            return word
    return None


def important_units(view: View, threshold: float, options: ScoreOptions = DEFAULT_OPTIONS) -> dict[int, float]:
    """Return the units in which a message, as the view shows it, reaches the threshold, with the highest score.

    Folds never count.
    """
    found: dict[int, float] = {}
    for index, unit in enumerate(view.units):
        items = (item for item in view.items[unit.start : unit.stop] if not item.is_fold)
        best = max(
            (score_message(item.role, item.parts, options) for item in items),
            key=lambda found: found.score,
            default=None,
        )
        if best is not None and best.reaches(threshold):
            found[index] = best.score
    return found
