"""Counters: how many tokens a text, a message or a set of tools has for a model.

Everything that counts goes through a ``Counter``; its name stands in reports beside every figure. A counter keeps
nothing of what it counted: whoever holds a message holds its count. Counting never fails, whatever it is handed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from refold.conversation.message import Part, write_json
from refold.errors import ConfigError
from refold.tokens.calibration import Calibration
from refold.tokens.estimate import PROFILES, CharsQuarter, Estimate
from refold.tokens.exact import Encoding
from refold.tokens.images import ImageRule, count_media
from refold.tokens.models import ModelInfo, model_info
from refold.tokens.reading import read_message, read_messages

# S0.2: every message costs 4 beside role and content, and the answer's opening costs 2 once.
MESSAGE_TOKENS = 4
REPLY_TOKENS = 2
NAME_TOKENS = 1
CALL_TOKENS = 4  # The frame of one call around its name and arguments.
TOOL_TOKENS = 4  # The frame of one tool around its schema.
TOOLS_TOKENS = 8  # The frame around all tools.
# Vocabularies we cannot check against a reference, and chat frames that differ from the one above.
OPEN_VOCABULARY_MARGIN = 0.05
# Sealed text (encrypted reasoning, signed results) comes back as about a token for six characters of base64.
BLOB_CHARS_PER_TOKEN = 6

# The look-behind makes each run of such characters be tried once, not from each of its characters.
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
    """A counter over anything that counts text: what a message is made of, whatever counts its words."""

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
            if len(self._roles) < 16:  # There are four roles; a caller may invent more, but not fill memory with them.
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
    'estimate:FAMILY'. What was reported about a model narrows the margin of its estimate.
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
        raise ConfigError(f"tokenizer {tokenizer!r} is not known; families are {', '.join(PROFILES)}")
    estimate = Estimate(family or info.family)
    return MessageCounter(estimate, estimate.name, estimate.profile.margin, info.image_rule)
