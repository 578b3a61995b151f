"""Compress now: instructions if somebody has any, a preview of what would go and what stays, and the deed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from refold.web.context import Preview, StageWish, compress, preview
from refold.web.shell import button, heading, notify, sheet, text
from refold.web.visit import find_visit, say, say_reason

GOES_SHOWN = 8


class CompressSheet:
    """The dialog of one tab."""

    def __init__(self, name: str, on_running: Callable[[bool], None], on_done: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self.source = find_visit().source
        self.on_running, self.on_done = on_running, on_done
        self.instructions = ""
        with sheet(say("session.compress_title")) as self.dialog:
            text("p", say("session.compress_why"), "soft")
            with ui.element("label").classes("field"):
                text("span", say("session.instructions"))
                field = ui.element("textarea").classes("input").props("rows=2 maxlength=4000")
                field._props["placeholder"] = say("session.instructions_hint")
                field.on("input", self._take, js_handler="(e) => emit(e.target.value)", throttle=0.1)
            self.result = ui.element("div").classes("preview").props("aria-live=polite")
            with ui.element("div").classes("sheet-end"):
                button(say("shell.cancel"), self.dialog.close, kind="quiet")
                self.look = button(say("session.preview"), self._preview)
                self.go = button(say("session.compress"), self._compress, kind="primary", icon_name="compress")

    def _take(self, event: object) -> None:
        args = getattr(event, "args", "")
        self.instructions = args[:4_000] if isinstance(args, str) else ""

    def open(self) -> None:
        """Show the dialog, its last preview gone."""
        self.result.clear()
        self.dialog.open()

    async def _preview(self) -> None:
        self._say(say("session.preview_running"))
        self._enable(False)
        try:
            found = await self.source.run(preview, self.name, self.instructions)
        except BaseException:
            self.result.clear()
            raise
        finally:
            self._enable(True)
        self.result.clear()
        with self.result:
            draw_preview(found)

    async def _compress(self) -> None:
        self.dialog.close()
        self.on_running(True)
        try:
            result = await self.source.run(compress, self.name, self.instructions)
        finally:
            self.on_running(False)
        await self.on_done()
        if result.freed_tokens > 0 or result.stages:
            notify(say("session.done", before=result.previous_tokens, after=result.current_tokens))
        else:
            notify(say("session.not_done", why=say_reason(result.reason)))

    def _say(self, words: str) -> None:
        self.result.clear()
        with self.result:
            text("p", words, "faint")

    def _enable(self, is_on: bool) -> None:
        for one in (self.look, self.go):
            one.props("" if is_on else "disabled", remove="disabled" if is_on else "")


def draw_preview(found: Preview) -> None:
    """Draw what a compression would do."""
    if found.is_nothing:
        text("p", say("session.preview_nothing", why=say_reason(found.reason)))
        return
    freed = found.before - found.after
    text(
        "p", say("session.preview_figures", before=found.before, after=found.after, freed=freed), "num preview-figures"
    )
    with ui.element("div").classes("gauge-track thin").props("aria-hidden=true"):
        ui.element("span").classes("part part-user").style(f"width:{found.after / max(1, found.before):.2%}")
    heading(say("session.preview_goes"), 3)
    for stage in found.stages:
        _draw_stage(stage)
    heading(say("session.preview_stays"), 3)
    text("p", say("session.preview_stays_count", count=found.stays))


def _draw_stage(stage: StageWish) -> None:
    name = say(f"session.talk_stage_{stage.stage}")
    with ui.element("details").classes("goes"):
        text("summary", say("session.preview_stage", stage=name, count=stage.count, freed=stage.freed), "num")
        with ui.element("ul").classes("goes-list"):
            for going in stage.goes[:GOES_SHOWN]:
                with ui.element("li"):
                    text("span", say(f"session.talk_by_{going.speaker}"), "faint")
                    text("span", going.words, "cut")
                    text("span", f"{going.tokens:,}", "num faint")
            if stage.count > GOES_SHOWN:
                text("li", say("session.preview_more", count=stage.count - GOES_SHOWN), "faint")
