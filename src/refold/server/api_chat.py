"""``POST /api/chat/compress`` (S3.3): messages in, a summary out, written by a model of a configured upstream.

``provider`` names an upstream of this gateway; a client can never name a URL. The call is bounded to 30 seconds, at low
temperature; keys are masked in what the model reads. Nothing is stored.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from refold.conversation.language import detect_language
from refold.errors import FormatError, ProviderError, Unavailable
from refold.formats import detect, parse_messages
from refold.llm.choose import Endpoint
from refold.llm.redact import redact_text
from refold.llm.summariser import is_plugin
from refold.server.auth import PREFIX
from refold.server.interface import Access, Asker, Json
from refold.server.request import find_bearer, find_header
from refold.stages.prompts.demands import Demands, write_demands
from refold.stages.prompts.record import write_record

router = APIRouter(tags=["chat"])
TIMEOUT_S = 30.0  # S3.3
TEMPERATURE = 0.2  # S3.3
TOKENS_MAX = 1_000
TOOL_CHARS_MAX = 500  # S3.5
CHARS_MAX = 12_000  # S3.5
MESSAGES_MAX = 10_000
PROVIDERS = ("openai", "anthropic")
SUMMARY_CHARS_MAX = 500  # S3.12


class ChatConfig(BaseModel):
    """What the application's own settings say of the model; more fields may come along and are not read."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)


class ChatCompressRequest(BaseModel):
    """The messages to sum up, already chosen by the application."""

    provider: str = Field(min_length=1, max_length=100)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MESSAGES_MAX)
    config: ChatConfig


@router.post("/api/chat/compress")
def compress_chat(wish: ChatCompressRequest, request: Request, access: Asker) -> Json:
    """Return a summary of messages, written by a model of a configured upstream."""
    endpoint = _find_endpoint(wish, request, access)
    prompt = write_prompt(wish.messages, access.manager.config.fold.prompt)
    # A loop of its own, in this thread: the first use of a provider's client takes a second to import.
    answer = asyncio.run(_ask(endpoint, prompt))
    return Json({"summary": answer})


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What the model is asked: the demands as its system message, the conversation as the user's (S3.3)."""

    system: str
    user: str


def write_prompt(messages: list[dict[str, Any]], custom: str = "") -> ChatPrompt:
    """Return the demands of S3.12, or a prompt of one's own, and the messages as a record, cut to their limits."""
    parsed = parse_messages(detect(messages), messages)
    language = detect_language([part.text for message in parsed for part in message.parts])
    record = write_record(parsed, language=language, chars_max=CHARS_MAX, tool_chars_max=TOOL_CHARS_MAX)
    demands = Demands("hybrid", TOKENS_MAX, SUMMARY_CHARS_MAX, custom)
    return ChatPrompt(write_demands(demands, language), redact_text(record))


def _find_endpoint(wish: ChatCompressRequest, request: Request, access: Access) -> Endpoint:
    settings = access.application.settings
    if wish.provider not in PROVIDERS:
        raise FormatError(f"provider names a configured upstream: {' or '.join(PROVIDERS)}")
    config = access.manager.config
    # A plugin that writes summaries is no model of an upstream.
    own = None if is_plugin(config) else config.compact_model
    model = wish.config.model or own or config.model
    if not model:
        raise FormatError("config.model is missing, and no model is configured for summaries")
    key = _find_key(request)
    if wish.provider == "openai":
        url = str(access.application.upstreams.make_url("openai", "/v1"))
        return Endpoint(model, "openai", url, settings.openai_key or key)
    return Endpoint(model, "anthropic", settings.anthropic_upstream, settings.anthropic_key or key)


def _find_key(request: Request) -> str:
    """Return the caller's own key for the upstream; the gateway's own never goes there."""
    headers = request.scope["headers"]
    given = (find_bearer(headers), find_header(headers, b"x-api-key"))
    return next((key for key in given if key and not key.startswith(PREFIX)), "")


async def _ask(endpoint: Endpoint, prompt: ChatPrompt) -> str:
    model = endpoint.make_model(TIMEOUT_S)
    try:
        async with asyncio.timeout(TIMEOUT_S + 1):
            answer = await model.complete(
                prompt.user, system=prompt.system, tokens_max=TOKENS_MAX, temperature=TEMPERATURE
            )
    except TimeoutError:
        raise Unavailable(f"{endpoint} did not answer within {TIMEOUT_S:g} s") from None
    if not answer.content.strip():
        raise ProviderError(f"{endpoint} answered without words")
    return answer.content
