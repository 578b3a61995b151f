"""Scripts: the replies and faults of a scripted provider, and the order in which they come.

A script is a value or a function: the same requests get the same answers on every run. Nothing here opens a socket;
``server`` puts a script behind HTTP, and ``ScriptedModel`` can be passed wherever a model is expected.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Literal

from refold.errors import ProviderError, Unavailable
from refold.llm.errors import classify_response
from refold.llm.port import TEMPERATURE, TOKENS_MAX, Completion

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal"]
FaultKind = Literal["hang", "drop", "html", "empty", "half_json", "status", "error_event", "drip", "endless"]
UNTIL_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class ScriptedUsage:
    """Token counts that the provider reports; ``cached`` is the part of ``input`` read from its cache."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call of a reply. ``arguments`` is an object, or a string that is sent as it is, even if not JSON."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """The model's answer. Without ``usage`` the server counts; without ``finish_reason`` it follows from the rest.

    Without an ``id`` all answers have the same one, which some clients take for one answer in pieces.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str = ""
    finish_reason: FinishReason | None = None
    usage: ScriptedUsage | None = None
    is_refusal: bool = False
    id: str = ""

    @property
    def reason(self) -> FinishReason:
        """The reason why the reply ended, in one vocabulary for all wires."""
        if self.finish_reason is not None:
            return self.finish_reason
        if self.is_refusal:
            return "refusal"
        return "tool_calls" if self.calls else "stop"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure between the model and the client. Make one with the functions below."""

    kind: FaultKind
    reply: ScriptedReply = ScriptedReply("A reply that you will not see the end of, because the line fails first.")
    status: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int = 3
    pause_s: float = 0.0
    until: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it arrived. ``body`` has its bytes, ``json`` their parsed value (None if they are not JSON)."""

    wire: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)  # They carry the caller's key.
    body: bytes = field(repr=False)
    json: Any = field(repr=False)

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self._field("model") or "")

    @property
    def is_streaming(self) -> bool:
        """True if the client asked for a stream of events."""
        return self._field("stream") is True

    @property
    def messages(self) -> list[Any]:
        """The messages or items of the request; a bare string counts as one user message."""
        found = self._field("input" if self.wire == "openai-responses" else "messages")
        if isinstance(found, str):
            return [{"role": "user", "content": found}]
        return found if isinstance(found, list) else []

    @property
    def prompt(self) -> str:
        """The text of the newest message."""
        return read_words(self.messages[-1].get("content")) if self.messages else ""

    @property
    def system(self) -> str:
        """The text of the system prompt, wherever the wire puts it."""
        beside = read_words(self._field("system") or self._field("instructions"))
        inside = [read_words(m.get("content")) for m in self.messages if m.get("role") in ("system", "developer")]
        return "\n".join(text for text in (beside, *inside) if text)

    def _field(self, name: str) -> Any:
        return self.json.get(name) if isinstance(self.json, dict) else None


Action = ScriptedReply | Fault
Step = str | Action | Callable[[RecordedRequest], "str | Action"]


class Script:
    """Returns the steps: those of a sequence once each, in order; a single step for every request."""

    def __init__(self, steps: Step | Sequence[Step] = "ok") -> None:
        self._always = steps if isinstance(steps, str | ScriptedReply | Fault) or callable(steps) else None
        self._steps: list[Step] = [] if self._always is not None else list(steps)  # type: ignore[arg-type]
        self._taken = 0
        self._lock = threading.Lock()

    def next(self, request: RecordedRequest) -> Action:
        """Return what to answer this request with; a script that has run out returns an explicit 400."""
        with self._lock:
            at = self._taken
            self._taken += 1
        if self._always is not None:
            step = self._always
        elif at < len(self._steps):
            step = self._steps[at]
        else:
            # 400, because clients retry other errors, and the test would fail for another reason.
            return fail(400, f"the script has {len(self._steps)} replies; this is request {at + 1}")
        made = step if isinstance(step, str | ScriptedReply | Fault) else step(request)
        return ScriptedReply(made) if isinstance(made, str) else _name_calls(made, at + 1)


def _name_calls(action: Action, number: int) -> Action:
    """Return a reply in which every call has a distinct id, the same on every run."""
    if not isinstance(action, ScriptedReply) or all(call.id for call in action.calls):
        return action
    calls = [replace(call, id=call.id or f"call_scripted_{number}_{at}") for at, call in enumerate(action.calls)]
    return replace(action, calls=tuple(calls))


def read_words(content: object) -> str:
    """Return the text of a message's content: a string, or its text blocks joined."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict) and "text" in block)


