"""Anthropic's models through their official client. One call is one attempt, streamed, with a client of its own.

Key and address are always handed to the client, so that it never looks for them in the environment or in files. What a
model turns out to need (no temperature, room to think) is remembered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from refold.errors import ProviderError, Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.model import TEMPERATURE, THINKING_TOKENS, TIMEOUT_S, TOKENS_MAX, Completion, Usage
from refold.llm.reading import Collected, check_kind, load_library

URL = "https://api.anthropic.com"
NO_KEY = "none"
THINKS = "thinks"
ROUNDS_MAX = 3


@dataclass(frozen=True)
class AnthropicModel:
    """A model behind Anthropic's messages. ``window`` is what its requests may have, where that is known."""

    name: str
    key: str = field(default="", repr=False)
    url: str = field(default=URL, repr=False)
    timeout_s: float = TIMEOUT_S
    window: int | None = None
    _learned: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def source(self) -> str:
        """Model and address as messages name them, without anything secret."""
        return f"{self.name} at {show_url(self.url)}"

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return the answer to one prompt; raise a ProviderError if there is none."""
        library = await load_library("anthropic")
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            **({"system": system} if system else {}),
        }
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                library.AsyncAnthropic(
                    api_key=self.key or NO_KEY,
                    base_url=self.url.rstrip("/").removesuffix("/v1"),
                    timeout=self.timeout_s,
                    max_retries=0,
                ) as client,
            ):
                for _ in range(ROUNDS_MAX):
                    room = THINKING_TOKENS if THINKS in self._learned else 0
                    sent = {**body, "max_tokens": tokens_max + room}
                    if "temperature" not in self._learned:
                        # Newer clients no longer know the parameter, while many models still take it.
                        sent["extra_body"] = {"temperature": temperature}
                    try:
                        answer = await self._ask(client, sent, tokens_max)
                    except library.BadRequestError as error:
                        # Models that think before they answer take no temperature.
                        if "temperature" not in str(error) or "temperature" in self._learned:
                            raise
                        self._learned.add("temperature")
                        continue
                    if room or answer.content or answer.finish_reason != "length":
                        return answer
                    self._learned.add(THINKS)
                raise ProviderError(f"{self.source} gives no answer with or without room to think")
        except TimeoutError:
            raise Unavailable(f"{self.source} did not answer within {self.timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - the client's errors, and those of what it stands on
            raise classify(error, source=self.source, secrets=(self.key,)) from None

    async def _ask(self, client: Any, body: dict[str, Any], tokens_max: int) -> Completion:
        # The raw events instead of the client's own collector: that one has no limit on what it collects.
        stream = await client.messages.create(stream=True, **body)
        async with stream:
            kind = stream.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                raise Unavailable("the provider answered 200 with something that is no stream; try again")
            collected = Collected(tokens_max)
            async for event in stream:
                _take_event(collected, event)
                if collected.is_full:
                    break
        return collected.finish()


def _take_event(collected: Collected, event: Any) -> None:
    if event.type == "message_start":
        usage = event.message.usage
        cached = usage.cache_read_input_tokens or 0
        total = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
        collected.usage = Usage(total, usage.output_tokens, cached)
    elif event.type == "content_block_start":
        collected.has_calls = collected.has_calls or event.content_block.type == "tool_use"
    elif event.type == "content_block_delta" and event.delta.type == "text_delta":
        collected.add(event.delta.text)
    elif event.type == "message_delta":
        collected.reason = event.delta.stop_reason or collected.reason
        before = collected.usage or Usage()
        collected.usage = Usage(before.input, event.usage.output_tokens or before.output, before.cached)
