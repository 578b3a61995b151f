"""Counters: how many tokens a text, a message or a set of tools has for a model; and how counts compare with usage.

Every count goes through a ``Counter``; reports show its name beside every figure. A counter keeps nothing of what it
counted: the owner of a message keeps its count. Counting never fails. Provider messages (OpenAI chat, Anthropic and
Responses dicts) are read into parts for counting only, and a message of no known shape counts as the JSON it is.

A ``Calibration`` is a frozen value: ``observe`` returns a new one. It never changes an earlier count, so that a counted
message stays counted; it says how far counts were off (``factor_for``) and how far they may still be off
(``margin_for``). Its memory is bounded, and an impossible report changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from refold.conversation.message import Part, read_text, write_json
from refold.errors import ConfigError
from refold.tokens.encoding import PROFILES, CharsQuarter, Encoding, Estimate
from refold.tokens.images import ImageRule, count_media
from refold.tokens.models import ModelInfo, model_info

# S0.2: every message costs 4 beside role and content, and the answer's opening costs 2 once.
MESSAGE_TOKENS = 4
REPLY_TOKENS = 2
NAME_TOKENS = 1
CALL_TOKENS = 4  # The frame of one call around its name and arguments.
TOOL_TOKENS = 4  # The frame of one tool around its schema.
TOOLS_TOKENS = 8  # The frame around all tools.
# For vocabularies that we cannot check against a reference, and chat frames that differ from the one above.
OPEN_VOCABULARY_MARGIN = 0.05
# Sealed text (encrypted reasoning, signed results) comes back as about a token for six characters of base64.
BLOB_CHARS_PER_TOKEN = 6

# With the look-behind, each run of such characters is tried once, not from each of its characters.
_BLOB = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{512,}")
_ALIASES = {"cl100k": "cl100k_base", "o200k": "o200k_base"}


@runtime_checkable
class Counter(Protocol):
    """Counts tokens. ``margin`` is the share by which it may be too low; 0.0 where ``is_exact``."""

    @property
    def name(self) -> str: ...
    @property
    def is_exact(self) -> bool: ...
    @property
    def margin(self) -> float: ...

    def count_text(self, text: str) -> int:
        """Return the tokens of a text, read as ordinary text throughout."""
        ...

    def count_parts(self, role: str, parts: Sequence[Part], name: str = "") -> int:
        """Return the tokens of one message, its frame included."""
        ...

    def count_tools(self, tools: object) -> int:
        """Return the tokens of tool schemas in any provider's shape; 0 for none."""
        ...


class _TextCounter(Protocol):
    def count(self, text: str) -> int: ...


