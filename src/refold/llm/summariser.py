"""The summariser that settings and a caller give: which model is asked, with how much patience, behind which mask.

A model that is set for summaries comes first, then one that was handed in, then the conversation's own (S2.3, S3.10);
never another provider's because there is a key for it. A plugin that is named (S1.11) is the only one asked.
Nothing is asked over the network before there is a question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from refold.errors import Unavailable
from refold.llm.answer import Redact, answer_async, answer_sync
from refold.llm.choose import Choice, Endpoint, choose_model, read_own
from refold.llm.conversation_model import find_conversation
from refold.llm.model import Completes, Model
from refold.llm.redact import redact_text
from refold.llm.retry import Limits
from refold.stages.stage import Ask, Reply

if TYPE_CHECKING:
    from refold.config import CompressionConfig

Result = TypeVar("Result")

NO_MODEL = "no model is configured"
# Without a tokenizer at hand: no text has more tokens than this per character, give or take.
_TOKENS_PER_CHAR = 0.4
# A prompt is counted by our counter, which may not be the model's: so much of its window is left free.
WINDOW_SHARE = 0.7
ANSWER_TOKENS_MAX = 1_000


class Summariser:
    """Answers what stages ask. ``llm`` is anything with ``complete(prompt)``; None if nobody handed one in.

    It knows no conversation; ``join`` returns the one for a conversation.
    """

    def __init__(self, config: CompressionConfig, llm: object = None) -> None:
        self.llm = llm
        self.config = config
        self.timeout_s = config.compact_timeout_s
        self.attempts_max = config.compact_retry_count
        self.is_masking = config.redact
        self.conversation: Endpoint | None = None
        self.own = find_own(config, None)
        self.plugin, self.failure = find_plugin(config)

    def join(
        self,
        *,
        called: str = "",
        stored: str = "",
        wire: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the summariser of one conversation: by its model, as the caller and the session name it."""
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
        """Return the settings with the fold asking a model if there is one and nobody chose otherwise."""
        if not self.is_there:
            return self.config
        window = self.window
        return self.config.with_model(int(window * WINDOW_SHARE) if window else None)

    @property
    def is_there(self) -> bool:
        """True if there is a model to ask."""
        models = (self.plugin, self.own, self.conversation)
        return hasattr(self.llm, "complete") or bool(self.failure) or any(one is not None for one in models)

    @property
    def window(self) -> int | None:
        """The largest window among the models that may be asked; None if one of them is not known."""
        known = [one.tokens_max for one in (self.own, None if self.llm else self.conversation) if one is not None]
        if self.plugin is not None or self.failure:
            known = []
        if (model := self.plugin or self.llm) is not None:
            handed = getattr(model, "window", None)
            known.append(handed if isinstance(handed, int) else None)
        return None if None in known else max((one for one in known if one), default=None)

    def choose(self, ask: Ask) -> Choice:
        """Return the model for one question; a plugin that was named is never passed over for another."""
        if self.plugin is not None or self.failure:
            return Choice(self.plugin, type(self.plugin).__name__, self.failure)  # type: ignore[arg-type]
        handed = self.llm if hasattr(self.llm, "complete") else None
        conversation: Endpoint | Model | Completes | None = handed or self.conversation  # type: ignore[assignment]
        needed = int(len(ask.prompt) * _TOKENS_PER_CHAR) + ask.tokens_max
        return choose_model(self.own, conversation, tokens_needed=needed, timeout_s=self.timeout_s)

    async def answer(self, ask: Ask) -> Reply:
        """Return the model's reply, or why there is none."""
        chosen = self.choose(ask)
        if chosen.model is None:
            return Reply(error=chosen.note or NO_MODEL, finish_reason="error")
        return await answer_async(ask, chosen.model, limits=self._limits, redact=self._redact)

    def answer_now(self, ask: Ask) -> Reply:
        """The same for callers that do not await."""
        chosen = self.choose(ask)
        if chosen.model is None:
            return Reply(error=chosen.note or NO_MODEL, finish_reason="error")
        return answer_sync(ask, chosen.model, limits=self._limits, redact=self._redact)

    @property
    def _limits(self) -> Limits:
        return Limits(attempts_max=self.attempts_max, timeout_s=self.timeout_s)

    @property
    def _redact(self) -> Redact | None:
        return redact_text if self.is_masking else None


@dataclass(frozen=True, slots=True)
class Completed:
    """What a summariser answered, as ``complete(prompt)`` returns it."""

    content: str
    finish_reason: str = "stop"


class AskedModel:
    """A summariser as a model with ``complete(prompt)``: with its limits, its retries and its mask.

    Which summariser that is follows from the conversation at hand (``ask_as``); ``find`` returns the one for any other.
    """

    def __init__(self, find: Callable[[], Summariser]) -> None:
        self._find = find

    async def complete(self, prompt: str) -> Completed:
        """Return the answer to a prompt; Unavailable if there is none."""
        summariser = _AT_HAND.get(self._find)()
        if summariser is None:
            raise Unavailable(NO_MODEL)
        reply = await summariser.answer(Ask(prompt, ANSWER_TOKENS_MAX))
        if reply.error:
            raise Unavailable(reply.error)
        return Completed(reply.text, reply.finish_reason)


_AT_HAND: ContextVar[Callable[[], Summariser | None]] = ContextVar("refold_summariser")


async def ask_as(summariser: Summariser | None, make: Callable[[], Awaitable[Result]]) -> Result:
    """Run a coroutine in which every ``AskedModel`` asks this summariser, or none."""
    token = _AT_HAND.set(lambda: summariser)
    try:
        return await make()
    finally:
        _AT_HAND.reset(token)


def find_own(config: CompressionConfig, conversation: Endpoint | None) -> Endpoint | None:
    """Return where the model set for summaries is reached; None if none is set."""
    return read_own(
        config.variables,
        conversation,
        model="" if is_plugin(config) else config.compact_model or "",
        url=config.compact_url or "",
        key=config.variables.get("REFOLD_COMPACT_KEY", ""),
    )


def is_plugin(config: CompressionConfig) -> bool:
    """Tell whether a plugin writes the summaries (S1.11)."""
    return (config.compact_model or "").startswith("plugin:")


def find_plugin(config: CompressionConfig) -> tuple[object | None, str]:
    """Return the plugin's model that the settings name, or None and, if it does not load, why."""
    if not is_plugin(config):
        return None, ""
    from refold.plugins import PREFIX, load_summariser

    return load_summariser((config.compact_model or "").removeprefix(PREFIX))
