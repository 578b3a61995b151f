"""Routes for other gateways and chats: compress a request, report its usage, summarise messages.

``POST /v1/compress`` returns the messages of a request so that they fit. With a ``session_id`` folds are kept from call
to call; without one, or if the ledger fails, nothing is stored. Unknown fields are reported as ignored.

``POST /api/chat/compress`` summarises messages with a model of a configured upstream: ``provider`` names the upstream,
because a client must never name a URL. Keys are masked in the prompt, and nothing is stored.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from refold.budget import flat_budget, read_tokens
from refold.compressing import compress as compress_once
from refold.config import CompressionConfig
from refold.conversation.reason import NO_REASON, detect_language
from refold.errors import FormatError, LedgerError, ProviderError, SessionBusy, Unavailable
from refold.formats import detect, parse_messages
from refold.llm.choose import Endpoint
from refold.llm.redact import redact_text
from refold.llm.summariser import find_own, is_plugin
from refold.manager import ContextCompressionManager
from refold.prepared import PreparedContext
from refold.reading.sentences import shorten_text
from refold.server.api.interface import Access, Asker, Json, describe_body, read_model
from refold.server.auth import PREFIX, StorageFull, make_id
from refold.server.fallback import WorkerFailed, make_job
from refold.server.overflow import NO_LIMITS, LimitKey, Limits, limit_window
from refold.server.request import find_bearer, find_header
from refold.server.session_lookup import check_name
from refold.server.wires import CHAT, Side
from refold.stages.prompts import PROMPT_CHARS_MAX, Demands, write_demands, write_record
from refold.stages.summarise import clean_words

log = logging.getLogger("refold.server")
router = APIRouter()
MESSAGES_MAX = 100_000
# The limits of the published design for a chat's summary.
TIMEOUT_S = 30.0
TEMPERATURE = 0.2
TOKENS_MAX = 1_000
TOOL_CHARS_MAX = 500
CHARS_MAX = 12_000
CHAT_MESSAGES_MAX = 10_000
PROVIDERS: tuple[Side, ...] = ("openai", "anthropic")
SUMMARY_CHARS_MAX = 500
OPENING = "[Context Summary]"
_BUDGET_NAMES = ("budget", "token_budget", "target_tokens", "max_tokens")


class CompressRequest(BaseModel):
    """Messages of a request, as ``messages`` (chat completions, Anthropic, AI SDK) or, for Responses, ``input``."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    messages: list[dict[str, Any]] | None = Field(default=None, max_length=MESSAGES_MAX)
    input: list[dict[str, Any]] | str | None = Field(default=None, max_length=100_000_000)
    system: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    session_id: str | None = Field(default=None, max_length=128)


class StatedReason(BaseModel):
    """Why a request was compressed or not: a code that never changes, its words, and their values."""

    model_config = ConfigDict(extra="allow")

    code: str


class CompressAnswer(BaseModel):
    """The conversation that fits, in the field that it came in, and what was done to it."""

    messages: list[dict[str, Any]] | None = None
    input: list[dict[str, Any]] | str | None = None
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    compression_ratio: float
    transforms_applied: list[str]
    reason: StatedReason
    notes: list[str]
    edits: int
    session_id: str | None
    ignored: list[str]
    stored: bool


class Done(BaseModel):
    """What was asked for is done."""

    ok: bool


class SummaryAnswer(BaseModel):
    """A summary, without its opening."""

    summary: str


class UsageReport(BaseModel):
    """A provider's bill for the context that was prepared last."""

    model_config = ConfigDict(extra="allow")

    session_id: str = Field(min_length=1, max_length=128)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = Field(default=None, max_length=100)
    overflow: bool = False


@router.post(
    "/v1/compress",
    tags=["sidecar"],
    openapi_extra=describe_body(CompressRequest),
    responses={200: {"model": CompressAnswer}},
)
async def compress(request: Request, access: Asker) -> Response:
    """Return the messages of a request so that they fit the model's window."""
    body, application = await request.body(), access.application
    if len(body) <= application.settings.worker_bytes_min:
        return await asyncio.to_thread(_compress, body, access)
    preparer, learned = application.preparer, application.limits.list_learned(access.tenant)
    job = replace(make_job(access.manager, "", NO_LIMITS), tenant=access.tenant, endpoint=None, learned=learned)
    if await preparer.storage.is_full(access.tenant, len(body)):
        job = replace(job, ledger=None)
    try:
        status, answer = await preparer.workers.run("answer", access.tenant, CHAT, body, job=job)
    except WorkerFailed as error:
        raise Unavailable(
            "the request could not be compressed in time ({error}); send a smaller one", error=error
        ) from None
    return Response(answer, status, media_type="application/json")


def _compress(body: bytes, access: Access) -> Json:
    wish = read_model(body, CompressRequest)
    limits = NO_LIMITS
    if wish.session_id:
        access.application.preparer.storage.check(access.tenant)
        limits = access.application.limits.find(LimitKey(access.tenant, "", wish.model or ""))
    return Json(answer_wish(wish, access.manager, access.manager.config, tenant=access.tenant, limits=limits))


