"""Policies decide what a request contains. A preset's ladder is one policy; the baselines are others.

A policy sees each message once, in order, and prepares a context whenever the assistant is about to speak. Its changes
persist: a session has one view, which grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from refold.budget import Budget, Carry, Tariff
from refold.config import CompressionConfig
from refold.conversation import because
from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item, Lens, View, apply, extend
from refold.errors import BudgetTooSmall
from refold.ladder.plan import Plan, order_stages, prepare
from refold.ladder.run import drive
from refold.replay.record import Asked
from refold.stages.stage import Ask, Reply

# Maximum length of a stand-in's summary. The stand-in answers in place of a model, so that calls can be billed.
STAND_IN_CHARS = 2_400


@dataclass(frozen=True, slots=True)
class Step:
    """A prepared request and how it was made. ``problem`` says why it does not fit."""

    items: tuple[Item, ...]
    tokens: int
    tokens_freed: int = 0
    stages: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    asked: tuple[Asked, ...] = ()
    problem: str = ""


class Policy(Protocol):
    """Prepares the requests of one session. ``keeps_originals``: hidden messages can be recalled."""

    keeps_originals: ClassVar[bool]

    def see(self, messages: Sequence[Message]) -> None:
        """Add new messages."""
        ...

    def prepare(self, idle_s: float = 0.0) -> Step:
        """Return what would be sent now."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """Input of every policy: the lens, the tokens beside the messages, the budget and the prices."""

    lens: Lens
    fixed_tokens: int
    budget: Budget
    tariff: Tariff


class LadderPolicy:
    """A preset's ladder over one view that is extended, never rebuilt; edits stay."""

    keeps_originals: ClassVar[bool] = True

    def __init__(self, room: Room, config: CompressionConfig) -> None:
        self._room = room
        self._view: View = apply((), (), room.lens, fixed_tokens=room.fixed_tokens)
        self._carry = Carry()
        self._asked: list[Asked] = []
        self._unsent: set[str] = set()
        self._plan = Plan(
            budget=room.budget,
            stages=order_stages(config.stages()),
            thresholds=config.thresholds(),
            language=config.fixed_language,
            is_auto=config.is_auto,
            economics=config.economics(room.tariff) if config.economic else None,
        )

    def see(self, messages: Sequence[Message]) -> None:
        """Extend the view."""
        self._view = extend(self._view, messages)
        self._unsent.update(message.id for message in messages)

    def prepare(self, idle_s: float = 0.0) -> Step:
        """Run the ladder if a trigger fires."""
        before = self._view.tokens
        plan = replace(self._plan, unsent=frozenset(self._unsent))
        self._unsent.clear()
        if plan.economics is not None:
            carry = replace(self._carry, idle_s=idle_s)
            plan = replace(plan, economics=replace(plan.economics, carry=carry))
        self._asked = []
        try:
            outcome = drive(prepare(self._view, plan), self._answer)
        except BudgetTooSmall as error:
            return Step(self._view.items, self._view.tokens, reason=because.TOO_SMALL(), problem=str(error))
        self._view, self._carry = outcome.view, outcome.carry
        return Step(
            self._view.items,
            self._view.tokens,
            before - self._view.tokens,
            tuple(stage.stage for stage in outcome.stages if stage.edits),
            outcome.trigger.reason,
            tuple(self._asked),
        )

    def _answer(self, ask: Ask) -> Reply:
        count = self._room.lens.count_text
        text = ask.prompt[-STAND_IN_CHARS:]
        self._asked.append(Asked(count(ask.system) + count(ask.prompt), min(ask.tokens_max, count(text))))
        return Reply(text)
