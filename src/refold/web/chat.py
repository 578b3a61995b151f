"""The chat box at the end of a session: the answer being written, a field to type in, the model picker, a stop button.

``ChatBox(name, on_stored)`` draws it; ``on_stored`` is awaited whenever a run has stored messages, so
that the view above catches up before the box clears them. Every tab of a session shows the same run (``room.py``).
Text of models and tools becomes text nodes, never markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from refold.errors import ConfigError
from refold.server.auth import make_id
from refold.web.room import (
    SYSTEM,
    ChatRoom,
    LiveCall,
    Offer,
    choose,
    find_rooms,
    find_window,
    list_offer,
    read_chat_block,
)
from refold.web.shell import ask_text, button, guarded, icon, set_prop, text, to_script
from refold.web.visit import clean, explain, find_visit, say

SHOWN_CHARS_MAX = 400_000
CALL_CHARS_MAX = 20_000
OTHER = "\x00other"
TICK_S = 0.15
# Enter sends, but not while a Chinese or Japanese word is being composed.
_ON_KEY = (
    "(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.keyCode !== 229) "
    "{ e.preventDefault(); emit(e.target.value); } else if (e.key === 'Escape') { emit(null); } }"
)


class LiveView:
    """The answer being written: redrawn for each step, extended piece by piece within a step."""

    def __init__(self) -> None:
        with ui.element("div").classes("live-frame"):
            self.box = ui.element("div").classes("live").props("aria-live=polite")
        self._step = -1

    def draw(self, room: ChatRoom) -> None:
        """Show what is new since the last call."""
        live = room.live
        if live.step != self._step:
            self._begin(live.step)
        self._add_words(live.pieces)
        self._thought.text = clean(live.thinking)
        self._thinking.set_visibility(bool(live.thinking))
        for call in live.calls:
            self._draw_call(call)
        working = say("chat.optimising") if live.is_compressing else say("chat.writing") if room.is_running else ""
        self._state.text = working
        self._state.set_visibility(bool(working))
        self._note.text = clean(say(live.note[0], **live.note[1])) if live.note else ""
        self._note.set_visibility(live.note is not None)

    def _begin(self, step: int) -> None:
        self._step = step
        self._pieces = self._chars = 0
        self._shown_calls: dict[str, tuple[TextElement, TextElement]] = {}
        self.box.clear()
        with self.box:
            with ui.element("details").classes("call") as self._thinking:
                text("summary", say("chat.thinking"))
                self._thought = text("pre", "")
            self._words = ui.element("div").classes("live-text").props("dir=auto")
            self._calls = ui.element("div").classes("stack live-calls")
            self._state = text("p", "", "faint live-state")
            self._note = text("p", "", "faint")

    def _add_words(self, pieces: list[str]) -> None:
        """Add new text as one more node, so that the cost per word does not grow with the answer."""
        new = clean("".join(pieces[self._pieces :]))[: max(0, SHOWN_CHARS_MAX - self._chars)]
        self._pieces = len(pieces)
        self._chars += len(new)
        if new:
            with self._words:
                text("span", new)

    def _draw_call(self, call: LiveCall) -> None:
        if call.id not in self._shown_calls:
            with self._calls, ui.element("details").classes("call"):
                with ui.element("summary"):
                    icon("tool")
                    text("span", clean(call.name[:200]), "mono")
                    state = text("span", say("chat.call_runs"), "chip")
                text("h3", say("chat.arguments"))
                text("pre", clean(call.arguments[:CALL_CHARS_MAX]))
                text("h3", say("chat.result"))
                result = text("pre", "…")
            self._shown_calls[call.id] = (state, result)
        if call.is_done:
            state, result = self._shown_calls[call.id]
            state.text = say("chat.call_failed") if call.is_error else say("chat.call_done", seconds=call.seconds)
            state.classes(add="bad" if call.is_error else "good")
            result.text = clean(call.text[:CALL_CHARS_MAX])


class ModelPicker:
    """The model picker of one tab: the list, why this model was chosen, and a warning if its window is too small.

    ``name`` is the chosen model; empty if there is none. ``on_change`` is called whenever it changes. Searching for
    models may query Ollama on this machine, so it happens when the box is drawn and on request, never on a timer.
    """

    def __init__(self, session_id: str, on_change: Callable[[], None]) -> None:
        self.source = find_visit().source
        self.session_id, self.on_change = session_id, on_change
        self.name = ""
        self._offer = Offer()
        self._is_by_choice = False
        self._window = self._tokens = 0

    def draw_list(self) -> None:
        self.list = ui.element("select").classes("picker")
        self.list.props["aria-label"] = say("chat.model")
        self.list.on("change", guarded(self._pick), js_handler="(e) => emit(e.target.value)")
        self.list.set_visibility(False)

    def draw_words(self) -> None:
        self.why = text("p", say("chat.looking"), "faint why")
        self.warning = text("p", "", "warning")
        self.warning.set_visibility(False)
        self.again = button(say("chat.again"), self.look, kind="small")
        self.again.set_visibility(False)

    def enable(self, is_on: bool) -> None:
        set_prop(self.list, "disabled", not is_on)

    def show_tokens(self, tokens: int) -> None:
        """Set the number of tokens in view, so that the user is warned of a small window before sending."""
        self._tokens = tokens
        self._draw_warning()

    async def look(self) -> None:
        self._offer = await self.source.run(list_offer, self.session_id)
        await self._take(self._offer.chosen, is_by_choice=False)

    async def _take(self, name: str, *, is_by_choice: bool) -> None:
        self._window = await self.source.run(find_window, name) if name else 0
        self.name, self._is_by_choice = name, is_by_choice
        self._draw()
        self.on_change()

    def _draw(self) -> None:
        self._draw_options()
        self.list.set_visibility(bool(self.name))
        self.why.text = self._tell_why()
        problem = bool(self._offer.problem)
        # A new installation has no model yet: that is no fault.
        kind = "faint" if not problem else "problem" if self._offer.wanted else "problem mild"
        self.why.classes(remove="faint problem mild", add=kind)
        self.again.set_visibility(problem)
        self._draw_warning()

    def _draw_options(self) -> None:
        self.list.clear()
        with self.list:
            for name in dict.fromkeys((*self._offer.names, self.name)):
                if name and clean(name) == name:
                    option = text("option", name)
                    option.props["value"] = name
                    option.props["selected"] = name == self.name
            text("option", say("chat.other_model")).props["value"] = OTHER

    def _draw_warning(self) -> None:
        is_small = 0 < self._window < self._tokens
        warning = say("chat.squeeze", tokens=self._tokens, window=self._window, model=self.name) if is_small else ""
        self.warning.text = warning
        self.warning.set_visibility(is_small)

    def _tell_why(self) -> str:
        offer = self._offer
        if offer.problem:
            return (
                say("chat.no_named", model=offer.wanted, why=explain(offer.problem))
                if offer.wanted
                else say("chat.no_model")
            )
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
        self._draw_options()  # Show the current model again, in case the dialog is cancelled.
        words = (say("chat.other_title"), say("chat.model"), say("chat.use"))
        ask_text(*words, self._use, why=say("chat.other_why"), required=True, maxlength=200)


class ChatBox:
    """The chat of a session in one tab.

    The session may not exist yet; ``on_sent`` is called once a message was accepted.
    """

    def __init__(
        self,
        name: str,
        on_stored: Callable[[], Awaitable[None]] | None = None,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        self.source = find_visit().source
        self.room: ChatRoom = find_rooms(self.source.application).find(make_id(self.source.access.tenant, name))
        self.on_stored, self.on_sent = on_stored, on_sent
        self._sent = ""
        self._seen = (-1, self.room.stored)
        with ui.element("section").classes("chat").props(f'aria-label="{say("shell.chat")}"'):
            self.live = LiveView()
            self._draw_composer()
        self._timer = ui.timer(TICK_S, self._tick)
        ui.timer(0.01, guarded(self.model.look), once=True)

    def _draw_composer(self) -> None:
        self.model = ModelPicker(self.room.session_id, self._draw_state)
        with ui.element("div").classes("composer"):
            self.problem = text("div", "", "problem").props("role=alert")
            with ui.element("div").classes("composer-box"):
                self.field = ui.element("textarea").classes("composer-field").props("rows=1 maxlength=1000000 dir=auto")
                self.field.props.update({"placeholder": say("chat.placeholder"), "aria-label": say("chat.label")})
                self.field.on("keydown", guarded(self._take_key), js_handler=_ON_KEY)
                with ui.element("div").classes("composer-end"):
                    self.model.draw_list()
                    text("span", say("chat.keys"), "faint keys")
                    self.stop = button(say("chat.stop"), self.room.stop, kind="small", icon_name="stop")
                    self.send = button(say("chat.send"), None, kind="primary small", icon_name="send")
                    reading = f"() => emit(document.getElementById('{self.field.html_id}').value)"
                    self.send.on("click", guarded(self._take_key), js_handler=reading)
            self.model.draw_words()
        self._draw_state()

    def _draw_state(self) -> None:
        room, can_talk = self.room, bool(self.model.name)
        self.stop.set_visibility(room.is_running)
        self.send.set_visibility(not room.is_running)
        self.problem.set_visibility(bool(room.problem))
        self.problem.text = say("chat.failed", why=explain(room.problem, 1_000)) if room.problem else ""
        for element in (self.field, self.send):
            set_prop(element, "disabled", not can_talk)
        self.model.enable(not room.is_running)

    async def _take_key(self, event: object) -> None:
        """Send the text of the field; Escape stops the answer instead."""
        said = getattr(event, "args", None)
        if said is None:
            await self.room.stop()
        else:
            await self._say(str(said))

    async def _say(self, prompt: str) -> None:
        if not prompt.strip() or not self.model.name or self.room.is_running:
            return
        chosen = await self.source.run(choose, self.model.name)
        system = (await self.source.run(read_chat_block)).get("system", "") or SYSTEM
        self.room.start(self.source.access.manager, chosen, prompt, system)
        self._sent = prompt
        ui.run_javascript(f"document.getElementById('{self.field.html_id}').value = ''")
        self._draw_state()
        if self.on_sent is not None and await self.room.wait_stored() and not self.room.refused:
            self.on_sent()

    async def _tick(self) -> None:
        room = self.room
        version, stored = self._seen
        if version == room.version:
            return
        now = room.stored
        if stored != now and self.on_stored is not None:
            await self.on_stored()  # First, so that no text disappears in between.
        if room.stored != now:
            return  # More was stored meanwhile: the view shows that too before anything is cleared.
        self.live.draw(room)
        self._seen = (room.version, room.stored)
        self._draw_state()
        # A refused prompt returns to the field of the tab that sent it, unless the field has new text.
        if room.refused and room.refused == self._sent:
            self._sent = ""
            field = f"document.getElementById('{self.field.html_id}')"
            ui.run_javascript(f"if (!{field}.value) {field}.value = {to_script(room.refused)}")
