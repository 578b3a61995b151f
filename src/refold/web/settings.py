"""Settings as the page shows and changes them: where each comes from, whether it can be changed here, trying, saving.

What is typed stays text until the schema has read it. Saving writes the project's file, as a person would, and makes
the gateway go by it at once; what ``.compression/config.json`` said of the same settings gives way.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Literal, Union, get_args, get_origin, get_type_hints

from refold.config import PRESETS, CompressionConfig, Row, explain
from refold.config.layers import find_said
from refold.config.load import find_row
from refold.config.save import find_file, save_settings, try_settings
from refold.config.values import write_share
from refold.errors import ConfigError
from refold.server.api.interface import Access
from refold.server.settings import settle_arrival

Draft = str | bool | None
LOCKED = ("environment", "call", "session")
# The ledger that is open cannot be another one while we run, and an address may hold a password.
FIXED = frozenset({"ledger"})
HIDDEN = frozenset({"ledger", "compact_url"})
TEXT_CHARS_MAX = 50_000
GROUPS: dict[str, tuple[str, ...]] = {
    "switch": ("auto_compress",),
    "preset": ("preset",),
    "when": (
        "trigger_ratio",
        "target_ratio",
        "warn_ratio",
        "threshold_rounds",
        "threshold_tokens",
        "max_turns",
        "economic",
    ),
    "window": ("model", "window", "reserve"),
    "keep": ("fold.keep_turns", "fold.keep_messages", "importance_threshold", "max_tool_output"),
    "summary": (
        "summariser",
        "compact_model",
        "compact_url",
        "compact_timeout_s",
        "language",
        "summary_max_chars",
        "redact",
        "background",
        "fold.prompt",
    ),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting with its source. ``layer`` "folder" is ``.compression/config.json``; ``choices`` if it has a few.

    ``instead`` is what another name for the same meaning says where this one is not set. ``is_share``: it is shown and
    typed as a percentage (S3.9).
    """

    name: str
    value: object
    layer: str
    place: str
    means: str
    kind: str
    choices: tuple[str, ...] = ()
    instead: str = ""
    is_share: bool = False

    @property
    def typed(self) -> str:
        """The value as one would type it."""
        if self.is_share and isinstance(self.value, int | float):
            return write_share(self.value)
        return write_value(self.value)

    @property
    def is_locked(self) -> bool:
        """True if something above the file decides."""
        return self.layer in LOCKED or self.name in FIXED

    @property
    def can_reset(self) -> bool:
        """True if the file, or ``config.json``, says it."""
        return self.layer in ("project", "folder") and self.name not in FIXED


@dataclass(frozen=True, slots=True)
class Sheet:
    """All settings in order, and the name of the file that changes go into."""

    settings: dict[str, Setting]
    file: str

    def find(self, name: str) -> Setting:
        """Return the setting that decides what ``name`` means: a preset may set it under another document's name."""
        known = self.settings
        return known[find_said(name, lambda one: known[one].value is not None and known[one].layer != "built in")]


def read_sheet(access: Access) -> Sheet:
    """Return the settings as the next start would read them, with what ``config.json`` changes of them."""
    manager = access.manager
    config = try_settings(manager.workspace_path, {}, **_find_call(access))
    changed = manager.compression_folder.read_config()
    folder = {name for name in changed if (source := config.source(name)) is None or source.layer not in LOCKED}
    settings: dict[str, Setting] = {}
    rows = {row.name: row for row in explain(config)}
    for row in rows.values():
        kind, choices = find_kind(row)
        if row.name in folder:
            setting = Setting(
                row.name, changed[row.name], "folder", "", row.means, kind, choices, is_share=row.is_share
            )
        else:
            place = "" if access.tenant else row.place  # Paths of the operator's machine.
            value = None if access.tenant and row.name in HIDDEN else row.value
            instead = _find_instead(rows, row) if value is None else ""
            setting = Setting(row.name, value, row.layer, place, row.means, kind, choices, instead, row.is_share)
        settings[row.name] = setting
    return Sheet(settings, find_file(manager.workspace_path).name)


def _find_instead(rows: Mapping[str, Row], row: Row) -> str:
    said = find_row(rows, row.name)
    return f"{said.share or write_value(said.value)} ({said.name})" if said is not row else ""


