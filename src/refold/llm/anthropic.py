"""Anthropic's models through their official client.

Key and address are always handed to the client, so that it never looks for them in the environment or in files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.errors import Unavailable
from refold.llm.client import NO_KEY, Prompt, ProviderModel
from refold.llm.model import Completion, Usage
from refold.llm.reading import Collected, make_http_client, name_body

URL = "https://api.anthropic.com"
_TEMPERATURE = "temperature"


@dataclass(frozen=True)
class AnthropicModel(ProviderModel):
    """A model behind Anthropic's messages. ``window`` is what its requests may have, where that is known."""

    url: str = field(default=URL, repr=False)

    library: ClassVar[str] = "anthropic"

    def _open(self, library: Any) -> Any:
        return library.AsyncAnthropic(
            api_key=self.key or NO_KEY,
            base_url=self.url.rstrip("/").removesuffix("/v1"),
            timeout=self.timeout_s,
            max_retries=0,
            http_client=make_http_client(library),
        )

    def _write(self, question: Prompt, tokens_max: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": question.prompt}],
            "max_tokens": tokens_max,
            **({"system": question.system} if question.system else {}),
        }
        if _TEMPERATURE not in self._learned:
            # Newer clients no longer know the parameter, while many models still take it.
            body["extra_body"] = {_TEMPERATURE: question.temperature}
        return body

    def _learn(self, error: Any, body: dict[str, Any]) -> bool:
        # Models that think before they answer take no temperature.
        if _TEMPERATURE not in str(error) or "extra_body" not in body:
            return False
        self._learned.add(_TEMPERATURE)
        return True

    async def _send(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.messages.create(model=self.name, stream=True, **body)

    def _take(self, collected: Collected, event: Any) -> None:
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

    def _read_whole(self, body: bytes) -> Completion:
        try:
            payload = json.loads(body)
            content = "".join(str(block["text"]) for block in payload["content"] if block["type"] == "text")
            collected = Collected(len(content), [content], 0, str(payload["stop_reason"]))
            collected.has_calls = any(block["type"] == "tool_use" for block in payload["content"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Unavailable(f"the provider answered 200 with {name_body(body)}; try again") from None
        return collected.finish()
