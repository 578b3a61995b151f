"""Settings: the switch, the preset, thresholds, models and prompts, each with what it is for and where it comes from.

What is typed is tried as it is typed; nothing is written before somebody saves. The operator's alone; a tenant reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from refold.web.links import page_link
from refold.web.settings import (
    GROUPS,
    LOCKED,
    Draft,
    Setting,
    Sheet,
    read_sheet,
    save_drafts,
    try_drafts,
)
from refold.web.shell import button, frame, go, guarded, heading, notify, text
from refold.web.visit import find_visit, say

TYPING_S = 0.25


async def show() -> None:
    """Draw the settings."""
    source = find_visit().source
    sheet = await source.run(read_sheet)
    tenant = source.access.tenant
    with frame("settings"):
        heading(say("settings.title"))
        intro = say("settings.read_only", tenant=tenant) if tenant else say("settings.intro", file=sheet.file)
        text("p", intro, "soft below-head")
        SettingsTab(sheet, is_locked=bool(tenant))


class SettingsTab:
    """One tab on the settings: what was typed and not saved, and what is wrong with it."""

    def __init__(self, sheet: Sheet, *, is_locked: bool) -> None:
        self.source = find_visit().source
        self.sheet = sheet
        self.is_locked = is_locked
        self.drafts: dict[str, Draft] = {}
        self.fields: dict[str, Field] = {}
        with ui.element("div").classes("settings"):
            for group, names in GROUPS.items():
                with ui.element("section").classes("panel group"):
                    heading(say(f"settings.group_{group}"), 2)
                    for name in names:
                        self._draw_field(sheet.find(name), name)
            self._draw_rest()
        self._draw_bar()

    def _draw_field(self, setting: Setting, title: str = "") -> None:
        self.fields[setting.name] = Field(self, setting, title)

    def _draw_rest(self) -> None:
        rest = [one for name, one in self.sheet.settings.items() if name not in self.fields]
        with ui.element("details").classes("panel group rest") as made:
            with ui.element("summary"):
                text("span", say("settings.group_rest"), "rest-title")
                text("span", say("settings.rest_hint", count=len(rest)), "faint")
            body = ui.element("div").classes("rest-body")
        drawn: list[bool] = []

        def draw() -> None:
            if not drawn:  # Seventy fields are drawn when somebody looks at them.
                drawn.append(True)
                with body:
                    for setting in rest:
                        self._draw_field(setting)

        made.on("toggle", guarded(draw), args=[])

    def _draw_bar(self) -> None:
        with ui.element("div").classes("save-bar").props("role=status") as self.bar:
            self.problem = text("p", "", "save-problem")
            self.count = text("span", "", "save-count")
            button(say("settings.discard"), lambda: go(page_link("/settings")), kind="quiet")
            self.save = button(say("settings.save"), self._save, kind="primary")
        self.bar.set_visibility(False)

    async def change(self, name: str, draft: Draft) -> None:
        """Take what was typed, try it together with the rest, and say what is wrong."""
        setting = self.sheet.settings[name]
        typed = setting.value if isinstance(setting.value, bool) else setting.typed
        if draft == typed:
            self.drafts.pop(name, None)
        else:
            self.drafts[name] = draft
        tried = dict(self.drafts)
        problems = await self.source.run(try_drafts, tried) if tried else {}
        if tried != self.drafts:
            return  # More was typed meanwhile; that is being tried now.
        for one in self.fields.values():
            one.tell(self.drafts.get(one.setting.name), problems.get(one.setting.name, ""), one.setting.name in tried)
        together = problems.get("", "")
        _write(self.problem, say("settings.together", why=together) if together else "")
        self.problem.set_visibility(bool(together))
        _write(self.count, say("settings.changes", count=len(tried)))
        self.save._props["disabled"] = bool(problems)
        self.save.update()
        self.bar.set_visibility(bool(tried))

    async def _save(self) -> None:
        file = await self.source.run(save_drafts, dict(self.drafts))
        notify(say("settings.saved", file=file))
        ui.timer(0.9, lambda: go(page_link("/settings")), once=True)


class Field:
    """One setting on the page. ``title`` is the setting that people look for; empty in the list of all others."""

    def __init__(self, tab: SettingsTab, setting: Setting, title: str = "") -> None:
        self.tab, self.setting = tab, setting
        name = setting.name
        self.is_locked = tab.is_locked or setting.is_locked
        with ui.element("div").classes("setting" if setting.kind != "lines" else "setting tall-setting") as self.row:
            self.row._props["data-setting"] = name
            with ui.element("div").classes("setting-words"):
                label = text("label", say(f"settings.name_{title}") if title else name)
                label.classes("setting-name" if title else "setting-name mono")
                if title:
                    text("span", name, "mono faint setting-key")
                means = say(f"settings.means_{name}") if title else setting.means
                if means:
                    about = text("p", means, "soft setting-means")
            with ui.element("div").classes("setting-entry"):
                self.entry = self._draw_entry()
                label._props["for"] = self.entry.html_id
                if means:
                    self.entry._props["aria-describedby"] = about.html_id
                self.error = text("p", "", "setting-error").props("role=alert")
                self.error.set_visibility(False)
                if setting.is_locked and not tab.is_locked:
                    text("p", say(f"settings.locked_{_lock_of(setting)}", place=setting.place), "faint")
                with ui.element("div").classes("row setting-source"):
                    self.source = text("span", _tell_source(setting), "faint cut")
                    self.reset = button(say("settings.reset"), self._reset, kind="quiet small")
                    self.reset._props["aria-label"] = say("settings.reset_hint", name=name)
                    self.reset.set_visibility(setting.can_reset and not self.is_locked)

    def _draw_entry(self) -> ui.element:
        setting = self.setting
        if setting.kind == "switch":
            return self._draw_switch()
        if setting.name == "preset":
            return self._draw_presets()
        if setting.kind == "choice":
            return self._draw_choice()
        tag = "textarea" if setting.kind == "lines" else "input"
        made = ui.element(tag).classes("input" if tag == "input" else "input prompt")
        # As an attribute, or its content: a value would be put back with every change on the page while somebody types.
        if tag == "input":
            made._props["^value"] = setting.typed
        else:
            made._text = setting.typed
        made._props["placeholder"] = setting.instead or say("settings.unset")
        made._props.update({"disabled": self.is_locked, "spellcheck": "false", "autocomplete": "off"})
        made.on("input", self._take, js_handler="(e) => emit(e.target.value)", throttle=TYPING_S, leading_events=False)
        return made

    def _draw_switch(self) -> ui.element:
        made = ui.element("button").classes("toggle").props("type=button role=switch")
        made._props.update({"aria-checked": _word(bool(self.setting.value)), "disabled": self.is_locked})
        made.on("click", self._take, js_handler="(e) => emit(e.currentTarget.getAttribute('aria-checked') !== 'true')")
        return made

    def _draw_choice(self) -> ui.element:
        with ui.element("select").classes("input") as made:
            given = self.setting.typed
            for one in dict.fromkeys(("", *self.setting.choices)):
                option = text("option", one or say("settings.unset"))
                option._props.update({"value": one, "selected": one == given})
        made._props["disabled"] = self.is_locked
        made.on("change", self._take, js_handler="(e) => emit(e.target.value)")
        return made

    def _draw_presets(self) -> ui.element:
        self.presets: dict[str, ui.element] = {}
        with ui.element("div").classes("presets").props("role=radiogroup") as made:
            for name in self.setting.choices:
                with ui.element("label").classes("preset"):
                    dot = ui.element("input").props("type=radio name=preset")
                    dot._props.update(
                        {"value": name, "checked": name == self.setting.value, "disabled": self.is_locked}
                    )
                    dot.on("change", self._take, js_handler="(e) => emit(e.target.value)")
                    with ui.element("span").classes("preset-words"):
                        text("span", name, "preset-name")
                        text("span", say(f"settings.preset_{name}"), "soft")
                self.presets[name] = dot
        return made

    async def _take(self, event: Any) -> None:
        typed = event.args if isinstance(event.args, bool) else str(event.args or "")
        if self.setting.kind == "switch":
            self.entry._props["aria-checked"] = _word(bool(typed))
            self.entry.update()
        await guarded(self._change_to(typed))()

    async def _reset(self) -> None:
        await self.tab.change(self.setting.name, None)

    def _change_to(self, draft: Draft) -> Callable[[], Any]:
        return lambda: self.tab.change(self.setting.name, draft)

    def tell(self, draft: Draft, problem: str, is_changed: bool) -> None:
        """Say whether it was changed, and what is wrong with that."""
        _write(self.error, problem)
        self.error.set_visibility(bool(problem))
        self.row.classes(remove="changed wrong", add=f"{'changed' if is_changed else ''} {'wrong' if problem else ''}")
        told = say("settings.will_reset") if draft is None else say("settings.changed")
        _write(self.source, told if is_changed else _tell_source(self.setting))


def _tell_source(setting: Setting) -> str:
    layer = setting.layer.replace(" ", "_")
    place = setting.place.rsplit("/", 1)[-1] if layer == "project" else setting.place
    return say(f"settings.from_{layer}", place=place)


def _lock_of(setting: Setting) -> str:
    if setting.layer == "environment":
        return "environment"
    return "start" if setting.layer not in LOCKED else "call"


def _word(is_on: bool) -> str:
    return "true" if is_on else "false"


def _write(element: ui.element, content: str) -> None:
    if element._text != content:
        element._text = content
        element.update()
