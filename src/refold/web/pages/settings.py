"""Settings: the switch, the preset, thresholds, models and prompts, each with its purpose and its source.

Drafts are tried as the user types; nothing is written before saving. A draft stays text until the schema reads it.
Saving writes the project's file, line by line, and applies the settings at once; entries of the same settings in
``.compression/config.json`` are removed. Only the operator can change settings; a tenant can read them.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from nicegui import ui

from refold.config import PRESETS, Row, explain
from refold.config.save import find_file, save_settings, try_settings
from refold.config.values import find_row
from refold.conversation.reason import Language
from refold.errors import ConfigError
from refold.manager.memory_notes import apply_folder
from refold.memory import FOLDER_PLACE
from refold.sentences import describe_error, tr
from refold.server.api.interface import Access
from refold.server.settings import find_missing_switch, settle_arrival
from refold.web.shell import button, choice, frame, go, guarded, heading, notify, set_prop, text
from refold.web.visit import clean, find_visit, has_words, page_link, say

Draft = str | bool | None
LOCKED = ("environment", "call", "session")
# The open ledger cannot be replaced while refold runs, and an address may contain a password.
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
TYPING_S = 0.25


@dataclass(frozen=True, slots=True)
class Setting(Row):
    """One setting with its source. The layer ``folder`` is ``.compression/config.json``.

    ``instead`` is the value of another name with the same meaning, if this one is not set.
    """

    kind: str = "text"
    choices: tuple[str, ...] = ()
    instead: str = ""

    @property
    def typed(self) -> str:
        """The value as a user would type it."""
        return self.share or write_value(self.value)

    @property
    def is_locked(self) -> bool:
        """True if a layer above the file sets it."""
        return self.layer in LOCKED or self.name in FIXED

    @property
    def can_reset(self) -> bool:
        """True if the file or ``config.json`` sets it."""
        return self.layer in ("project", "folder") and self.name not in FIXED


def read_settings(access: Access) -> dict[str, Setting]:
    """Return the settings as the next start would read them, with the changes of ``config.json``."""
    manager = access.manager
    config = apply_folder(try_settings(manager.workspace_path, {}, **_find_call(access)), manager.compression_folder)
    settings: dict[str, Setting] = {}
    rows = {row.name: row for row in explain(config)}
    for row in rows.values():
        value, layer, place = row.value, row.layer, row.place
        if place == FOLDER_PLACE:
            layer, place = "folder", ""
        elif access.tenant:  # A tenant does not see addresses, and paths of the operator's machine.
            value, place = None if row.name in HIDDEN else value, ""
        said = find_row(rows, row.name)
        other = f"{said.share or write_value(said.value)} ({said.name})" if value is None and said is not row else ""
        settings[row.name] = Setting(row.name, value, layer, place, row.means, row.hint, *find_kind(row), other)
    return settings


def try_drafts(access: Access, drafts: Mapping[str, Draft], language: Language = "en") -> dict[str, str]:
    """Return the problem of each setting by its name; conflicts between settings have an empty name."""
    access.check_operator()
    problems: dict[str, str] = {}
    base, call = access.manager.workspace_path, _find_call(access)
    file = find_file(base).name
    for name, draft in drafts.items():
        try:
            try_settings(base, {name: read_draft(name, draft)}, **call)
        except ConfigError as error:
            problems[name] = describe_error(error, language).removeprefix(f"{file}: ")
    try:
        try_settings(base, {name: read_draft(name, draft) for name, draft in drafts.items()}, **call)
    except ConfigError as error:
        why = describe_error(error, language).removeprefix(f"{file}: ")
        return {"": why} if why not in problems.values() and len(drafts) > 1 else problems
    return {}  # Together they are valid: one needs the other.


def list_changes(access: Access, drafts: Mapping[str, Draft]) -> list[tuple[str, str, str]]:
    """Return the settings that a draft of the preset changes besides: name, value now, value then."""
    base, call = access.manager.workspace_path, _find_call(access)
    typed = {name: read_draft(name, draft) for name, draft in drafts.items()}
    now, then = (
        {row.name: row.share or write_value(row.value) for row in explain(try_settings(base, values, **call))}
        for values in ({}, typed)
    )
    return [(name, now[name], then[name]) for name in now if name not in drafts and now[name] != then[name]]


def save_drafts(access: Access, drafts: Mapping[str, Draft]) -> str:
    """Save the drafts and apply them at once; return the name of the file."""
    access.check_operator()
    if fixed := FIXED & drafts.keys():
        raise ConfigError(
            "{names} cannot be changed while refold runs; set it in the file and restart", names=", ".join(fixed)
        )
    manager, call = access.manager, _find_call(access)
    typed = {name: read_draft(name, draft) for name, draft in drafts.items()}
    tried = {row.name: row.value for row in explain(try_settings(manager.workspace_path, typed, **call))}
    # Written as the schema reads it: 75% becomes 0.75.
    changes = {name: None if value is None else tried.get(name, value) for name, value in typed.items()}
    config = save_settings(manager.workspace_path, changes, **call)
    manager.compression_folder.release_config(changes)
    manager.adopt(settle_arrival(config, is_on=access.application.settings.arrival))
    return find_file(manager.workspace_path).name


def read_draft(name: str, draft: Draft) -> object:
    """Return a draft as the schema takes it; an empty draft removes the setting from the file."""
    if draft is None or isinstance(draft, bool):
        return draft
    typed = draft.strip() if name != "fold.prompt" else draft.strip("\n")
    if not typed.strip():
        return None
    if len(typed) > TEXT_CHARS_MAX:
        raise ConfigError("{name} has more than {most:,} characters; shorten it", name=name, most=TEXT_CHARS_MAX)
    if name in ("ladder", "score.keywords"):
        return [piece.strip() for piece in typed.replace("，", ",").split(",") if piece.strip()]
    if name == "window" and ":" in typed:  # A table such as ``gpt-5: 200000, *: 64000``.
        pieces = [piece.rpartition(":") for piece in typed.strip("{} ").replace("\n", ",").split(",") if piece.strip()]
        return {model.strip(" '\""): tokens.strip(" '\"") for model, _, tokens in pieces}
    return typed


def write_value(value: object) -> str:
    """Return a value as a user would type it."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{model}: {tokens}" for model, tokens in value.items())
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def find_kind(row: Row) -> tuple[str, tuple[str, ...]]:
    """Return how a setting is entered (switch, choice, lines or text), and its choices."""
    if row.name == "preset":
        return "choice", tuple(PRESETS)
    if row.name == "fold.prompt":
        return "lines", ()
    is_union = get_origin(row.hint) in (Union, types.UnionType)
    options = [one for one in (get_args(row.hint) if is_union else (row.hint,)) if one is not type(None)]
    if len(options) == 1 and get_origin(options[0]) is Literal:
        return "choice", tuple(map(str, get_args(options[0])))
    return ("switch", ()) if options == [bool] else ("text", ())


