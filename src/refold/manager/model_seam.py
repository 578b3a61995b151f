"""The seam to a model that a caller hands in: anything with ``await complete(prompt)`` that answers with ``.content``.

Whatever goes wrong becomes a Reply with an error; stages then do without. It never raises but for cancellation.
"""

from __future__ import annotations

import asyncio
import inspect

from refold.stages.stage import Ask, Reply

TIMEOUT_S = 30.0
_ERROR_CHARS_MAX = 300


class ModelSeam:
    """Answers what stages ask, with a time-out; without a model every answer says so."""

    def __init__(self, llm: object = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.llm = llm
        self.timeout_s = timeout_s

    async def answer(self, ask: Ask) -> Reply:
        """Ask the model; return its words or why there are none."""
        complete = getattr(self.llm, "complete", None)
        if complete is None:
            return Reply(error="no model is configured")
        prompt = f"{ask.system}\n\n{ask.prompt}" if ask.system else ask.prompt
        try:
            async with asyncio.timeout(self.timeout_s):
                completion = complete(prompt)
                if inspect.isawaitable(completion):
                    completion = await completion
        except TimeoutError:
            return Reply(error=f"the model did not answer within {self.timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - whatever a caller's own client raises must not lose the conversation
            return Reply(error=f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX])
        content = getattr(completion, "content", None)
        if not isinstance(content, str) or not content.strip():
            return Reply(error="the model answered without words")
        reason = getattr(completion, "finish_reason", "stop")
        return Reply(text=content, finish_reason=reason if isinstance(reason, str) else "stop")