def answer_wish(
    wish: CompressRequest,
    manager: ContextCompressionManager | None,
    config: CompressionConfig,
    *,
    tenant: str = "",
    limits: Limits = NO_LIMITS,
) -> dict[str, object]:
    """Return the answer to a request. ``manager`` keeps the folds of a session; ``limits`` are those it has learned."""
    key = "messages" if wish.messages is not None else "input"
    given = wish.messages if wish.messages is not None else wish.input
    if given is None:
        raise FormatError("give the conversation as messages or as input")
    messages: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = wish.system if key == "messages" else wish.instructions
    wire = "openai-responses" if key == "input" else None
    beside: dict[str, Any] = {"tools": wish.tools, "model": wish.model or None, "format": wire}
    budget, prepared = _find_budget(wish.config), None
    if wish.session_id:
        if manager is None:
            raise StorageFull("this tenant cannot store more; delete sessions")
        session_id = make_id(tenant, check_name(wish.session_id))
        limits = limits if budget is None else limit_window(budget, 1)
        try:
            prepared = manager.prepare_context_sync(session_id, messages, system or "", **asdict(limits), **beside)
        except SessionBusy:
            raise
        except LedgerError as error:
            log.error("compressed-in-memory", extra={"fields": {"session": session_id, "said": str(error)[:300]}})
            budget = limits.window
    is_stored = prepared is not None
    prepared = prepared or compress_once(messages, budget, system=system, config=config, **beside)
    result = prepared.messages
    if isinstance(given, str) and len(result) == 1 and result[0] is messages[0]:
        result = given  # type: ignore[assignment]
    return {**_describe(prepared, result, key, wish), "stored": is_stored}


def _find_budget(config: dict[str, Any]) -> int | None:
    given = next((config[name] for name in _BUDGET_NAMES if config.get(name) is not None), None)
    return None if given is None else flat_budget(read_tokens(given)).hard


def _describe(prepared: PreparedContext, messages: object, key: str, wish: CompressRequest) -> dict[str, object]:
    report = prepared.report
    after = prepared.total_tokens
    before = max(after, report.tokens_before) if report else after
    unknown = {*wish.config} - {*_BUDGET_NAMES} | {*(wish.model_extra or {})}
    return {
        key: messages,
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": before - after,
        "compression_ratio": round(after / before, 4) if before else 1.0,
        "transforms_applied": [stage.stage for stage in report.stages if stage.edits] if report else [],
        "reason": (report.reason if report else NO_REASON).to_dict(),
        "notes": [str(note) for note in report.notes] if report else [],
        "edits": len(prepared.edits),
        "session_id": wish.session_id,
        "ignored": sorted(str(name)[:80] for name in unknown)[:50],
    }


@router.post("/v1/usage", tags=["sidecar"], responses={200: {"model": Done}})
def report_usage(report: UsageReport, access: Asker) -> Json:
    """Record what the provider billed; an overflow or a cut-off answer forces a compression before the next request."""
    row = access.need(check_name(report.session_id))
    usage = report.usage if report.usage is not None else report.model_extra or {}
    access.manager.observe_usage(row.id, usage, finish_reason=report.finish_reason, is_overflow=report.overflow)
    return Json({"ok": True})


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
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=CHAT_MESSAGES_MAX)
    config: ChatConfig


@router.post(
    "/api/chat/compress",
    tags=["chat"],
    openapi_extra=describe_body(ChatCompressRequest),
    responses={200: {"model": SummaryAnswer}},
)
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
    return Json({"summary": words if custom else shorten_text(words, SUMMARY_CHARS_MAX, tail_share=0).head})


def write_prompt(messages: list[dict[str, Any]], custom: str = "") -> tuple[str, str]:
    """Return the system message, with the demands or a custom prompt, and the messages as a record within limits."""
    parsed = parse_messages(detect(messages), messages)
    language = detect_language([part.text for message in parsed for part in message.parts])
    record = write_record(parsed, language=language, chars_max=CHARS_MAX, tool_chars_max=TOOL_CHARS_MAX)
    demands = Demands("hybrid", TOKENS_MAX, SUMMARY_CHARS_MAX, custom)
    return write_demands(demands, language), redact_text(record)


def _find_endpoint(wish: ChatCompressRequest, request: Request, access: Access) -> Endpoint:
    settings, config = access.application.settings, access.manager.config
    own = find_own(config, None)
    sides: dict[str, Side] = {name: side for side in PROVIDERS for name in (side, *_name_host(settings.find_url(side)))}
    named = wish.provider.strip().lower()
    if own is not None and named in _name_host(own.url) and named not in sides:
        return own
    if (side := sides.get(named)) is None:
        known = ", ".join(dict.fromkeys((*sides, *(_name_host(own.url) if own else ()))))
        raise FormatError("there is no provider {name!r}; configured are {known}", name=wish.provider[:80], known=known)
    # A summariser plugin is not a model of an upstream.
    model = wish.config.model or (None if is_plugin(config) else config.compact_model) or config.model
    if not model:
        raise FormatError("config.model is missing, and no model is configured for summaries")
    return Endpoint(model, side, settings.find_url(side), settings.find_held_key(side) or _find_key(request))


def _name_host(url: str) -> tuple[str, ...]:
    """Return the names by which a chat may know a provider: ``deepseek`` for ``https://api.deepseek.com/v1``."""
    host = urlsplit(url).hostname or ""
    labels = host.split(".")[:-1]
    return tuple(one for one in labels if one not in ("api", "www") and not one.isdigit())


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
        raise Unavailable("{source} did not answer in time", source=endpoint) from None
    if not answer.content.strip():
        raise ProviderError("{source} returned an empty answer", source=endpoint)
    return answer.content
