"""OpenHands: ``LLMSummarizingCondenser`` over a conversation's view, driven as its agent drives it before each request.

The condenser has one number: it condenses above ``max_tokens`` and comes down to half of it. The system prompt is kept
apart, so the first event that it must keep is the first user message. Its SDK needs Python 3.12.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

TRIGGER_SHARE = 0.75
KEEP_FIRST = 1
CONDENSATIONS_MAX = 5


class Condenser:
    """Keeps the events of one conversation and the view that the condenser leaves of them."""

    def __init__(self, allowance: Any) -> None:
        from openhands.sdk.context.view import View

        self._allowance = allowance
        self._system: list[dict[str, Any]] = []
        self._raws: dict[str, dict[str, Any]] = {}
        self._actions: dict[str, str] = {}
        self._view = View()
        self._condenser: Any = None
        self._llm: Any = None

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the system prompt and what the condenser leaves of the conversation."""
        for raw in new:
            if raw["role"] == "system" and not self._view.events:
                self._system.append(raw)
                continue
            for event in self._make_events(raw):
                self._raws[event.id] = raw
                self._view.append_event(event)
        if self._condenser is None:
            self._make_condenser()
        for _ in range(CONDENSATIONS_MAX):
            done = self._condenser.condense(self._view, agent_llm=self._llm)
            if done is self._view or hasattr(done, "events"):
                break
            self._view.append_event(done)
        return [*self._system, *self._render()]

    def _make_condenser(self) -> None:
        from openhands.sdk.context.condenser import LLMSummarizingCondenser

        room = self._allowance.tokens - self._allowance.count(self._system)
        self._llm = _stand_in_class()(model="openai/stand-in", api_key="none")
        self._llm._allowance = self._allowance
        self._condenser = LLMSummarizingCondenser(
            llm=self._llm, max_tokens=max(2, int(TRIGGER_SHARE * room)), keep_first=KEEP_FIRST
        )

    def _make_events(self, raw: dict[str, Any]) -> list[Any]:
        from openhands.sdk.event import ActionEvent, MessageEvent, ObservationEvent
        from openhands.sdk.llm import Message, MessageToolCall, TextContent

        text = _read_text(raw)
        if raw["role"] == "tool":
            name = raw.get("name") or "tool"
            call = raw["tool_call_id"]
            made = _observation_class().from_text(text)
            action = self._actions.get(call, call)
            return [ObservationEvent(observation=made, action_id=action, tool_name=name, tool_call_id=call)]
        calls = raw.get("tool_calls") or ()
        if not calls:
            role = "assistant" if raw["role"] == "assistant" else "user"
            source: Any = "agent" if role == "assistant" else "user"
            return [MessageEvent(source=source, llm_message=Message(role=role, content=[TextContent(text=text)]))]
        events = []
        for number, call in enumerate(calls):
            function = call["function"]
            told = MessageToolCall(
                id=call["id"], name=function["name"], arguments=function.get("arguments") or "{}", origin="completion"
            )
            event = ActionEvent(
                thought=[TextContent(text=text)] if number == 0 and text else [],
                tool_name=function["name"],
                tool_call_id=call["id"],
                tool_call=told,
                llm_response_id=f"response-{id(raw)}",
            )
            self._actions[call["id"]] = event.id
            events.append(event)
        return events

    def _render(self) -> list[dict[str, Any]]:
        """Return the view as OpenAI chat: originals as they came, summaries as user messages."""
        rendered: list[dict[str, Any]] = []
        for event in self._view.events:
            raw = self._raws.get(event.id)
            if raw is None:
                rendered.append({"role": "user", "content": event.summary})
            elif not rendered or rendered[-1] is not raw:  # Several calls of one answer are several events.
                rendered.append(raw)
        return rendered


def _read_text(raw: dict[str, Any]) -> str:
    content = raw.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


@cache
def _observation_class() -> Any:
    from openhands.sdk.tool.schema import Observation

    class Told(Observation):  # type: ignore[misc]
        pass

    return Told


@cache
def _stand_in_class() -> Any:
    """Return a model class that counts with our counter and answers with the shared stand-in."""
    from litellm.types.utils import ModelResponse
    from openhands.sdk.llm import LLM, LLMResponse, Message, MetricsSnapshot, TextContent
    from pydantic import PrivateAttr

    class StandIn(LLM):  # type: ignore[misc]
        _allowance: Any = PrivateAttr(None)
        _known: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)

        def get_token_count(self, messages: Any, tools: Any = None, add_security_risk_prediction: bool = False) -> int:  # noqa: ARG002
            return int(self._allowance.count([self._convert(message) for message in messages]))

        def _convert(self, message: Any) -> dict[str, Any]:
            text = "".join(part.text for part in message.content if hasattr(part, "text"))
            made: dict[str, Any] = {"role": message.role, "content": text}
            if message.tool_calls:
                made["tool_calls"] = [
                    {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                    for one in message.tool_calls
                ]
            if message.tool_call_id:
                made["tool_call_id"] = message.tool_call_id
            return self._known.setdefault(json.dumps(made), made)

        def generate(self, messages: Any, **options: Any) -> Any:  # noqa: ARG002
            prompt = "\n\n".join(part.text for message in messages for part in message.content)
            answer = Message(role="assistant", content=[TextContent(text=self._allowance.ask(prompt))])
            return LLMResponse(message=answer, metrics=MetricsSnapshot(), raw_response=ModelResponse())

    return StandIn
