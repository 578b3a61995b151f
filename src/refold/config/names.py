"""How settings are called: spellings, suggestions, and which names claim one meaning.

Five documents name one idea in several ways (``window``, ``contextWindowTokens``). This file is the one table of
those names. It must never hold a value: values live in presets and files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from refold.errors import Sentence

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Meaning:
    """One idea and every name for it; ours first. ``family``: ideas of which the newest word replaces the others.

    Within one layer two names of one meaning must agree; a higher layer that sets one of a family silences
    what lower layers said under any name of it.
    """

    idea: str
    names: tuple[str, ...]
    family: str = ""


MEANINGS = (
    Meaning("the window of the model in tokens", ("window", "context_window_tokens")),
    Meaning(
        "the share of the window at which compression begins",
        ("trigger_ratio", "compact_trigger", "context_threshold", "context_compression_threshold"),
    ),
    Meaning("the share of the window that a compression aims at", ("target_ratio", "compact_target")),
    Meaning("whether to compress automatically", ("auto_compress", "context_compression_enabled")),
    Meaning(
        "how many of the newest messages a fold keeps",
        ("fold.keep_messages", "retention_count", "compact_preserve_count", "keep_last"),
        family="keep",
    ),
    Meaning(
        "how many of the newest turns a fold keeps",
        ("fold.keep_turns", "keep_recent", "keep_last_turns"),
        family="keep",
    ),
    Meaning("the length of one tool output in characters", ("truncate.chars_max", "max_tool_output")),
    Meaning("the length of a summary in tokens", ("fold.summary_tokens_max", "compact_target_tokens")),
    Meaning("the score from which a message is kept", ("fold.importance_threshold", "importance_threshold")),
)

# Blocks of a file of ours that are no settings of compression; ``load_block`` reads them.
OTHER_BLOCKS = frozenset({"chat", "gateway", "mcp"})
# Short spellings that people use; each is the very same setting, not another name for its meaning.
SPELLINGS = {"auto": "auto_compress"}


def read_name(key: str) -> str:
    """Return a setting's name in our spelling: ``keepRecent`` and ``KEEP_RECENT`` are ``keep_recent``."""
    snake = key.lower() if key.isupper() else _CAPITAL.sub("_", key).lower()
    snake = snake.replace("-", "_")
    return SPELLINGS.get(snake, snake)


def suggest(name: str, known: Iterable[str], near: float = 0.6) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known name, or an empty string if none is as near as ``near``."""
    found = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=near)
    return Sentence(" (did you mean '{name}'?)", name=found[0]) if found else ""


def find_said(name: str, is_said: Callable[[str], bool]) -> str:
    """Return the name under which somebody set what ``name`` means; ``name`` itself if nobody did."""
    own = next((meaning.names for meaning in MEANINGS if name in meaning.names), ())
    return next((one for one in (name, *own) if is_said(one)), name)


def family_of(name: str) -> tuple[str, ...]:
    """Return every name that a new value under this name replaces, the name itself included."""
    own = next((meaning for meaning in MEANINGS if name in meaning.names), None)
    if own is None:
        return (name,)
    if not own.family:
        return own.names
    return tuple(name for meaning in MEANINGS if meaning.family == own.family for name in meaning.names)
