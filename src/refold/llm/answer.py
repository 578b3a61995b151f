"""From a stage's Ask to its Reply, through a model: the one way in which the ladder reaches a provider.

It never raises: what went wrong is the Reply's ``error``, and the stage falls back to what is mechanical. Secrets are
masked before the prompt leaves (``redact``). Only cancellation passes through.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

from refold.llm.errors import classify
from refold.llm.model import TEMPERATURE, Completes, Completion, Model, call_model
from refold.llm.redact import redact_text
from refold.llm.retry import Limits, attempt
from refold.stages.stage import Ask, Reply

Redact = Callable[[str], str]
LIMITS = Limits()
# How much longer than its time-out a thread may take to end before it is left behind.
GRACE_S = 1.0
# Open models write their thinking in front of the answer; cut off, it has no end.
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>\s*|\Z)", re.S)


async def answer_async(
    ask: Ask,
    model: Model | Completes,
    *,
    limits: Limits = LIMITS,
    redact: Redact | None = redact_text,
) -> Reply:
    """Return a model's reply to a question, or why there is none."""
    hide = redact or _keep
    prompt, system = hide(ask.prompt), hide(ask.system)

    async def call() -> Completion:
        return await call_model(model, prompt, system=system, tokens_max=ask.tokens_max, temperature=TEMPERATURE)

    try:
        completion = await attempt(call, limits, key=str(getattr(model, "key", "")))
    except Exception as error:  # noqa: BLE001 - a summary is never worth an error
        return Reply(error=str(classify(error)) or type(error).__name__, finish_reason="error")
    return Reply(_THINKING.sub("", completion.content, count=1).strip(), completion.finish_reason)


def answer_sync(
    ask: Ask,
    model: Model | Completes,
    *,
    limits: Limits = LIMITS,
    redact: Redact | None = redact_text,
) -> Reply:
    """Do the same for callers without an event loop, and for those inside one that cannot await."""
    replies: list[Reply] = []

    def run() -> None:
        asked = answer_async(ask, model, limits=limits, redact=redact)
        replies.append(asyncio.run(asked))

    # A thread of its own: the caller may sit in a running loop, and a model that blocks can be left behind.
    worker = threading.Thread(target=run, name="refold-answer", daemon=True)
    worker.start()
    worker.join(limits.timeout_s + GRACE_S)
    if replies:
        return replies[0]
    return Reply(
        error=f"no answer within {limits.timeout_s:g} s; raise the time-out or ask for less", finish_reason="error"
    )


def _keep(text: str) -> str:
    return text