def try_drafts(access: Access, drafts: Mapping[str, Draft]) -> dict[str, str]:
    """Return what is wrong, by the name of the setting; by the empty name what is wrong with them together."""
    access.check_operator()
    problems: dict[str, str] = {}
    base, call = access.manager.workspace_path, _find_call(access)
    file = find_file(base).name
    for name, draft in drafts.items():
        try:
            try_settings(base, {name: read_draft(name, draft)}, **call)
        except ConfigError as error:
            problems[name] = str(error).removeprefix(f"{file}: ")
    try:
        try_settings(base, {name: read_draft(name, draft) for name, draft in drafts.items()}, **call)
    except ConfigError as error:
        why = str(error).removeprefix(f"{file}: ")
        return {"": why} if why not in problems.values() and len(drafts) > 1 else problems
    return {}  # Together they hold: one needs the other.


def save_drafts(access: Access, drafts: Mapping[str, Draft]) -> str:
    """Save what was typed, go by it from now on; return the name of the file."""
    access.check_operator()
    if fixed := FIXED & drafts.keys():
        raise ConfigError(f"{', '.join(fixed)} cannot be changed while refold runs; set it in the file and start again")
    manager, call = access.manager, _find_call(access)
    typed = {name: read_draft(name, draft) for name, draft in drafts.items()}
    tried = {row.name: row.value for row in explain(try_settings(manager.workspace_path, typed, **call))}
    # As the schema read it: 75% is written as 0.75.
    changes = {name: None if value is None else tried.get(name, value) for name, value in typed.items()}
    config = save_settings(manager.workspace_path, changes, **call)
    manager.compression_folder.release_config(changes)
    manager.adopt(settle_arrival(config, is_on=access.application.settings.arrival))
    return find_file(manager.workspace_path).name


def read_draft(name: str, draft: Draft) -> object:
    """Return what was typed as the schema takes it; nothing typed takes the setting out of the file."""
    if draft is None or isinstance(draft, bool):
        return draft
    typed = draft.strip() if name != "fold.prompt" else draft.strip("\n")
    if not typed.strip():
        return None
    if len(typed) > TEXT_CHARS_MAX:
        raise ConfigError(f"{name} has more than {TEXT_CHARS_MAX:,} characters; shorten it")
    if name in ("ladder", "score.keywords"):
        return [piece.strip() for piece in typed.replace("，", ",").split(",") if piece.strip()]
    if name == "window" and ":" in typed:
        return _read_table(typed)
    return typed


def _read_table(typed: str) -> dict[str, str]:
    """Read ``gpt-5: 200000, *: 64000``."""
    pieces = [piece.rpartition(":") for piece in typed.strip("{} ").replace("\n", ",").split(",") if piece.strip()]
    return {model.strip(" '\""): tokens.strip(" '\"") for model, _, tokens in pieces}


def write_value(value: object) -> str:
    """Return a value as one would type it."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{model}: {tokens}" for model, tokens in value.items())
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def find_kind(row: Row) -> tuple[str, tuple[str, ...]]:
    """Return how a setting is entered: switch, choice, lines or text; with the choices."""
    if row.name == "preset":
        return "choice", tuple(PRESETS)
    if row.name == "fold.prompt":
        return "lines", ()
    hint = _hint_of(row.name)
    options = [one for one in (get_args(hint) if _is_union(hint) else (hint,)) if one is not type(None)]
    if len(options) == 1 and get_origin(options[0]) is Literal:
        return "choice", tuple(map(str, get_args(options[0])))
    return ("switch", ()) if options == [bool] else ("text", ())


def _hint_of(name: str) -> object:
    block, dot, option = name.partition(".")
    fields = CompressionConfig.model_fields
    if not dot:
        return next((field.annotation for key, field in fields.items() if (field.alias or key) == name), str)
    kind = fields[block].annotation if block in fields else None
    return get_type_hints(kind).get(option, str) if is_dataclass(kind) else str


def _is_union(hint: object) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _find_call(access: Access) -> dict[str, object]:
    """Return what the command line said when the gateway was started; only it can have named a preset in the call."""
    config = access.manager.config
    source = config.source("preset")
    return {"preset": config.preset_name} if source is not None and source.layer == "call" and source.place else {}
