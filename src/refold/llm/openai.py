"""OpenAI and everything that speaks its chat completions: Ollama, vLLM, llama.cpp, DeepSeek, Qwen, OpenRouter …

One call is one attempt with a client of its own, so a model belongs to no event loop. Answers are streamed: that bounds
how much is read. What a model turns out to need is remembered: a parameter it does not take is left out from then on,
and one that spent the whole limit on thinking gets room for it.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

from refold.errors import ProviderError, Unavailable
from refold.llm.errors import classify, show_url
from refold.llm.model import TEMPERATURE, THINKING_TOKENS, TIMEOUT_S, TOKENS_MAX, Completion, Usage
from refold.llm.reading import Collected, check_kind, load_library

URL = "https://api.openai.com/v1"
NO_KEY = "none"  # Local servers want none; the client insists on one.
THINKS = "thinks"
_ADAPTABLE = ("max_completion_tokens", "max_tokens", "temperature", "stream_options")
_OTHER_NAME = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
ROUNDS_MAX = len(_ADAPTABLE) + 2
_NOT_TAKEN = re.compile(
    r"unsupported|not support|does not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|deprecated"
    r"|extra (?:inputs|fields)|invalid (?:parameter|field|argument)",
    re.I,
)


@dataclass(frozen=True)
class OpenAIModel:
    """A model behind an OpenAI-compatible address. ``window`` is what its requests may have, where that is known."""

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
        library = await load_library("openai")
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        limit = "max_completion_tokens" if self.url.startswith(URL) else "max_tokens"
        parameters: dict[str, Any] = {"temperature": temperature, "stream_options": {"include_usage": True}}
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                library.AsyncOpenAI(
                    api_key=self.key or NO_KEY, base_url=self.url, timeout=self.timeout_s, max_retries=0
                ) as client,
            ):
                for _ in range(ROUNDS_MAX):
                    room = THINKING_TOKENS if THINKS in self._learned else 0
                    sent = self._adapt({limit: tokens_max + room, **parameters})
                    try:
                        answer = await self._ask(client, messages, sent, tokens_max)
                    except library.BadRequestError as error:
                        if not self._learn(error, sent):
                            raise
                        continue
                    if room or answer.content or answer.finish_reason != "length":
                        return answer
                    self._learned.add(THINKS)
                raise ProviderError(f"{self.source} takes none of the parameters that a summary needs")
        except TimeoutError:
            raise Unavailable(f"{self.source} did not answer within {self.timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - the client's errors, and those of what it stands on
            raise classify(error, source=self.source, secrets=(self.key,)) from None

    def _adapt(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters this model takes, as far as we have learned."""
        sent = {}
        for name, value in parameters.items():
            other = _OTHER_NAME.get(name, "")
            if name not in self._learned:
                sent[name] = value
            elif other and other not in self._learned:
                sent[other] = value
        return sent

    def _learn(self, error: Any, sent: dict[str, Any]) -> bool:
        """Note which parameter was refused; False if the error is about something else."""
        text = str(error)
        named = getattr(error, "param", None)
        if not _NOT_TAKEN.search(text):
            return False
        for name in _ADAPTABLE:
            if name in sent and (named == name or (named is None and re.search(rf"\b{name}\b", text))):
                self._learned.add(name)
                return True
        return False

    async def _ask(
        self, client: Any, messages: list[dict[str, str]], sent: dict[str, Any], tokens_max: int
    ) -> Completion:
        stream = await client.chat.completions.create(model=self.name, messages=messages, stream=True, **sent)
        async with stream:
            kind = stream.response.headers.get("content-type", "")
            check_kind(kind, self.source)
            if kind.startswith("application/json"):
                return _read_whole(await stream.response.aread())
            collected = Collected(tokens_max)
            async for chunk in stream:
                _take_chunk(collected, chunk)
                if collected.is_full:
                    break
        return collected.finish()


def _take_chunk(collected: Collected, chunk: Any) -> None:
    if chunk.usage is not None:
        cached = getattr(chunk.usage.prompt_tokens_details, "cached_tokens", None) or 0
        collected.usage = Usage(chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0, cached)
    for choice in (chunk.choices or [])[:1]:
        delta = choice.delta
        if delta is not None:
            collected.add(delta.content)
            if getattr(delta, "refusal", None):
                collected.is_refusal = True
                collected.add(delta.refusal)
            collected.has_calls = collected.has_calls or bool(delta.tool_calls)
        collected.reason = choice.finish_reason or collected.reason


def _read_whole(body: bytes) -> Completion:
    """Return the answer of a server that does not stream; raise Unavailable if it is no answer."""
    try:
        payload = json.loads(body)
        choice = payload["choices"][0]
        message = choice["message"]
        content = message.get("content") or message.get("refusal") or ""
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        what = "an empty body" if not body.strip() else "something that is no completion"
        raise Unavailable(f"the provider answered 200 with {what}; try again") from None
    if not isinstance(content, str):
        raise ProviderError("the provider answered with content that is no text")
    collected = Collected(len(content), [content], 0, str(choice.get("finish_reason") or "stop"))
    collected.is_refusal = bool(message.get("refusal"))
    collected.has_calls = bool(message.get("tool_calls"))
    usage = payload.get("usage")
    if isinstance(usage, dict):
        collected.usage = Usage(_whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens")))
    return collected.finish()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
