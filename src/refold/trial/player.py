"""Who solves a task: scripted players that prove the harness and measure compression without a model, and models.

A scripted player plans by rule from what it sees: it looks for the first move whose traces it does not find, takes the
facts it needs from the text, reads again what it no longer finds, and acts without a rule that it no longer sees. So it
fails, pays twice or reads for ever exactly when its context has lost what it needs. ``perfect`` sees the whole
conversation, ``view`` what the compressor sends, ``forgetful`` only the newest messages of that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from refold.conversation.message import Part
from refold.errors import ProviderError
from refold.llm.port import ChatModel, ChatReply, ChatRequest
from refold.replay.record import read_texts
from refold.trial.task import Facts, Move, PlayedReply, TrialTask, TrialTurn

NEWEST = 4
PLAYERS = ("view", "perfect", "forgetful")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a player sees before it acts: texts of the request, oldest first, and the whole conversation.

    ``billed`` is what the request costs, in uncached input tokens.
    """

    sent: Sequence[str]
    whole: Sequence[str]
    raws: Sequence[object]
    billed: float = 0.0


class TrialPlayer(Protocol):
    """Answers requests of one run."""

    def act(self, seen: Sight, turn: int) -> dict[str, Any]:
        """Return the assistant's message: calls of tools, or words that end the turn."""

    def close(self) -> None:
        """Release what the run used."""


def read_item(parts: Sequence[Part]) -> str:
    """Return what one message shows: its text, the names of its calls, their arguments decoded."""
    return "\n".join(text for part in parts for text in (part.name, *read_texts([part])) if text)


class ScriptedPlayer:
    """Plays a task by its moves, from what it sees."""

    def __init__(self, task: TrialTask, sight: str) -> None:
        self._task, self._sight = task, sight
        self._number = 0
        self._found = ""

    def act(self, seen: Sight, turn: int) -> dict[str, Any]:
        texts = seen.whole if self._sight == "perfect" else seen.sent
        text = "\n".join(texts[-NEWEST:] if self._sight == "forgetful" else texts)
        asked = self._task.turns[turn]
        self._found = self._read_newest(seen.whole[-1], asked) if self._task.is_talkative else ""
        for move in asked.moves:
            if not move.done.search(text):
                return self._do(move, text, asked)
        facts = self._gather(asked.reply, text, asked)
        return facts if "role" in facts else {"role": "assistant", "content": asked.reply.text(facts)}

    def _read_newest(self, text: str, turn: TrialTurn) -> str:
        """Return the sentences of the newest message that hold a fact of this turn, as many agents repeat them."""
        steps: list[Move | PlayedReply] = [*turn.moves, *turn.lookups, turn.reply]
        patterns = [one for step in steps for one in step.needs.values()]
        found = [match.group() for pattern in patterns for match in pattern.finditer(text)]
        return f"I found: {'; '.join(dict.fromkeys(found))}. " if found else ""

    def _do(self, move: Move, text: str, turn: TrialTurn) -> dict[str, Any]:
        facts = self._gather(move, text, turn)
        return facts if "role" in facts else self._call(move, facts)

    def _gather(self, step: Move | PlayedReply, text: str, turn: TrialTurn) -> dict[str, Any]:
        """Return the facts that a step needs, or the call that finds the first missing one again."""
        facts: dict[str, Any] = {}
        for name, pattern in step.needs.items():
            found = pattern.findall(text)
            if not found:
                again = next(one for one in turn.lookups if one.name == step.sources[name])
                return self._do(again, text, turn)
            facts[name] = found[-1]
        for name, pattern in step.rules.items():
            found = pattern.findall(text)
            facts[name] = found[-1] if found else ""
        return facts

    def _call(self, move: Move, facts: Facts) -> dict[str, Any]:
        self._number += 1
        words = f"{self._found}Next: {move.name}." if self._task.is_talkative else None
        function = {"name": move.tool, "arguments": json.dumps(move.arguments(facts), ensure_ascii=False)}
        call = {"id": f"call_{self._number}", "type": "function", "function": function}
        return {"role": "assistant", "content": words, "tool_calls": [call]}

    def close(self) -> None:
        """Nothing to release."""


class Purse:
    """What all runs together may still cost, in dollars; each request is charged what the harness bills for it."""

    def __init__(self, dollars: float) -> None:
        self.left = dollars

    def pay(self, dollars: float) -> None:
        """Take the price of a request; raise ProviderError if the purse was empty before it."""
        if self.left <= 0:
            raise ProviderError("the budget of this trial is spent; raise --dollars or run fewer tasks")
        self.left -= dollars


class ModelPlayer:
    """Lets a model play, with a purse that bounds the cost of all its runs."""

    def __init__(
        self, model: ChatModel, tools: Sequence[Mapping[str, Any]], purse: Purse, dollars_per_token: float
    ) -> None:
        self._model, self._tools, self._purse, self._price = model, tools, purse, dollars_per_token
        self._runner = asyncio.Runner()

    def act(self, seen: Sight, turn: int) -> dict[str, Any]:  # noqa: ARG002
        self._purse.pay(seen.billed * self._price)
        return self._runner.run(self._ask(seen.raws)).message

    async def _ask(self, raws: Sequence[object]) -> ChatReply:
        async for piece in self._model.stream(ChatRequest(list(raws), tools=list(self._tools))):
            if isinstance(piece, ChatReply):
                return piece
        raise ProviderError("the model gave no answer")

    def close(self) -> None:
        """Close the model's connections, which belong to this run's event loop, and the loop."""
        with self._runner:
            self._runner.run(self._model.aclose())
