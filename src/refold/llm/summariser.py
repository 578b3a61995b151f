"""The summariser: chooses the model, applies limits and retries, and masks secrets.

A model set for summaries comes first, then one passed by the caller, then the conversation's own; never another
provider's just because a key for it exists. If a plugin is named, no other model is used.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.errors import Unavailable
from refold.formats import place_messages
from refold.llm.choose import Choice, Endpoint, choose_model, find_conversation, need_model, read_own
from refold.llm.client import ProviderClient
from refold.llm.errors import RetryLimits, attempt, classify
from refold.llm.port import TEMPERATURE, ChatRequest, Completes, Completion, Model, NamedModel, call_model, takes_model
from refold.llm.redact import redact_text
from refold.patterns import lazy_regex
from refold.stages.stage import Ask, Reply
from refold.tokens.models import model_info, normalize_name

if TYPE_CHECKING:
    from refold.config import CompressionConfig

Result = TypeVar("Result")
Redact = Callable[[str], str]

LIMITS = RetryLimits()
# How much longer than its time-out a thread may take to end before it is abandoned.
GRACE_S = 1.0
# Open models write their reasoning in front of the answer; if it was cut off, it has no end.
_THINKING = lazy_regex(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>\s*|\Z)", re.S)
# A safe upper estimate that needs no tokenizer.
_TOKENS_PER_CHAR = 0.4
# About how many characters a token has, for comparing prices.
_CHARS_PER_TOKEN = 4
# Our count may differ from the model's, so prompts use only this share of its window.
WINDOW_SHARE = 0.7
ANSWER_TOKENS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SentWith:
    """A conversation as its model has it in the cache: all items but the ``unsent`` ones, system prompt and tools."""

    model: str
    wire: str
    system: Any = ""
    tools: Any = None
    is_cold: bool = False
    items: Sequence[Item] = ()
    unsent: Collection[str] = ()
    fixed_tokens: int = 0
    window: int = 0

    def list_items(self, last: str) -> Sequence[Item]:
        """Return the items that were sent; more if a note is about messages after them, up to the ``last`` one."""
        ends = (at for at, item in enumerate(self.items, 1) if last in item.ids or item.ids[-1] not in self.unsent)
        return self.items[: max(ends, default=0)]


class Summariser:
    """Answers stages with ``llm``, anything with ``complete(prompt)``; ``join`` is for one conversation."""

    def __init__(self, config: CompressionConfig, llm: object = None) -> None:
        self.llm: Any = need_model(llm)
        self.config = config
        self.timeout_s = config.compact_timeout_s
        self.attempts_max = config.compact_retry_count
        self.is_masking = config.redact
        self.conversation: Endpoint | None = None
        self.sent_with: SentWith | None = None
        self.own = find_own(config, None)
        self.plugin, self.failure = find_plugin(config)

    def join(
        self, *, called: str = "", stored: str = "", wire: str = "", settings: Mapping[str, object] | None = None
    ) -> Self:
        """Return the summariser of one conversation, with its own model as the fallback."""
        joined = copy(self)
        joined.conversation = find_conversation(
            self.config.variables,
            called=called,
            stored=stored,
            setting=self.config.model or "",
            wire=wire,
            settings=settings,
        )
        joined.own = find_own(self.config, joined.conversation)
        return joined

    def settle(self) -> CompressionConfig:
        """Return the settings; the fold uses the model, if there is one, unless they say otherwise."""
        if not self.is_there:
            return self.config
        window = self.window
        return self.config.with_model(int(window * WINDOW_SHARE) if window else None)

    @property
    def is_there(self) -> bool:
        """True if a model is available."""
        models = (self.plugin, self.own, self.conversation)
        return bool(self.failure) or any(model is not None for model in (self.llm, *models))

    @property
    def window(self) -> int | None:
        """The largest window among the models; None if one of them is unknown."""
        known = [one.tokens_max for one in (self.own, None if self.llm else self.conversation) if one is not None]
        if self.plugin is not None or self.failure:
            known = []
        if (model := self.plugin or self.llm) is not None:
            handed = getattr(model, "window", None)
            known.append(handed if isinstance(handed, int) else None)
        return None if None in known else max((one for one in known if one), default=None)

    def choose(self, ask: Ask) -> Choice:
        """Return the model for one question; a named plugin is never replaced by another model."""
        if self.plugin is not None or self.failure:
            return Choice(self.plugin, type(self.plugin).__name__, self.failure)  # type: ignore[arg-type]
        if self.config.compact_model and takes_model(self.llm):
            return Choice(NamedModel(self.llm, self.config.compact_model), self.config.compact_model)
        needed = int(len(ask.prompt) * _TOKENS_PER_CHAR) + ask.tokens_max
        return choose_model(self.own, self.llm or self.conversation, tokens_needed=needed, timeout_s=self.timeout_s)

    async def answer(self, ask: Ask) -> Reply:
        """Return the model's reply; its ``error`` says why there is none."""
        chosen = self.choose(ask)
        if chosen.model is None:
            return Reply(error=chosen.note, finish_reason="error")
        redact = redact_text if self.is_masking else None
        if (follow := self._find_follow(ask, chosen.model, redact or str)) is not None:
            reply = await _attempt_reply(follow, chosen.model, self._limits)
            if not reply.error:
                return reply
        return await answer_async(ask, chosen.model, limits=self._limits, redact=redact)

    def _find_follow(self, ask: Ask, model: object, hide: Redact) -> Callable[[], Awaitable[Completion]] | None:
        """Return the call that asks on the cached conversation; None if a prompt of its own is cheaper or must be.

        The messages are those that this model has seen, byte for byte; only what is asked about them is new.
        """
        sent = self.sent_with
        if not ask.follow or sent is None or not isinstance(model, ProviderClient):
            return None
        client = model.on_wire(sent.wire)
        if client is None or normalize_name(model.name) != normalize_name(sent.model):
            return None
        items = sent.list_items(ask.last)
        known, tokens = model_info(model.name), sent.fixed_tokens + sum(item.tokens for item in items)
        asked = int(len(ask.follow) * _TOKENS_PER_CHAR)
        window = known.window if known.is_known else sent.window or known.window
        if not items or tokens + asked + ask.tokens_max > window:
            return None
        # In tokens at the full price of input; the prompt has the messages again, as new text.
        if tokens * (1 if sent.is_cold else known.cache.read) + asked >= len(ask.prompt) / _CHARS_PER_TOKEN:
            return None
        messages = place_messages(sent.wire, [item.raw for item in items])
        request = ChatRequest(
            [*messages, {"role": "user", "content": hide(ask.follow)}],
            sent.system or "",
            sent.tools if isinstance(sent.tools, list) else [],
            calls_nothing=True,
        )
        return partial(client.follow, request, ask.tokens_max)

    def answer_now(self, ask: Ask) -> Reply:
        """Return the reply like ``answer``, for callers that do not await."""
        return wait_for_reply(self.answer(ask), self.timeout_s)

    @property
    def _limits(self) -> RetryLimits:
        return RetryLimits(attempts_max=self.attempts_max, timeout_s=self.timeout_s)


