"""LangChain's ``SummarizationMiddleware``, driven as LangChain's agents drive it: before each call of the model.

It imports nothing of refold, so that it also runs in an environment that has LangChain alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

TRIGGER_SHARE = 0.75
TARGET_SHARE = 0.5


class Summarisation:
    """Summarises at 0.75 of the budget beside the system prompt, and keeps the newest 0.5 of it."""

    def __init__(self, allowance: Any) -> None:
        self._allowance = allowance
        self._raws: dict[str, dict[str, Any]] = {}
        self._system: list[dict[str, Any]] = []
        self._state: list[Any] = []
        self._middleware: Any = None

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the system prompt and what the middleware leaves of the conversation."""
        convert = import_module("langchain_core.messages").convert_to_messages
        for raw in new:
            if not self._state and raw["role"] in ("system", "developer"):
                self._system.append(raw)
                continue
            name = str(len(self._raws))
            self._raws[name] = raw
            self._state += convert([{**raw, "content": raw.get("content") or "", "id": name}])
        if self._middleware is None:
            self._middleware = self._make_middleware()
        changed = self._middleware.before_model({"messages": self._state}, None)
        if changed is not None:
            self._state = [message for message in changed["messages"] if message.type != "remove"]
        return [*self._system, *(self._find_raw(message) for message in self._state)]

    def _make_middleware(self) -> Any:
        middleware = import_module("langchain.agents.middleware")
        room = self._allowance.tokens - self._allowance.count(self._system)
        return middleware.SummarizationMiddleware(
            model=_make_stand_in(self._allowance.ask),
            trigger=("tokens", max(1, int(TRIGGER_SHARE * room))),
            keep=("tokens", max(1, int(TARGET_SHARE * room))),
            token_counter=lambda messages: self._allowance.count([self._find_raw(message) for message in messages]),
        )

    def _find_raw(self, message: Any) -> dict[str, Any]:
        raw = self._raws.get(message.id) if message.id else None
        if raw is None or (isinstance(raw.get("content"), str) and raw["content"] != message.content):
            # The summary, or a message of which the middleware took a part: its id is kept for the next request.
            key = f"{message.id}/{message.content}"
            raw = self._raws.setdefault(key, {"role": "user", "content": str(message.content) or " "})
        return raw


def _make_stand_in(ask: Any) -> Any:
    """Return a chat model that answers each prompt with ``ask``."""
    base = import_module("langchain_core.language_models").SimpleChatModel

    class StandIn(base):  # type: ignore[misc, valid-type]
        @property
        def _llm_type(self) -> str:
            return "stand-in"

        def _call(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> str:  # noqa: ARG002
            return str(ask("\n\n".join(str(message.content) for message in messages)))

    return StandIn()
