"""A scripted model without HTTP, for tests of what happens around a model. The server does the same over a socket."""

from __future__ import annotations

import asyncio

from refold.errors import ProviderError, Unavailable
from refold.llm.errors import classify_response
from refold.llm.port import TEMPERATURE, TOKENS_MAX, Completion, Usage
from refold.testing.script import Fault, RecordedRequest, Script, ScriptedReply, Step
from refold.tokens import counter_for


class ScriptedModel:
    """Answers ``complete`` from a script, and keeps what it was asked in ``requests``.

    Faults become what a client makes of them: a hang is a wait, a lost connection is Unavailable.
    """

    name = "scripted-1"

    def __init__(self, *steps: Step) -> None:
        self.script = Script(steps[0] if len(steps) == 1 else steps or "ok")
        self.requests: list[RecordedRequest] = []

    async def complete(
        self, prompt: str, *, system: str = "", tokens_max: int = TOKENS_MAX, temperature: float = TEMPERATURE
    ) -> Completion:
        """Return what the script says next."""
        body = {
            "model": self.name,
            "messages": [
                *([{"role": "system", "content": system}] if system else []),
                {"role": "user", "content": prompt},
            ],
            "max_tokens": tokens_max,
            "temperature": temperature,
        }
        request = RecordedRequest("openai-chat", "POST", "", {}, b"", body)
        self.requests.append(request)
        action = self.script.next(request)
        if isinstance(action, Fault):
            return await _misbehave(action)
        return _complete(action, prompt)


def _complete(reply: ScriptedReply, prompt: str) -> Completion:
    count = counter_for(None).count_text
    usage = Usage(count(prompt), count(reply.text))
    if reply.usage is not None:
        usage = Usage(reply.usage.input, reply.usage.output, reply.usage.cached)
    return Completion(reply.text, reply.reason, usage)


async def _misbehave(fault: Fault) -> Completion:
    if fault.kind == "status":
        raise classify_response(fault.status, fault.message or f"scripted error {fault.status}", fault.headers)
    if fault.kind == "html":
        raise ProviderError("the scripted model answered with a web page")
    if fault.kind == "drip":
        await asyncio.sleep(fault.pause_s * len(fault.reply.text) / 12)
        return _complete(fault.reply, "")
    if fault.kind in ("hang", "endless"):
        await asyncio.sleep(fault.pause_s or 60.0)
    raise Unavailable(f"the scripted model failed ({fault.kind})")
