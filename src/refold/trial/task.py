"""A task of a trial: what is asked, the world with its tools, the check at the end, and the moves of a scripted player.

A world is plain values in memory: its tools touch no file, no process and no network. It logs what was done for good,
so a check sees what really happened, whatever the player says. The same seed and size give the same task.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["repair", "refactor", "detective", "booking", "chat"]
Facts = Mapping[str, str]
# About how many characters of our filler one token has.
FILLER_CHARS_PER_TOKEN = 5.2


@dataclass(frozen=True, slots=True)
class TrialTool:
    """A tool of a world: its arguments are all texts."""

    name: str
    purpose: str
    arguments: tuple[str, ...] = ()
    run: Callable[..., str] = field(default=lambda: "", compare=False)

    def describe(self) -> dict[str, Any]:
        """Return the definition that is sent to a model."""
        properties = {name: {"type": "string"} for name in self.arguments}
        parameters = {"type": "object", "properties": properties, "required": list(self.arguments)}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.purpose, "parameters": parameters},
        }


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a scripted player: what shows that it is done, what it must know, and the call that does it.

    ``done`` is looked for in what the player sees. ``needs`` are patterns whose first group is a fact; ``sources``
    names the move that finds a fact again. A rule is optional: whoever no longer sees it acts without it.
    """

    name: str
    tool: str
    arguments: Callable[[Facts], dict[str, str]]
    done: re.Pattern[str] = re.compile("(?!)")
    needs: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlayedReply:
    """The answer that a scripted player gives at the end of a turn, from facts and rules that it sees."""

    text: Callable[[Facts], str]
    needs: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialTurn:
    """A person's message, and how a scripted player answers it: its moves in order, then its words.

    ``lookups`` are moves that find facts; they are made only where a fact is needed and not in sight.
    """

    asked: str
    reply: PlayedReply
    moves: tuple[Move, ...] = ()
    lookups: tuple[Move, ...] = ()


@dataclass(slots=True)
class World:
    """The tools of one run, and what was done. ``acts`` cannot be undone; ``answers`` are the player's words."""

    tools: Sequence[TrialTool] = ()
    calls: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Run a tool; whatever is wrong is said in the result, as services do."""
        tool = next((one for one in self.tools if one.name == name), None)
        if tool is None:
            return f"error: there is no tool {name[:60]!r}; there are {', '.join(one.name for one in self.tools)}"
        given = {key: value for key, value in arguments.items() if key in tool.arguments and isinstance(value, str)}
        if missing := [key for key in tool.arguments if key not in given]:
            return f"error: {name} needs {', '.join(missing)} as text"
        self.calls.append(f"{name}({', '.join(given[key] for key in tool.arguments)})")
        return tool.run(**given)

    def count_repeated_acts(self) -> int:
        """Return how many acts were done more than once."""
        return sum(count - 1 for count in Counter(self.acts).values())


@dataclass(frozen=True, slots=True)
class TrialTask:
    """One task. ``build`` makes a fresh world and its check, which returns what is wrong: nothing is success."""

    name: str
    family: Family
    system: str
    turns: tuple[TrialTurn, ...]
    build: Callable[[], tuple[World, Callable[[], list[str]]]]
    is_talkative: bool = False


_WORDS = (
    "the queue was drained before the nightly window and the remaining items moved to a later batch while operators "
    "watched the graph of pending work which stayed flat for most of the hour then rose again when retries began and "
    "settled after cache nodes had warmed up so nobody was called and notes were filed"
)
_WORDS_ZH = (
    "夜间批次开始前队列已经清空 剩余条目移到稍后的批次 值班人员查看曲线 等待的工作保持平稳 重试开始后又上升 "
    "缓存预热之后恢复正常 没有人被叫醒 记录已经归档 各部门按计划交接 报表在上午生成 系统状态良好 无需处理"
)


def give(**arguments: str) -> Callable[[Facts], dict[str, str]]:
    """Return a function that gives these arguments, whatever the facts are."""
    return lambda _: arguments


class Filler:
    """Text of no importance, as reports, logs and listings are full of it; seeded, so that runs agree."""

    def __init__(self, seed: int, tokens: int, *, is_chinese: bool = False) -> None:
        self._dice = random.Random(seed)
        self._tokens, self._is_chinese = tokens, is_chinese

    def write(self, share: float = 1.0) -> str:
        """Return lines of filler that take about this share of the task's usual size."""
        words = (_WORDS_ZH if self._is_chinese else _WORDS).split()
        chars = int(self._tokens * share * (1.4 if self._is_chinese else FILLER_CHARS_PER_TOKEN))
        lines: list[str] = []
        while chars > 0:
            picked = self._dice.choices(words, k=5 if self._is_chinese else 14)
            line = ("，".join(picked) + "。") if self._is_chinese else " ".join(picked).capitalize() + "."
            lines.append(line)
            chars -= len(line) + 1
        return "\n".join(lines)

    def around(self, *facts: str) -> str:
        """Return facts, each on a line, in the midst of filler."""
        half = 0.5 / len(facts)
        pieces = [piece for fact in facts for piece in (self.write(half), fact, self.write(half))]
        return "\n".join(pieces)
