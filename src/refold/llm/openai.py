"""OpenAI and everything that speaks its chat completions: Ollama, vLLM, llama.cpp, DeepSeek, Qwen, OpenRouter …

A server that answers a request for a stream with one JSON body is read all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from refold.errors import ProviderError, Unavailable
from refold.llm.client import NO_KEY, Prompt, ProviderModel
from refold.llm.model import Completion, Usage
from refold.llm.reading import Collected, make_http_client, name_body

URL = "https://api.openai.com/v1"
_ADAPTABLE = ("max_completion_tokens", "max_tokens", "temperature", "stream_options")
_OTHER_NAME = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_NOT_TAKEN = re.compile(
    r"unsupported|not support|does not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|deprecated"
    r"|extra (?:inputs|fields)|invalid (?:parameter|field|argument)",
    re.I,
)


@dataclass(frozen=True)
class OpenAIModel(ProviderModel):
    """A model behind an OpenAI-compatible address. ``window`` is what its requests may have, where that is known."""

    url: str = field(default=URL, repr=False)

    library: ClassVar[str] = "openai"

    def _open(self, library: Any) -> Any:
        return library.AsyncOpenAI(
            api_key=self.key or NO_KEY,
            base_url=self.url,
            timeout=self.timeout_s,
            max_retries=0,
            http_client=make_http_client(library),
        )

    def _write(self, question: Prompt, tokens_max: int) -> dict[str, Any]:
        limit = "max_completion_tokens" if self.url.startswith(URL) else "max_tokens"
        wanted = {limit: tokens_max, "temperature": question.temperature, "stream_options": {"include_usage": True}}
        messages = [{"role": "system", "content": question.system}] if question.system else []
        body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": question.prompt}]}
        return leave_refused({**body, **wanted}, self._learned)

    def _learn(self, error: Any, body: dict[str, Any]) -> bool:
        refused = find_refused(error, body, _ADAPTABLE)
        self._learned.update(refused)
        return bool(refused)

    async def _send(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.chat.completions.create(model=self.name, stream=True, **body)

    def _take(self, collected: Collected, event: Any) -> None:
        if event.usage is not None:
            cached = getattr(event.usage.prompt_tokens_details, "cached_tokens", None) or 0
            collected.usage = Usage(event.usage.prompt_tokens or 0, event.usage.completion_tokens or 0, cached)
        for choice in (event.choices or [])[:1]:
            delta = choice.delta
            if delta is not None:
                collected.add(delta.content)
                if getattr(delta, "refusal", None):
                    collected.is_refusal = True
                    collected.add(delta.refusal)
                collected.has_calls = collected.has_calls or bool(delta.tool_calls)
            collected.reason = choice.finish_reason or collected.reason

    def _read_whole(self, body: bytes) -> Completion:
        try:
            payload = json.loads(body)
            choice = payload["choices"][0]
            message = choice["message"]
            content = message.get("content") or message.get("refusal") or ""
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise Unavailable(f"the provider answered 200 with {name_body(body)}; try again") from None
        if not isinstance(content, str):
            raise ProviderError("the provider answered with content that is no text")
        collected = Collected(len(content), [content], 0, str(choice.get("finish_reason") or "stop"))
        collected.is_refusal = bool(message.get("refusal"))
        collected.has_calls = bool(message.get("tool_calls"))
        usage = payload.get("usage")
        if isinstance(usage, dict):
            collected.usage = Usage(_whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens")))
        return collected.finish()


def find_refused(error: Any, sent: Collection[str], optional: Iterable[str]) -> list[str]:
    """Return the parameter that a server says it does not take, of those it was sent and can do without; else none."""
    text, named = str(error), getattr(error, "param", None)
    if not _NOT_TAKEN.search(text):
        return []
    told = (name for name in optional if named == name or (named is None and re.search(rf"\b{name}\b", text)))
    return [name for name in told if name in sent][:1]


def leave_refused(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return a body without what was refused; the limit of an answer has a second name to be tried."""
    sent: dict[str, Any] = {}
    for name, value in body.items():
        other = _OTHER_NAME.get(name, "")
        if name not in refused:
            sent[name] = value
        elif other and other not in refused:
            sent[other] = value
    return sent


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
