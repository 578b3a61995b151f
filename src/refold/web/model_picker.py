"""Which model answers in a chat: the list, why this one, and a warning where a session is too large for its window.

``name`` is the chosen model, empty while there is none. Looking for models may ask Ollama on this machine, so it is
done when the box is drawn and when somebody asks for it, never by a timer.
"""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from refold.errors import ConfigError
from refold.server.api.interface import Access
from refold.web.markup import clean
from refold.web.models import Offer, choose, find_window, list_offer
from refold.web.shell import button, guarded, set_prop, set_text, sheet, text
from refold.web.visit import find_visit, say

OTHER = "\x00other"


class ModelPicker:
    """The picker of one tab; ``on_change`` is called whenever there is another model, or none."""

    def __init__(self, session_id: str, on_change: Callable[[], None]) -> None:
        self.source = find_visit().source
        self.session_id, self.on_change = session_id, on_change
        self.name = ""
        self._offer = Offer()
        self._is_by_choice = False
        self._window = self._tokens = 0

    def draw_list(self) -> None:
        """Draw the list itself."""
        self.list = ui.element("select").classes("picker")
        self.list._props["aria-label"] = say("chat.model")
        self.list.on("change", guarded(self._pick), js_handler="(e) => emit(e.target.value)")
        self.list.set_visibility(False)

    def draw_words(self) -> None:
        """Draw what is to be said about the model."""
        self.why = text("p", say("chat.looking"), "faint why")
        self.warning = text("p", "", "warning")
        self.warning.set_visibility(False)
        self.again = button(say("chat.again"), self.look, kind="small")
        self.again.set_visibility(False)

    def enable(self, is_on: bool) -> None:
        """Let another model be chosen, or not."""
        set_prop(self.list, "disabled", not is_on)

    def show_tokens(self, tokens: int) -> None:
        """Take in how much is in view: a window that is too small for it is told before anything is sent."""
        self._tokens = tokens
        self._draw_warning()

    async def look(self) -> None:
        """Find out what there is to talk to."""
        self._offer = await self.source.run(_find_offer, self.session_id)
        await self._take(self._offer.chosen, is_by_choice=False)

    async def _take(self, name: str, *, is_by_choice: bool) -> None:
        self._window = await self.source.run(find_window, name) if name else 0
        self.name, self._is_by_choice = name, is_by_choice
        self._draw()
        self.on_change()

    def _draw(self) -> None:
        self._draw_options()
        self.list.set_visibility(bool(self.name))
        set_text(self.why, self._tell_why())
        problem = bool(self._offer.problem)
        self.why.classes(remove="faint problem", add="problem" if problem else "faint")
        self.again.set_visibility(problem)
        self._draw_warning()

    def _draw_options(self) -> None:
        self.list.clear()
        with self.list:
            for name in dict.fromkeys((*self._offer.names, self.name)):
                if name and clean(name) == name:
                    option = text("option", name)
                    option._props["value"] = name
                    option._props["selected"] = name == self.name
            text("option", say("chat.other_model"))._props["value"] = OTHER

    def _draw_warning(self) -> None:
        is_small = 0 < self._window < self._tokens
        told = say("chat.squeeze", tokens=self._tokens, window=self._window, model=self.name) if is_small else ""
        set_text(self.warning, told)
        self.warning.set_visibility(is_small)

    def _tell_why(self) -> str:
        offer = self._offer
        if offer.problem:
            return say("chat.no_named", model=offer.wanted, why=offer.problem) if offer.wanted else say("chat.no_model")
        kind = offer.kind if self.name == offer.chosen and not self._is_by_choice else "choice"
        if self.name == offer.local:
            kind = "local"
        return say(f"chat.by_{kind}", model=self.name)

    async def _pick(self, event: object) -> None:
        name = str(getattr(event, "args", "") or "")
        if name == OTHER:
            self._ask_other()
            return
        await self._use(name)

    async def _use(self, name: str) -> None:
        try:
            await self.source.run(choose, name)
        except ConfigError:
            self._draw_options()
            raise
        await self._take(name, is_by_choice=name != self._offer.chosen)

    def _ask_other(self) -> None:
        self._draw_options()  # The list shows the model in use again, whatever becomes of this.
        with sheet(say("chat.other_title")) as dialog:
            text("p", say("chat.other_why"), "soft")
            with ui.element("label").classes("field"):
                text("span", say("chat.model"))
                field = ui.element("input").classes("input").props("maxlength=200 autofocus")

            async def use(event: object) -> None:
                name = str(getattr(event, "args", "") or "").strip()
                if name:
                    dialog.close()
                    await self._use(name)

            reading = f"document.getElementById('{field.html_id}').value"
            field.on("keydown.enter", guarded(use), js_handler=f"() => emit({reading})")
            with ui.element("div").classes("sheet-end"):
                button(say("shell.cancel"), dialog.close, kind="quiet")
                button(say("chat.use"), kind="primary").on("click", guarded(use), js_handler=f"() => emit({reading})")
        dialog.open()


def _find_offer(access: Access, session_id: str) -> Offer:
    row = access.ledger.read_session(session_id)
    return list_offer(access, row.model if row is not None else "")