def _find_call(access: Access) -> dict[str, object]:
    """Return the preset that was named on the command line of ``refold serve``, if there is one."""
    config = access.manager.config
    source = config.source("preset")
    return {"preset": config.preset_name} if source is not None and source.layer == "call" and source.place else {}


async def show() -> None:
    source = find_visit().source
    settings = await source.run(read_settings)
    file = await source.run(lambda access: find_file(access.manager.workspace_path).name)
    tenant = source.access.tenant
    with frame("settings"):
        heading(say("settings.title"))
        intro = say("settings.read_only", tenant=tenant) if tenant else say("settings.intro", file=file)
        text("p", intro, "soft below-head")
        SettingsTab(settings, is_locked=bool(tenant))


class SettingsTab:
    """The settings in one tab: unsaved drafts and their problems."""

    def __init__(self, settings: dict[str, Setting], *, is_locked: bool) -> None:
        self.source = find_visit().source
        self.is_locked = is_locked
        self.is_saving = False
        self.is_rest_drawn = False
        self.preset_changes: ui.element
        self.box = ui.element("div")
        self._draw(settings)

    def _draw(self, settings: dict[str, Setting]) -> None:
        self.settings = settings
        self.drafts: dict[str, Draft] = {}
        self.fields: dict[str, Field] = {}
        self.box.clear()
        with self.box:
            self._draw_all()

    def _draw_all(self) -> None:
        settings = self.settings
        with ui.element("div").classes("settings"):
            for group, names in GROUPS.items():
                with ui.element("section").classes("panel group"):
                    heading(say(f"settings.group_{group}"), 2)
                    if group == "summary" and (missing := self._find_missing()):
                        text("p", missing, "soft note")
                    for name in names:
                        self._draw_field(find_row(settings, name), name)
            self._draw_rest()
        self._draw_bar()

    def _find_missing(self) -> str:
        """Return which setting a model would need to write the summaries behind this gateway."""
        application = self.source.application
        missing = find_missing_switch(application.manager.config, application.settings)
        return tr(missing, find_visit().language) if missing else ""

    def _draw_field(self, setting: Setting, title: str = "") -> None:
        self.fields[setting.name] = Field(self, setting, title)

    def _draw_rest(self) -> None:
        rest = [one for name, one in self.settings.items() if name not in self.fields]
        with ui.element("details").classes("panel group rest") as made:
            with ui.element("summary"):
                text("span", say("settings.group_rest"), "rest-title")
                text("span", say("settings.rest_hint", count=len(rest)), "faint")
            body = ui.element("div").classes("rest-body")

        def draw() -> None:
            self.is_rest_drawn = True
            with body:
                for setting in rest:
                    self._draw_field(setting)

        if self.is_rest_drawn:  # Its fields were in use before the page was drawn again.
            made.props["open"] = True
            draw()
        else:  # About seventy fields, so they are drawn only when opened.
            made.on("toggle", guarded(lambda: None if self.is_rest_drawn else draw()), args=[])

    def _draw_bar(self) -> None:
        with ui.element("div").classes("save-bar").props("role=status") as self.bar:
            self.problem = text("p", "", "save-problem")
            self.count = text("span", "", "save-count")
            button(say("settings.discard"), lambda: go(page_link("/settings")), kind="quiet")
            self.save = button(say("settings.save"), self._save, kind="primary")
        self.bar.set_visibility(False)

    async def change(self, name: str, draft: Draft) -> None:
        """Take a draft, try it together with the others, and show the problems."""
        setting = self.settings[name]
        typed = setting.value if isinstance(setting.value, bool) else setting.typed
        if draft == typed:
            self.drafts.pop(name, None)
        else:
            self.drafts[name] = draft
        await self._try()

    async def _try(self) -> None:
        tried = dict(self.drafts)
        problems = await self.source.run(try_drafts, tried, find_visit().language) if tried else {}
        is_preset = "preset" in tried and not problems
        changes = await self.source.run(list_changes, tried) if is_preset else []
        if tried != self.drafts:
            return  # The user typed on; a later call tries the new text.
        for one in self.fields.values():
            one.tell(self.drafts.get(one.setting.name), problems.get(one.setting.name, ""), one.setting.name in tried)
        self.preset_changes.clear()
        if is_preset:
            self._draw_changes(str(tried["preset"]), changes)
        together = problems.get("", "")
        self.problem.text = say("settings.together", why=together) if together else ""
        self.problem.set_visibility(bool(together))
        self.count.text = say("settings.change" if len(tried) == 1 else "settings.changes", count=len(tried))
        set_prop(self.save, "disabled", bool(problems))
        self.bar.set_visibility(bool(tried))

    def _draw_changes(self, preset: str, changes: list[tuple[str, str, str]]) -> None:
        """Show below the presets what the chosen one changes."""
        unset = say("settings.unset")
        with self.preset_changes:
            key = "settings.preset_changes" if changes else "settings.preset_same"
            text("p", say(key, name=clean(preset), count=len(changes)), "soft")
            with ui.element("ul").classes("preset-changes"):
                for name, before, after in changes:
                    with ui.element("li"):
                        text("span", name, "mono")
                        text("span", f" {clean(before)[:80] or unset} → {clean(after)[:80] or unset}")

    async def _save(self) -> None:
        if self.is_saving:  # Pressed twice.
            return
        self.is_saving = True
        saved = dict(self.drafts)
        try:
            file = await self.source.run(save_drafts, saved)
            settings = await self.source.run(read_settings)
        finally:
            self.is_saving = False
        notify(say("settings.saved", file=file))
        if self.drafts == saved:
            self._draw(settings)  # Loading the page again would take the notification away.
            return
        # The user typed on meanwhile: the fields stay, with what is not saved yet.
        self.settings = settings
        for field in self.fields.values():
            field.setting = settings[field.setting.name]
        self.drafts = {name: draft for name, draft in self.drafts.items() if name not in saved or saved[name] != draft}
        await self._try()


