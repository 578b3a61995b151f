"""Counters: how many tokens a text, a message or a set of tools has for a model; and how counts compare with usage.

Every count goes through a ``Counter``; reports show its name beside every figure. A counter keeps nothing of what it
counted: the owner of a message keeps its count. Counting never fails: a message that no format accepts is counted as
its JSON text.

A ``Calibration`` is a frozen value: ``observe`` returns a new one. It never changes an earlier count; it says how
far counts were off (``factor_for``) and how far they may still be off
(``margin_for``). Its memory is bounded, and an impossible report changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from refold.conversation.message import Part, frozen, write_json
from refold.errors import ConfigError, FormatError
from refold.formats.detect import detect
from refold.tokens.encoding import PROFILES, Encoding, Estimate, Vocabulary, load_vocabulary
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


class Counter:
    """Counts messages and tools with anything that counts text; ``margin`` is the share by which it may be too low."""

    def __init__(
        self, count: Callable[[str], int], name: str, margin: float, image_rule: ImageRule | None = None
    ) -> None:
        self.name = name
        self.margin = margin
        self.is_exact = margin == 0.0
        self.image_rule = image_rule
        self._count = count
        self._roles: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def is_like(self, other: Counter) -> bool:
        """Return whether another counter gives the same counts."""
        return (self.name, self.image_rule) == (other.name, other.image_rule)

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
        listed = messages if isinstance(messages, (list, tuple)) else () if messages is None else (messages,)
        return REPLY_TOKENS + sum(map(self.count_message, listed))

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
            if len(self._roles) < 16:  # There are four roles; made-up ones must not fill the memory.
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
    """Return the approximate tokens of thinking that only the provider can read; 0 if it is plain text."""
    if not isinstance(payload, Mapping):
        return 0
    sealed = payload.get("data", payload.get("encrypted_content"))
    return len(sealed) // BLOB_CHARS_PER_TOKEN if isinstance(sealed, str) else 0


class TokenCounter(Counter):
    """Counts with a public vocabulary, offline: exact for cl100k_base and o200k_base."""

    def __init__(self, encoding_name: str = "cl100k_base", *, image_rule: ImageRule | None = None) -> None:
        encoding = Encoding(_ALIASES.get(encoding_name, encoding_name))
        margin = 0.0 if encoding.is_exact else OPEN_VOCABULARY_MARGIN
        super().__init__(encoding.count, encoding.name, margin, image_rule)

    @property
    def encoding(self) -> Vocabulary:
        """The vocabulary itself, with ``encode`` and ``decode``."""
        return load_vocabulary(self.name)


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


def _make_counter(tokenizer: str, info: ModelInfo) -> Counter:
    if tokenizer == "chars/4":
        # The rough rule of many tools, for comparison with them. It undercounts Chinese threefold, hence the margin.
        return Counter(lambda text: (len(text) + 3) // 4, tokenizer, 2.0, info.image_rule)
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
    return Counter(estimate.count, estimate.name, estimate.profile.margin, info.image_rule)


def read_message(message: object) -> tuple[str, Sequence[Part], str]:
    """Return role, parts and name of a provider's message; one that no format accepts is a single opaque part."""
    try:
        parsed = detect((message,)).parse(message, digest="unused")
    except (FormatError, RecursionError):
        role = message.get("role") if isinstance(message, Mapping) else None
        part = Part("text", message) if isinstance(message, str) else Part("opaque", payload=message)
        return role if isinstance(role, str) else "", (part,), ""
    return parsed.role, parsed.parts, parsed.name


_MODELS_MAX = 64
_NAME_CHARS_MAX = 200
_RATIO_MIN, _RATIO_MAX = 0.2, 5.0  # Beyond these the two figures belong to different requests.
_FULL_WEIGHT_TOKENS = 2_000  # A short request says more about framing than about the text.
_WEIGHT_MAX = 20.0  # Older observations fade, so that a changed tokenizer is noticed.
_STEP_MAX = 0.25  # One strange report moves an established figure no further than this.
_MARGIN_MIN, _MARGIN_MAX = 0.02, 1.0


@frozen
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


@frozen
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