class MessageCounter:
    """Counts messages and tools with anything that counts text."""

    def __init__(self, texts: _TextCounter, name: str, margin: float, image_rule: ImageRule | None = None) -> None:
        self.name = name
        self.margin = margin
        self.is_exact = margin == 0.0
        self.image_rule = image_rule
        self._count = texts.count
        self._roles: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def count_text(self, text: str) -> int:
        """Return the tokens of a text, read as ordinary text throughout."""
        return self._count(text)

    def count_parts(self, role: str, parts: Sequence[Part], name: str = "") -> int:
        """Return the tokens of one message, its frame included."""
        total = MESSAGE_TOKENS + self._count_role(role)
        for part in parts:
            total += self._count(part.text) if part.kind == "text" else self._count_part(part)
        return total + NAME_TOKENS + self._count(name) if name else total

    def count_messages(self, messages: object) -> int:
        """Return the tokens of a list of provider messages, the answer's opening included."""
        return REPLY_TOKENS + sum(self.count_message(message) for message in read_messages(messages))

    def count_message(self, message: object) -> int:
        """Return the tokens of one provider message."""
        role, parts, name = read_message(message)
        return self.count_parts(role, parts, name)

    def count_tools(self, tools: object) -> int:
        """Return the tokens of tool schemas in any provider's shape; 0 for none."""
        if not tools:
            return 0
        listed = tools if isinstance(tools, (list, tuple)) else (tools,)
        return TOOLS_TOKENS + sum(TOOL_TOKENS + self._count(write_json(tool)) for tool in listed)

    def _count_role(self, role: str) -> int:
        count = self._roles.get(role)
        if count is None:
            count = self._count(role)
            if len(self._roles) < 16:  # There are four roles; invented ones must not fill the memory.
                self._roles[role] = count
        return count

    def _count_part(self, part: Part) -> int:
        if part.kind == "call":
            return CALL_TOKENS + self._count(part.name) + self._count(part.text)
        if part.kind == "result":
            inside = sum(self._count_part(inner) for inner in part.inside) if part.inside else 0
            return self._count(part.text) + inside
        if part.kind == "thinking":
            return max(self._count(part.text), _count_sealed(part.payload))
        if part.text:
            return self._count(part.text)
        if part.kind == "media":
            return count_media(part.payload, self.image_rule)
        return 0 if part.payload is None else self._count_json(part.payload)

    def _count_json(self, payload: object) -> int:
        text, blobs = _BLOB.subn("", whole := write_json(payload))
        return self._count(text) + ((len(whole) - len(text)) // BLOB_CHARS_PER_TOKEN if blobs else 0)


def _count_sealed(payload: object) -> int:
    """Return about how many tokens thinking has that only the provider can read; 0 where it is open."""
    if not isinstance(payload, Mapping):
        return 0
    sealed = payload.get("data", payload.get("encrypted_content"))
    return len(sealed) // BLOB_CHARS_PER_TOKEN if isinstance(sealed, str) else 0


class TokenCounter(MessageCounter):
    """Counts with a public vocabulary, offline: exact for cl100k_base and o200k_base."""

    def __init__(self, encoding_name: str = "cl100k_base", *, image_rule: ImageRule | None = None) -> None:
        encoding = Encoding(_ALIASES.get(encoding_name, encoding_name))
        margin = 0.0 if encoding.is_exact else OPEN_VOCABULARY_MARGIN
        super().__init__(encoding, encoding.name, margin, image_rule)


def counter_for(model: str | None, tokenizer: str | None = None, calibration: Calibration | None = None) -> Counter:
    """Return the counter of a model, or the one that ``tokenizer`` names.

    Without a model it is cl100k_base. A tokenizer is the name of an encoding, 'chars/4', 'estimate' or
    'estimate:FAMILY'. Reported usage of a model narrows the margin of its estimate.
    """
    info = model_info(model)
    if tokenizer is None:
        tokenizer = info.encoding or (f"estimate:{info.family}" if model else "cl100k_base")
    counter = _make_counter(tokenizer, info)
    if calibration is not None and model and not counter.is_exact:
        counter.margin = calibration.margin_for(model, counter.margin)
    return counter


def _make_counter(tokenizer: str, info: ModelInfo) -> MessageCounter:
    if tokenizer == "chars/4":
        quarter = CharsQuarter()
        return MessageCounter(quarter, quarter.name, quarter.margin, info.image_rule)
    kind, _, family = tokenizer.partition(":")
    if kind != "estimate":
        return TokenCounter(tokenizer, image_rule=info.image_rule)
    if family not in ("", info.family, *PROFILES):
        raise ConfigError(
            "tokenizer {tokenizer!r} is not known; families are {listed}",
            tokenizer=tokenizer,
            listed=", ".join(PROFILES),
        )
    estimate = Estimate(family or info.family)
    return MessageCounter(estimate, estimate.name, estimate.profile.margin, info.image_rule)


_ROLES = {"developer": "system", "function": "tool"}
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_TEXT_TYPES = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_CALL_TYPES = ("tool_use", "mcp_tool_use")
_RESULT_TYPES = ("tool_result", "mcp_tool_result")
_MEDIA_TYPES = frozenset(
    (
        *("image", "image_url", "input_image", "video_url", "audio_url", "input_audio"),
        *("document", "file", "input_file", "container_upload", "computer_screenshot"),
    )
)
# Items of the Responses interface that are calls, with the field that holds their arguments.
_CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_DEPTH_MAX = 8  # A result never holds a result; thousands of nested ones are an attack.


def read_messages(messages: object) -> Iterable[object]:
    """Return the messages of a list, or the one message that was passed without a list."""
    if isinstance(messages, (list, tuple)):
        return messages
    return () if messages is None else (messages,)


def read_message(message: object) -> tuple[str, list[Part], str]:
    """Return role, parts and name of a provider's message, whatever its shape."""
    if not isinstance(message, Mapping):
        return "", list(_read_content(message)), ""
    if message.get("role") is None and isinstance(message.get("type"), str):
        return _read_item(message)
    role = read_text(message.get("role"))
    role = _ROLES.get(role, role)
    content = message.get("content")
    if role == "tool":
        parts = [_read_result(content)]
    else:
        parts = [*_read_thinking(message), *_read_content(content), *_read_answers(message)]
    name = message.get("name")
    return role, parts, name if isinstance(name, str) else ""


def _read_item(item: Mapping[object, object]) -> tuple[str, list[Part], str]:
    kind = str(item["type"])
    if kind in _OUTPUT_TYPES:
        return "tool", [_read_result(item.get("output"))], ""
    if kind in _CALL_FIELDS:
        name = read_text(item.get("name")) or ("local_shell" if kind == "local_shell_call" else "")
        return "assistant", [Part("call", read_text(item.get(_CALL_FIELDS[kind])), name)], ""
    if kind == "reasoning":
        texts = [part.text for field in ("summary", "content") for part in _read_content(item.get(field))]
        return "assistant", [Part("thinking", "\n".join(filter(None, texts)), payload=item)], ""
    return "tool" if kind.endswith(("_output", "_response")) else "assistant", [Part("opaque", payload=item)], ""


def _read_content(content: object, depth: int = 0) -> Iterator[Part]:
    if isinstance(content, (list, tuple)):
        for block in content:
            yield _read_block(block, depth)
    elif isinstance(content, Mapping):
        yield _read_block(content, depth)
    elif content is not None:
        yield Part("text", read_text(content))


def _read_block(block: object, depth: int) -> Part:
    if not isinstance(block, Mapping):
        return Part("text", read_text(block))
    kind = block.get("type")
    if not isinstance(kind, str):
        return Part("opaque", payload=block)
    if kind in _TEXT_TYPES:
        return Part("text", read_text(block.get("text")))
    if kind == "refusal":
        return Part("text", read_text(block.get("refusal")))
    if kind in ("thinking", "redacted_thinking"):
        return Part("thinking", read_text(block.get("thinking")), payload=block)
    if kind in _CALL_TYPES:
        return Part("call", read_text(block.get("input")), read_text(block.get("name")))
    if kind in _RESULT_TYPES and depth < _DEPTH_MAX:
        return _read_result(block.get("content"), depth + 1)
    if kind in _MEDIA_TYPES:
        return Part("media", _read_document(block), payload=block)
    return Part("opaque", payload=block)


def _read_result(content: object, depth: int = 0) -> Part:
    parts = list(_read_content(content, depth))
    text = "\n".join(part.text for part in parts if part.kind == "text" and part.text)
    return Part("result", text, inside=tuple(part for part in parts if part.kind != "text"))


def _read_document(block: Mapping[object, object]) -> str:
    """Return the words of a document that is given as text."""
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":
        return read_text(source.get("data"))
    return ""


def _read_thinking(message: Mapping[object, object]) -> Iterator[Part]:
    if message.get("role") != "assistant":
        return
    for field in _THINKING_FIELDS:
        value = message.get(field)
        if isinstance(value, (list, tuple)):
            blocks = [block for block in value if isinstance(block, Mapping)]
            texts = (block.get("thinking") or block.get("text") or block.get("summary") for block in blocks)
            yield Part("thinking", "\n".join(text for text in texts if isinstance(text, str)))
        elif value:
            yield Part("thinking", read_text(value))


def _read_answers(message: Mapping[object, object]) -> Iterator[Part]:
    if message.get("refusal"):
        yield Part("text", read_text(message["refusal"]))
    if message.get("audio"):
        yield Part("opaque", payload=message["audio"])
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        yield _read_call(call)
    function = message.get("function_call")
    if isinstance(function, Mapping):
        yield Part("call", read_text(function.get("arguments")), read_text(function.get("name")))


def _read_call(call: object) -> Part:
    if not isinstance(call, Mapping):
        return Part("opaque", payload=call)
    function = call.get("function")
    if isinstance(function, Mapping):
        return Part("call", read_text(function.get("arguments")), read_text(function.get("name")))
    custom = call.get("custom")
    if isinstance(custom, Mapping):
        return Part("call", read_text(custom.get("input")), read_text(custom.get("name")))
    return Part("opaque", payload=call)


_MODELS_MAX = 64
_NAME_CHARS_MAX = 200
_RATIO_MIN, _RATIO_MAX = 0.2, 5.0  # Beyond these the two figures belong to different requests.
_FULL_WEIGHT_TOKENS = 2_000  # A short request says more about framing than about the text.
_WEIGHT_MAX = 20.0  # Older observations fade, so that a changed tokenizer is noticed.
_STEP_MAX = 0.25  # One strange report moves an established figure no further than this.
_MARGIN_MIN, _MARGIN_MAX = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Track:
    """The observations of one model: reported / counted, the mean distance from that, and their weight."""

    model: str
    ratio: float
    spread: float
    weight: float

    @property
    def is_plausible(self) -> bool:
        """True if the ratio may be that of one request; a comparison with NaN is never true."""
        return _RATIO_MIN <= self.ratio <= _RATIO_MAX


@dataclass(frozen=True, slots=True)
class Calibration:
    """The ratio of reported usage to our counts, per model; the most recently observed last."""

    tracks: tuple[Track, ...] = ()

    def observe(self, model: str, counted: float, reported: float) -> Calibration:
        """Return the calibration after a request that we counted as ``counted`` and the provider as ``reported``."""
        ratio = _read_ratio(counted, reported)
        if ratio is None:
            return self
        name = model[:_NAME_CHARS_MAX]
        known = self._find(name)
        weight = min(1.0, counted / _FULL_WEIGHT_TOKENS)
        track = Track(name, ratio, 0.0, weight) if known is None else _update(known, ratio, weight)
        others = [other for other in self.tracks if other.model != name]
        return Calibration((*others[-(_MODELS_MAX - 1) :], track))

    def factor_for(self, model: str) -> float:
        """Return the factor between counts and reports; 1.0 if there are no reports."""
        track = self._find(model[:_NAME_CHARS_MAX])
        return 1.0 if track is None else track.ratio

    def margin_for(self, model: str, stated: float) -> float:
        """Return the share by which counts may be too low: the stated margin, less and less as reports come in."""
        track = self._find(model[:_NAME_CHARS_MAX])
        if track is None:
            return stated
        doubt = 1.0 / (1.0 + track.weight)
        seen = max(0.0, track.ratio + 2.0 * track.spread - 1.0)
        return min(_MARGIN_MAX, max(_MARGIN_MIN, doubt * stated + (1.0 - doubt) * seen))

    def _find(self, model: str) -> Track | None:
        for track in self.tracks:
            if track.model == model:
                return track
        return None


def _read_ratio(counted: float, reported: float) -> float | None:
    try:
        ratio = reported / counted if counted > 0 and reported > 0 else 0.0
    except (TypeError, OverflowError):  # A provider may report something that is not a number, or a huge one.
        return None
    # A comparison with NaN is never true.
    return ratio if _RATIO_MIN <= ratio <= _RATIO_MAX else None


def _update(known: Track, ratio: float, weight: float) -> Track:
    if known.weight >= 1.0:
        reach = max(_STEP_MAX, 4.0 * known.spread)
        ratio = min(known.ratio + reach, max(known.ratio - reach, ratio))
    total = min(_WEIGHT_MAX, known.weight + weight)
    gain = weight / (known.weight + weight)
    mean = known.ratio + gain * (ratio - known.ratio)
    spread = known.spread + gain * (abs(ratio - mean) - known.spread)
    return Track(known.model, mean, spread, total)
