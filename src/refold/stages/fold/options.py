"""The options of a fold: what stays, how long its record may be, and who writes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from refold.conversation.message import Role
from refold.stages.extract.summary import Style
from refold.stages.prompts import PromptStyle
from refold.stages.score import ScoreOptions
from refold.stages.stage import Goal, check_options


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """``keep_*`` counts say what stays; without them the goal's target does.

    Summaries may have ``summary_share`` of the room, of a small one more, up to ``summary_tokens_least``. With
    ``standing_share`` a new fold leaves the earlier ones as they are, cached, until they fill that share of the
    summaries' room; each takes ``fresh_share`` of what is left of it. ``closing`` adds a sentence that says what the
    text above it is. With ``by_compressor`` a manager has its ``compressor`` write the summary. With ``is_paced`` a
    model is asked once for as many tokens as lie between trigger and target; for fewer the summary is extracted.
    """

    name: ClassVar[str] = "fold"

    keep_messages: int | None = None
    keep_turns: int | None = None
    keep_units: int | None = None
    min_messages: int = 0
    importance_threshold: float | None = None
    keep_first_user: bool = True
    offload_freed_min: int | None = None
    role: Role = "user"
    opening: str = ""
    closing: bool = False
    style: Style = "note"
    summariser: Literal["extract", "llm"] = "extract"
    summary_tokens_max: int = 10_000
    summary_share: float = 0.3
    summary_tokens_least: int = 0
    summary_chars_max: int = 0
    index_tokens_max: int = 8_000
    index_share: float = 0.3
    standing_share: float = 0.0
    fresh_share: float = 0.4
    tool_chars_max: int = 2_000
    prompt_chars_max: int = 200_000
    prompt_tokens_max: int = 100_000
    prompt_style: PromptStyle = "note"
    prompt: str = ""
    ask_facts: bool = False
    by_compressor: bool = False
    extract_opening: str = ""
    is_paced: bool = False
    on_failure: Literal["extract", "keep"] = "extract"
    # What importance goes by; in a config it is a block of its own.
    score: ScoreOptions = field(default=ScoreOptions(), metadata={"block": "score"})

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def keeps_by_count(self) -> bool:
        """True if a number of messages, turns or units says what stays."""
        return any(count is not None for count in (self.keep_messages, self.keep_turns, self.keep_units))

    def stands(self, goal: Goal) -> bool:
        """Tell whether earlier folds stay as they are. Counts, and a model's summaries, take them in."""
        return bool(self.standing_share) and not (goal.force or self.keeps_by_count or self.summariser == "llm")