def say(text: str, *, usage: ScriptedUsage | None = None, finish_reason: FinishReason | None = None) -> ScriptedReply:
    """Answer with text; ``usage`` may be any figures, ``finish_reason="length"`` marks it as cut off."""
    return ScriptedReply(text, usage=usage, finish_reason=finish_reason)


def say_much(tokens: int = 50_000) -> ScriptedReply:
    """Answer with about this many tokens, whatever limit the request sets."""
    return ScriptedReply(" word" * tokens)


def call_tool(name: str, arguments: Mapping[str, Any] | str | None = None, *, text: str = "") -> ScriptedReply:
    """Call a tool; it need not be one that the request offers."""
    return ScriptedReply(text, calls=(ScriptedCall(name, arguments if arguments is not None else {}),))


def refuse(text: str = "I can't help with that.") -> ScriptedReply:
    """Refuse, in the wire's own form."""
    return ScriptedReply(text, is_refusal=True)


def echo_prompt(request: RecordedRequest) -> ScriptedReply:
    """Answer with the newest message of the request itself."""
    return ScriptedReply(request.prompt)


def hang(seconds: float = 60.0) -> Fault:
    """Accept the request and send nothing until the client disconnects, the server closes or the time is over."""
    return Fault("hang", pause_s=seconds)


def drop(text: str = "", *, after: int = 3) -> Fault:
    """Drop the connection after this many events of the answer; without streaming, in the middle of the body."""
    return Fault("drop", ScriptedReply(text), after=after) if text else Fault("drop", after=after)


def html_page() -> Fault:
    """Answer 200 with a web page, as a proxy or a wrong address does."""
    return Fault("html")


def empty_body() -> Fault:
    """Answer 200 with nothing."""
    return Fault("empty")


def half_json() -> Fault:
    """Answer 200 with a body that ends in the middle of its JSON."""
    return Fault("half_json")


def fail(status: int, message: str = "", *, retry_after: float | datetime | None = None) -> Fault:
    """Answer with an error status in the provider's own shape; ``retry_after`` in seconds or as a date in UTC."""
    headers: dict[str, str] = {}
    if isinstance(retry_after, datetime):
        headers["Retry-After"] = format_datetime(retry_after, usegmt=True)
    elif retry_after is not None:
        headers["Retry-After"] = f"{retry_after:g}"
    return Fault("status", status=status, message=message, headers=headers)


def fail_mid_stream(message: str = "Overloaded", *, after: int = 3) -> Fault:
    """Start a stream with status 200 and send an error in it; without streaming, answer 529."""
    return Fault("error_event", status=529, message=message, after=after)


def drip(text: str, *, pause_s: float = 0.05, until: threading.Event | None = None) -> Fault:
    """Answer in full, but with a pause before every event, or every few bytes of a body.

    With ``until``, the second half is sent after a test sets that event, however long its first half is looked at.
    """
    return Fault("drip", ScriptedReply(text), pause_s=pause_s, until=until)


def never_end(*, pause_s: float = 0.0) -> Fault:
    """Stream text without end, until the server's limit stops it."""
    return Fault("endless", pause_s=pause_s)


class ScriptedModel:
    """Answers ``complete`` from a script, and keeps the prompts in ``requests``.

    Faults appear as a client would see them: a hang is a wait, a lost connection is Unavailable.
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
        return Completion(action.text, action.reason)


async def _misbehave(fault: Fault) -> Completion:
    if fault.kind == "status":
        raise classify_response(fault.status, fault.message or f"scripted error {fault.status}", fault.headers)
    if fault.kind == "html":
        raise ProviderError("the scripted model answered with a web page")
    if fault.kind == "drip":
        await asyncio.sleep(fault.pause_s * len(fault.reply.text) / 12)
        if fault.until is not None:
            await asyncio.to_thread(fault.until.wait, UNTIL_S_MAX)
        return Completion(fault.reply.text, fault.reply.reason)
    if fault.kind in ("hang", "endless"):
        await asyncio.sleep(fault.pause_s or 60.0)
    raise Unavailable(f"the scripted model failed ({fault.kind})")
