"""``POST /api/chat/compress``: summarise messages with a model of a configured upstream.

``provider`` names an upstream of this gateway; a client can never name a URL. The call takes at most 30 seconds, at a
low temperature; keys are masked in the prompt. Nothing is stored. The limits are those of the published design.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from refold.conversation.reason import detect_language
from refold.errors import FormatError, ProviderError, Unavailable
from refold.formats import detect, parse_messages
from refold.llm.choose import Endpoint
from refold.llm.redact import redact_text
from refold.llm.summariser import is_plugin
from refold.server.api.interface import Access, Asker, Json, describe_body, read_model
from refold.server.auth import PREFIX
from refold.server.request import find_bearer, find_header
from refold.stages.extract.words import shorten_words
from refold.stages.prompts import PROMPT_CHARS_MAX, Demands, write_demands, write_record
from refold.stages.summarise import clean_words

router = APIRouter(tags=["chat"])
TIMEOUT_S = 30.0
TEMPERATURE = 0.2
TOKENS_MAX = 1_000
TOOL_CHARS_MAX = 500
CHARS_MAX = 12_000
MESSAGES_MAX = 10_000
PROVIDERS = ("openai", "anthropic")
SUMMARY_CHARS_MAX = 500
OPENING = "[Context Summary]"


class ChatConfig(BaseModel):
    """The caller's settings of the model; other fields are ignored. ``prompt`` replaces the demands on the summary."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    prompt: str = Field(
        default="", max_length=PROMPT_CHARS_MAX, validation_alias=AliasChoices("prompt", "compressionPrompt")
    )


class ChatCompressRequest(BaseModel):
    """The messages to summarise, chosen by the caller."""

    provider: str = Field(min_length=1, max_length=100)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MESSAGES_MAX)
    config: ChatConfig


@router.post("/api/chat/compress", openapi_extra=describe_body(ChatCompressRequest))
async def compress_chat(request: Request, access: Asker) -> Json:
    """Return a summary of messages, written by a model of a configured upstream."""
    # Read in a thread: a long history would hold up other requests.
    return await asyncio.to_thread(_compress_chat, await request.body(), request, access)


def _compress_chat(body: bytes, request: Request, access: Access) -> Json:
    wish = read_model(body, ChatCompressRequest)
    endpoint = _find_endpoint(wish, request, access)
    custom = wish.config.prompt.strip() or access.manager.config.fold.prompt
    # Its own event loop in this thread: importing a provider's client takes a second.
    answer = asyncio.run(_ask(endpoint, *write_prompt(wish.messages, custom)))
    # The caller adds the opening itself, and a custom prompt sets its own length.
    words = clean_words(answer, OPENING)
    return Json({"summary": words if custom else shorten_words(words, SUMMARY_CHARS_MAX)})


def write_prompt(messages: list[dict[str, Any]], custom: str = "") -> tuple[str, str]:
    """Return the system message, with the demands or a custom prompt, and the messages as a record within limits."""
    parsed = parse_messages(detect(messages), messages)
    language = detect_language([part.text for message in parsed for part in message.parts])
    record = write_record(parsed, language=language, chars_max=CHARS_MAX, tool_chars_max=TOOL_CHARS_MAX)
    demands = Demands("hybrid", TOKENS_MAX, SUMMARY_CHARS_MAX, custom)
    return write_demands(demands, language), redact_text(record)


def _find_endpoint(wish: ChatCompressRequest, request: Request, access: Access) -> Endpoint:
    settings = access.application.settings
    if wish.provider not in PROVIDERS:
        raise FormatError(f"provider names a configured upstream: {' or '.join(PROVIDERS)}")
    config = access.manager.config
    # A summariser plugin is not a model of an upstream.
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
    """Return the caller's own key for the upstream, never a gateway key."""
    headers = request.scope["headers"]
    given = (find_bearer(headers), find_header(headers, b"x-api-key"))
    return next((key for key in given if key and not key.startswith(PREFIX)), "")


async def _ask(endpoint: Endpoint, system: str, record: str) -> str:
    model = endpoint.make_model(TIMEOUT_S)
    try:
        async with asyncio.timeout(TIMEOUT_S + 1):
            answer = await model.complete(record, system=system, tokens_max=TOKENS_MAX, temperature=TEMPERATURE)
    except TimeoutError:
        raise Unavailable(f"{endpoint} did not answer within {TIMEOUT_S:g} s") from None
    if not answer.content.strip():
        raise ProviderError(f"{endpoint} returned an empty answer")
    return answer.content
