"""Runs a task with one player and one compressor, and records what it took and whether it succeeded.

Every request is prepared by the compressor, as in a replay; the player answers from it. What the player did is judged
by the world's own log. Runs are deterministic for scripted players.
"""

from __future__ import annotations

import json
import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from refold.budget import Tariff
from refold.budget.economics import BilledRequest, charge_request
from refold.conversation.message import ROOT
from refold.conversation.view import Item, Lens
from refold.errors import RefoldError
from refold.evaluation.arms import Arm
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ladder.laws import common_prefix
from refold.replay.policy import Policy, PolicyRoom
from refold.testing.provider_rules import find_violations
from refold.tokens import counter_for, model_info
from refold.tokens.counter import REPLY_TOKENS
from refold.trial.player import ScriptedPlayer, Sight, TrialPlayer, read_item
from refold.trial.service import make_booking, make_chat, make_detective
from refold.trial.task import TrialTask, World
from refold.trial.work import make_refactor, make_repair

# A reading has this share of the window, so that a task overflows it several times.
READ_SHARE = 0.2
# A player that knows everything needs about 30 requests; who needs four times as many goes round in circles.
STEPS_MAX = 120
# Whose cache rules bill the scripted players.
PRICED_AS = "claude-sonnet-4"
MakePlayer = Callable[[TrialTask, Sequence[Mapping[str, Any]]], TrialPlayer]


def list_tasks(window: int) -> list[TrialTask]:
    """Return all tasks, with readings whose size follows from the window."""
    tokens = int(window * READ_SHARE)
    made = [make(seed, tokens) for seed in range(1, 5) for make in (make_repair, make_refactor)]
    made += [make(seed, tokens) for seed in range(1, 5) for make in (make_detective, make_booking, make_chat)]
    made += [
        make(seed, tokens, is_chinese=True) for seed in (5, 6) for make in (make_detective, make_booking, make_chat)
    ]
    return made


@dataclass(slots=True)
class TrialRun:
    """One run of a task. ``wrong`` is what the check found; ``repeated_calls`` had the same arguments before."""

    task: str
    family: str
    arm: str
    player: str
    steps: int = 0
    tokens_peak: int = 0
    tokens_total: int = 0
    bill: float = 0.0
    unfit: int = 0
    invalid: int = 0
    repeated_calls: int = 0
    repeated_acts: int = 0
    seconds: float = field(default=0.0, compare=False)
    wrong: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_solved(self) -> bool:
        """Whether the task was done, and nothing else; requests over the window count only for ``raw``."""
        return not self.wrong and not self.problem and (not self.unfit or self.arm == "raw")


def run_task(
    task: TrialTask, arm: Arm, *, window: int, player: str = "view", model: str = "", make: MakePlayer | None = None
) -> TrialRun:
    """Run a task to its end; what cannot be prepared or answered ends it with a problem.

    ``make`` makes a player of another kind; ``model`` names the model whose prices and tokenizer apply.
    """
    made = TrialRun(task.name, task.family, arm.name, player)
    world, check = task.build()
    tools = [tool.describe() for tool in world.tools]
    begun = time.perf_counter()
    config = arm.make_config(window)
    counter, info = counter_for(model or None), model_info(model or PRICED_AS)
    lens = Lens(make_format("openai-chat"), counter.count_parts, counter.count_text)
    fixed = REPLY_TOKENS + counter.count_tools(tools)
    room = PolicyRoom(lens, fixed, config.budget(info, counter.margin), Tariff.of_model(info))
    answering = make(task, tools) if make else ScriptedPlayer(task, player)
    with closing(answering):
        try:
            _Run(task, world, room, arm.make_policy(room, config), made=made).play(answering)
        except RefoldError as error:
            made.problem = str(error)
    made.wrong = tuple(check()) if not made.problem else ()
    made.seconds = time.perf_counter() - begun
    made.repeated_calls = sum(count - 1 for count in Tally(world.calls).values())
    made.repeated_acts = world.count_repeated_acts()
    return made


class _Run:
    """The conversation of one run."""

    def __init__(self, task: TrialTask, world: World, room: PolicyRoom, policy: Policy, *, made: TrialRun) -> None:
        self._task, self._world, self._room, self._policy, self._made = task, world, room, policy, made
        self._whole: list[str] = []
        self._parent = ROOT
        self._sent: tuple[Item, ...] = ()

    def play(self, player: TrialPlayer) -> None:
        self._say({"role": "system", "content": self._task.system})
        for number, turn in enumerate(self._task.turns):
            self._say({"role": "user", "content": turn.asked})
            if not self._answer(player, number):
                self._made.problem = f"no answer after {self._made.steps} requests"
                return

    def _answer(self, player: TrialPlayer, turn: int) -> bool:
        """Let the player act until it answers in words; return whether it did."""
        while self._made.steps < STEPS_MAX:
            seen = self._prepare()
            message = player.act(seen, turn)
            self._say(message)
            calls = message.get("tool_calls") or []
            if not calls:
                self._world.answers.append(str(message.get("content") or ""))
                return True
            for call in calls:
                function = call.get("function") or {}
                result = self._world.call(str(function.get("name")), _read_arguments(function.get("arguments")))
                self._say({"role": "tool", "tool_call_id": call.get("id"), "content": result})
        return False

    def _say(self, raw: dict[str, Any]) -> None:
        lens = self._room.lens
        (message,) = parse_messages(lens.format, [raw], self._parent)
        self._parent = message.id
        self._whole.append(read_item(message.parts))
        self._policy.see([message])

    def _prepare(self) -> Sight:
        step = self._policy.prepare()
        made, room = self._made, self._room
        shared = common_prefix(self._sent, step.items)
        shared_tokens = sum(item.tokens for item in step.items[:shared]) + (room.fixed_tokens if made.steps else 0)
        billed = charge_request(BilledRequest(step.tokens, shared_tokens), room.tariff).total
        made.bill += billed
        made.steps += 1
        made.tokens_peak = max(made.tokens_peak, step.tokens)
        made.tokens_total += step.tokens
        made.unfit += step.tokens > room.budget.hard
        raws = [item.raw for item in step.items]
        made.invalid += bool(find_violations("openai-chat", raws))
        self._sent = step.items
        return Sight([read_item(item.parts) for item in step.items], self._whole, raws, billed)


def _read_arguments(text: object) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
