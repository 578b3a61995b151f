"""Pydantic AI harness: ``TieredCompaction`` (clear tool results, then summarise) inside a real agent run.

The agent's model is a function that only notes what it is sent. The harness has one number for trigger and target; here
it is the trigger, and the summariser keeps what fits half of the room.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from matching import match_originals

TRIGGER_SHARE = 0.75
KEEP_SHARE = 0.5


class Tiered:
    """Runs one agent step per request over the history that the last one left."""

    def __init__(self, allowance: Any) -> None:
        self._allowance = allowance
        self._originals: list[dict[str, Any]] = []
        self._system: list[dict[str, Any]] = []
        self._history: list[Any] = []
        self._seen: list[Any] = []
        self._agent: Any = None
        self._sizes: dict[str, int] = {}

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what the agent's model was sent."""
        for raw in new:
            if raw["role"] == "system" and not self._history:
                self._system.append(raw)
                continue
            self._originals.append(raw)
            self._add(raw)
        if self._agent is None:
            self._agent = self._make_agent()
        asyncio.run(self._agent.run(message_history=list(self._history)))
        self._history = list(self._seen)
        return [*self._system, *match_originals(_render(self._history), self._originals)]

    def _make_agent(self) -> Any:
        from pydantic_ai import Agent
        from pydantic_ai.messages import ModelResponse, TextPart
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai_harness.compaction import ClearToolResults, SummarizingCompaction, TieredCompaction

        def note(messages: list[Any], _info: Any) -> Any:
            self._seen = list(messages)
            return ModelResponse([TextPart("noted")])

        def summarise(messages: list[Any], _info: Any) -> Any:
            prompt = "\n\n".join(str(part.content) for message in messages for part in message.parts)
            return ModelResponse([TextPart(self._allowance.ask(prompt))])

        room = self._allowance.tokens - self._allowance.count(self._system)
        summary = SummarizingCompaction(
            model=FunctionModel(summarise), max_messages=1, keep_tokens=max(1, int(KEEP_SHARE * room))
        )
        tiers = [ClearToolResults(max_tokens=1), summary]
        tiered = TieredCompaction(
            tiers=tiers, target_tokens=max(1, int(TRIGGER_SHARE * room)), tokenizer=self._count_text
        )
        return Agent(FunctionModel(note), capabilities=[tiered])

    def _count_text(self, text: str) -> int:
        if text not in self._sizes:
            empty, message = ({"role": "user", "content": words} for words in ("", text))
            self._sizes[text] = int(self._allowance.count([message]) - self._allowance.count([empty]))
        return self._sizes[text]

    def _add(self, raw: dict[str, Any]) -> None:
        from pydantic_ai import messages as m

        text = raw.get("content") or ""
        if isinstance(text, list):
            text = "".join(str(part.get("text", "")) for part in text)
        if raw["role"] == "assistant":
            parts: list[Any] = [m.TextPart(text)] if text else []
            for call in raw.get("tool_calls") or ():
                function = call["function"]
                parts.append(m.ToolCallPart(function["name"], function.get("arguments"), tool_call_id=call["id"]))
            self._history.append(m.ModelResponse(parts))
            return
        part: Any = m.UserPromptPart(text)
        if raw["role"] == "tool":
            part = m.ToolReturnPart(raw.get("name") or "tool", text, tool_call_id=raw["tool_call_id"])
        elif raw["role"] == "system":
            part = m.SystemPromptPart(text)
        if self._history and isinstance(self._history[-1], m.ModelRequest):
            self._history[-1] = m.ModelRequest([*self._history[-1].parts, part])
        else:
            self._history.append(m.ModelRequest([part]))


def _render(history: list[Any]) -> list[dict[str, Any]]:
    """Return messages of Pydantic AI as OpenAI chat."""
    rendered: list[dict[str, Any]] = []
    for message in history:
        if message.kind == "response":
            rendered.append(_render_answer(message))
            continue
        for part in message.parts:
            kind = part.part_kind
            content = part.content if isinstance(part.content, str) else json.dumps(part.content, default=str)
            if kind == "tool-return":
                rendered.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": content})
            else:
                rendered.append({"role": "system" if kind == "system-prompt" else "user", "content": content})
    return rendered


def _render_answer(message: Any) -> dict[str, Any]:
    text = "".join(part.content for part in message.parts if part.part_kind == "text")
    calls = [
        {
            "id": part.tool_call_id,
            "type": "function",
            "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
        }
        for part in message.parts
        if part.part_kind == "tool-call"
    ]
    return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