class Field:
    """One setting on the page. ``title`` is the name it is listed under; empty in the list of all others."""

    def __init__(self, tab: SettingsTab, setting: Setting, title: str = "") -> None:
        self.tab, self.setting = tab, setting
        name = setting.name
        self.is_locked = tab.is_locked or setting.is_locked
        with ui.element("div").classes("setting" if setting.kind != "lines" else "setting tall-setting") as self.row:
            self.row.props["data-setting"] = name
            with ui.element("div").classes("setting-words"):
                label = text("label", say(f"settings.name_{title}") if title else name)
                label.classes("setting-name" if title else "setting-name mono")
                if title:
                    text("span", name, "mono faint setting-key")
                means = _describe(setting)
                if means:
                    about = text("p", means, "soft setting-means")
            with ui.element("div").classes("setting-entry"):
                self.entry = self._draw_entry()
                label.props["for"] = self.entry.html_id
                if means:
                    self.entry.props["aria-describedby"] = about.html_id
                self.error = text("p", "", "setting-error").props("role=alert")
                self.error.set_visibility(False)
                if setting.is_locked and not tab.is_locked:
                    by = {"environment": "environment", "call": "call", "session": "call"}.get(setting.layer, "start")
                    text("p", say(f"settings.locked_{by}", place=setting.place), "faint")
                with ui.element("div").classes("row setting-source"):
                    self.source = text("span", _tell_source(setting), "faint cut")
                    self.reset = button(say("settings.reset"), lambda: self._change_to(None), kind="quiet small")
                    self.reset.props["aria-label"] = say("settings.reset_hint", name=name)
                    self.reset.set_visibility(setting.can_reset and not self.is_locked)

    def _draw_entry(self) -> ui.element:
        setting = self.setting
        if setting.kind == "switch":
            return self._draw_switch()
        if setting.name == "preset":
            return self._draw_presets()
        if setting.kind == "choice":
            options = {one: one or say("settings.unset") for one in ("", *setting.choices)}
            listed = choice(options, setting.typed, self._change_to)
            listed.props["disabled"] = self.is_locked
            return listed
        # An attribute or content, not a value, which every update of the page would reset while the user types.
        if setting.kind == "lines":
            made: ui.element = text("textarea", setting.typed, "input prompt")
        else:
            made = ui.element("input").classes("input")
            made.props["^value"] = setting.typed
        made.props["placeholder"] = setting.instead or say("settings.unset")
        made.props.update({"disabled": self.is_locked, "spellcheck": "false", "autocomplete": "off"})
        take = guarded(self._take)
        made.on("input", take, js_handler="(e) => emit(e.target.value)", throttle=TYPING_S, leading_events=False)
        # At once when the field is left, so that a click on "Save" right after typing saves all that was typed.
        made.on("change", take, js_handler="(e) => emit(e.target.value)")
        return made

    def _draw_switch(self) -> ui.element:
        made = ui.element("button").classes("toggle").props("type=button role=switch")
        made.props.update({"aria-checked": str(bool(self.setting.value)).lower(), "disabled": self.is_locked})
        made.on(
            "click",
            guarded(self._take),
            js_handler="(e) => emit(e.currentTarget.getAttribute('aria-checked') !== 'true')",
        )
        return made

    def _draw_presets(self) -> ui.element:
        with ui.element("div").classes("presets").props("role=radiogroup") as made:
            for name in self.setting.choices:
                with ui.element("label").classes("preset"):
                    dot = ui.element("input").props("type=radio name=preset")
                    dot.props.update({"value": name, "checked": name == self.setting.value, "disabled": self.is_locked})
                    dot.on("change", guarded(self._take), js_handler="(e) => emit(e.target.value)")
                    with ui.element("span").classes("preset-words"):
                        text("span", name, "preset-name")
                        text("span", _make_sentence(PRESETS[name]), "soft")
        self.tab.preset_changes = ui.element("div").props("aria-live=polite")
        return made

    async def _take(self, event: Any) -> None:
        typed = event.args if isinstance(event.args, bool) else str(event.args or "")
        if self.setting.kind == "switch":
            self.entry.props["aria-checked"] = str(bool(typed)).lower()
        await self._change_to(typed)

    async def _change_to(self, draft: Draft) -> None:
        await self.tab.change(self.setting.name, draft)

    def tell(self, draft: Draft, problem: str, is_changed: bool) -> None:
        """Show whether it was changed, and the problem of the change."""
        self.error.text = problem
        self.error.set_visibility(bool(problem))
        self.row.classes(remove="changed wrong", add=f"{'changed' if is_changed else ''} {'wrong' if problem else ''}")
        state = say("settings.will_reset") if draft is None else say("settings.changed")
        self.source.text = state if is_changed else _tell_source(self.setting)


def _describe(setting: Setting) -> str:
    """Return what a setting is for: in the page's own words, else in those of the schema."""
    key = f"settings.means_{setting.name}"
    return say(key) if has_words(key) else _make_sentence(setting.means)


def _make_sentence(words: str) -> str:
    """Return words of the schema as a sentence in the reader's language."""
    language = find_visit().language
    said = tr(words, language)
    return f"{said[:1].upper()}{said[1:]}{'。' if language == 'zh' else '.'}" if said else ""


def _tell_source(setting: Setting) -> str:
    # Without this, the default preset would name itself as its source.
    layer = "built_in" if (setting.name, setting.layer) == ("preset", "preset") else setting.layer.replace(" ", "_")
    place = tr(setting.place, find_visit().language).rsplit("/", 1 if layer == "project" else 0)[-1]
    return say(f"settings.from_{layer}", place=place)
