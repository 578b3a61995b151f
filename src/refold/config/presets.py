"""The presets that ship with refold: ``default``, the best we know, and one for each design document.

A preset file states only what differs from ``default``. Reading it is reading a part of the package: it is parsed
once and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePath

from refold.config.layers import ORDER, Layer
from refold.config.names import suggest
from refold.config.reading import read_yaml
from refold.errors import ConfigError

DEFAULT = "default"
PRESETS: dict[str, str] = {
    "default": "for most: waits until it is full or until it pays, then folds deep, without a model",
    "archive": "at 100 messages or 4,000 tokens, all but the newest 50 become a summary",
    "importance": "beyond 50 turns, old messages are scored; important ones stay beside a short summary",
    "offload": "old tool results go to files; if that frees little, the history is summarised",
    "hybrid": "at 80 % of the window, all but the last 6 messages become a summary",
    "turns": "at 75 % of the window, all but the last 6 turns become a summary",
}

# The settings of the document that preset ``archive`` comes from, and the file it keeps them in.
ARCHIVE_FIELDS = ("threshold_rounds", "threshold_tokens", "retention_count")
ARCHIVE_FILE = "x-agent.yaml"
# Settings that say nothing about when to compress and what stays: they may stand beside those of a document.
_NEUTRAL = frozenset(
    (
        "model",
        "window",
        "reserve",
        "tokenizer",
        "auto_compress",
        "language",
        "compact_model",
        "compact_retry_count",
        "compact_url",
        "compact_timeout_s",
        "summariser",
        "redact",
        "background",
        "ledger",
        "write_files",
    )
)


def find_implied(layers: Sequence[Layer]) -> Layer | None:
    """Return a layer that names the preset that other settings imply; None if they imply none, or one is named.

    The first document's file, or its three settings and no others, mean its preset ``archive``.
    """
    named = {name: layer for layer in layers for name in layer.values}
    if "preset" in named:
        return None
    file = next(
        (layer for layer in layers if layer.name == "project" and PurePath(layer.place).name == ARCHIVE_FILE), None
    )
    if file is not None:
        return Layer("project", {"preset": "archive"}, f"implied by {file.place}")
    told = [name for name in named if name not in _NEUTRAL and not name.startswith("recall")]
    if sorted(told) != sorted(ARCHIVE_FIELDS):
        return None
    highest = named[max(told, key=lambda name: ORDER.index(named[name].name))].name
    return Layer(highest, {"preset": "archive"}, f"implied by {', '.join(ARCHIVE_FIELDS)}")


def check_preset(name: str, where: str = "") -> None:
    """Raise ConfigError if there is no such preset; ``where`` is the file or variable that names it."""
    if name not in PRESETS:
        raise ConfigError(f"{where}unknown preset '{name}'{suggest(name, PRESETS)}; there are {', '.join(PRESETS)}")


def preset_layers(name: str, read_layer: Callable[..., Layer]) -> list[Layer]:
    """Return the layers of a preset: ``default``, and what differs from it."""
    check_preset(name)
    chosen = [DEFAULT] if name == DEFAULT else [DEFAULT, name]
    return [read_layer("preset", _read_preset(one), one) for one in chosen]


@lru_cache
def _read_preset(name: str) -> dict[object, object]:
    text = files("refold.presets").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    settings, _ = read_yaml(text, f"preset {name}")
    return {**settings, "preset": name}