class AskedModel:
    """A summariser as a model: the one of the current conversation (``ask_as``), else the one that ``find`` returns."""

    def __init__(self, find: Callable[[], Summariser]) -> None:
        self._find = find

    async def complete(self, prompt: str) -> Completion:
        """Return the answer to a prompt; raise Unavailable if there is none."""
        summariser = _AT_HAND.get(self._find)()
        if summariser is None:
            raise Unavailable(str(because.NO_MODEL()))
        reply = await summariser.answer(Ask(prompt, ANSWER_TOKENS_MAX))
        if reply.error:
            raise Unavailable(str(reply.error))
        return Completion(reply.text, reply.finish_reason)


_AT_HAND: ContextVar[Callable[[], Summariser | None]] = ContextVar("refold_summariser")


async def ask_as(summariser: Summariser | None, make: Callable[[], Awaitable[Result]]) -> Result:
    """Run a coroutine in which every ``AskedModel`` uses this summariser, or none."""
    token = _AT_HAND.set(lambda: summariser)
    try:
        return await make()
    finally:
        _AT_HAND.reset(token)


def find_own(config: CompressionConfig, conversation: Endpoint | None) -> Endpoint | None:
    """Return the endpoint of the model set for summaries; None if none is set."""
    return read_own(
        config.variables,
        conversation,
        model="" if is_plugin(config) else config.compact_model or "",
        url=config.compact_url or "",
        key=config.variables.get("REFOLD_COMPACT_KEY", ""),
    )


def is_plugin(config: CompressionConfig) -> bool:
    """Check whether a plugin writes the summaries."""
    return (config.compact_model or "").startswith("plugin:")


def find_plugin(config: CompressionConfig) -> tuple[object | None, Reason]:
    """Return the configured plugin's model, or None and the reason if it does not load."""
    if not is_plugin(config):
        return None, NO_REASON
    from refold.plugins import PREFIX, load_summariser

    return load_summariser((config.compact_model or "").removeprefix(PREFIX))


async def answer_async(
    ask: Ask, model: Model | Completes, *, limits: RetryLimits = LIMITS, redact: Redact | None = redact_text
) -> Reply:
    """Ask a model a stage's question. Never raises: the Reply carries the error. Secrets in the prompt are masked."""
    hide = redact or str
    prompt, system = hide(ask.prompt), hide(ask.system)

    async def call() -> Completion:
        return await call_model(model, prompt, system=system, tokens_max=ask.tokens_max, temperature=TEMPERATURE)

    return await _attempt_reply(call, model, limits)


async def _attempt_reply(call: Callable[[], Awaitable[Completion]], model: object, limits: RetryLimits) -> Reply:
    try:
        completion = await attempt(call, limits, key=str(getattr(model, "key", "")))
    except Exception as error:  # noqa: BLE001 - a summary is never worth an error
        return Reply(error=str(classify(error)) or type(error).__name__, finish_reason="error")
    text = _THINKING.sub("", completion.content, count=1).strip()
    return Reply(text, completion.finish_reason, usage=completion.usage)


def wait_for_reply(asked: Coroutine[Any, Any, Reply], timeout_s: float) -> Reply:
    """Run a coroutine for callers without an event loop and for those inside one that cannot await."""
    replies: list[Reply] = []
    # In its own thread: the caller may be inside a running loop, and a blocked model can be abandoned.
    worker = threading.Thread(target=lambda: replies.append(asyncio.run(asked)), name="refold-answer", daemon=True)
    worker.start()
    worker.join(timeout_s + GRACE_S)
    if replies:
        return replies[0]
    return Reply(error=because.ANSWER_LATE(seconds=timeout_s), finish_reason="error")
