"""The chat box at the end of a session: what is being said, a field to write in, the model, and a stop button.

``chat_box(name, on_stored)`` draws it; ``on_stored`` (plain or async) is called whenever a run has stored messages, so
that the view above can catch up before the box lets go of them. Every tab of a session shows the same run
(``talking.py``). Text of models and tools becomes text nodes, never markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from refold.agent.choosing import Chosen
from refold.errors import ConfigError
from refold.manager import ContextCompressionManager
from refold.server.identity import make_id
from refold.server.interface import Access
from refold.web.icons import icon
from refold.web.markup import clean
from refold.web.models import Offer, choose, choose_manager, list_offer, measure_squeeze, read_chat_block
from refold.web.shell import button, guarded, sheet, text, to_script
from refold.web.talking import SYSTEM, Live, LiveCall, Room, find_rooms
from refold.web.visit import find_visit, say

Stored = Callable[[], object]
TICK_S = 0.15
SHOWN_CHARS_MAX = 400_000
CALL_CHARS_MAX = 20_000
OTHER = "\x00other"
# Enter sends, but not while a Chinese or Japanese word is being composed.
_ON_KEY = (
    "(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.keyCode !== 229) "
    "{ e.preventDefault(); emit(e.target.value); } else if (e.key === 'Escape') { emit(null); } }"
)


def chat_box(name: str, on_stored: Stored | None = None, *, on_sent: Stored | None = None) -> ChatBox:
    """Draw the chat box of a session that may not be there yet; ``on_sent`` is called once a message was taken."""
    return ChatBox(name, on_stored, on_sent)


class ChatBox:
    """One tab's view of a session's chat."""

    def __init__(self, name: str, on_stored: Stored | None, on_sent: Stored | None) -> None:
        self.source = find_visit().source
        self.room: Room = find_rooms(self.source.application).find(make_id(self.source.access.tenant, name))
        self.on_stored, self.on_sent = on_stored, on_sent
        self.offer = Offer()
        self.model = ""
        self._is_by_choice = False
        self._sent = ""
        self._squeeze: tuple[int, int] | None = None
        self._seen = (-1, self.room.stored, -1, 0)
        self._shown_calls: dict[str, tuple[ui.element, ui.element, ui.element]] = {}
        with ui.element("section").classes("chat").props(f'aria-label="{say("shell.chat")}"'):
            with ui.element("div").classes("live-frame"):
                self.live = ui.element("div").classes("live").props("aria-live=polite")
            self._draw_composer()
        self._timer = ui.timer(TICK_S, self._tick)
        ui.timer(0.01, guarded(self.look), once=True)

    # What is drawn once.

    def _draw_composer(self) -> None:
        with ui.element("div").classes("composer"):
            self.problem = text("div", "", "problem").props("role=alert")
            with ui.element("div").classes("composer-box"):
                self.field = ui.element("textarea").classes("composer-field").props("rows=1 maxlength=1000000")
                self.field._props.update({"placeholder": say("chat.placeholder"), "aria-label": say("chat.label")})
                self.field.on("keydown", guarded(self._take_key), js_handler=_ON_KEY)
                with ui.element("div").classes("composer-end"):
                    self.picker = ui.element("select").classes("picker")
                    self.picker._props["aria-label"] = say("chat.model")
                    self.picker.on("change", guarded(self._pick), js_handler="(e) => emit(e.target.value)")
                    text("span", say("chat.keys"), "faint keys")
                    self.stop = button(say("chat.stop"), self.room.stop, kind="small", icon_name="stop")
                    self.send = button(say("chat.send"), None, kind="primary small", icon_name="send")
                    reading = f"() => emit(document.getElementById('{self.field.html_id}').value)"
                    self.send.on("click", guarded(self._take_text), js_handler=reading)
            self.why = text("p", say("chat.looking"), "faint why")
            self.warning = text("p", "", "warning")
            self.warning.set_visibility(False)
            self.again = button(say("chat.again"), self.look, kind="small")
        self._draw_state()

    def _draw_state(self) -> None:
        """Show what can be done now."""
        room, can_talk = self.room, bool(self.model)
        self.stop.set_visibility(room.is_running)
        self.send.set_visibility(not room.is_running)
        self.picker.set_visibility(can_talk)
        self.again.set_visibility(bool(self.offer.problem))
        self.problem.set_visibility(bool(room.problem))
        _set_text(self.problem, clean(say("chat.failed", why=room.problem)) if room.problem else "")
        for element in (self.field, self.send):
            _set_prop(element, "disabled", not can_talk)
        _set_prop(self.picker, "disabled", room.is_running)

    async def look(self) -> None:
        """Find out what there is to talk to."""
        offer: Offer = await self.source.run(_find_offer, self.room.session_id)
        self.offer, self.model = offer, offer.chosen
        self._is_by_choice = False
        await self._measure()
        self._draw_models()

    async def _measure(self) -> None:
        self._squeeze = await self.source.run(measure_squeeze, self.room.session_id, self.model)

    def _draw_models(self) -> None:
        self.picker.clear()
        with self.picker:
            for name in dict.fromkeys((*self.offer.names, self.model)):
                if name and clean(name) == name:
                    option = text("option", name)
                    option._props["value"] = name
                    option._props["selected"] = name == self.model
            text("option", say("chat.other_model"))._props["value"] = OTHER
        _set_text(self.why, self._tell_why())
        squeeze = self._squeeze
        told = say("chat.squeeze", tokens=squeeze[0], window=squeeze[1], model=self.model) if squeeze else ""
        _set_text(self.warning, told)
        self.warning.set_visibility(bool(told))
        self.why.classes(remove="faint problem", add="problem" if self.offer.problem else "faint")
        self._draw_state()

    def _tell_why(self) -> str:
        offer = self.offer
        if offer.problem:
            return say("chat.no_named", model=offer.wanted, why=offer.problem) if offer.wanted else say("chat.no_model")
        kind = offer.kind if self.model == offer.chosen and not self._is_by_choice else "choice"
        if self.model == offer.local:
            kind = "local"
        return say(f"chat.by_{kind}", model=self.model)

    # What a person does.

    async def _take_key(self, event: object) -> None:
        said = getattr(event, "args", None)
        if said is None:
            await self.room.stop()
        else:
            await self._say(str(said))

    async def _take_text(self, event: object) -> None:
        await self._say(str(getattr(event, "args", "") or ""))

    async def _say(self, prompt: str) -> None:
        if not prompt.strip() or not self.model or self.room.is_running:
            return
        manager, chosen, system = await self.source.run(_choose_all, self.model)
        self.room.start(manager, chosen, prompt, system)
        self._sent = prompt
        ui.run_javascript(f"document.getElementById('{self.field.html_id}').value = ''")
        self._draw_state()
        if self.on_sent is not None and await self.room.wait_stored() and not self.room.refused:
            await _call(self.on_sent)

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
            self._draw_models()
            raise
        self.model, self._is_by_choice = name, name != self.offer.chosen
        await self._measure()
        self._draw_models()

    def _ask_other(self) -> None:
        self._draw_models()  # The list shows the model in use again, whatever becomes of this.
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

    # What a run tells.

    async def _tick(self) -> None:
        room = self.room
        version, stored, step, shown = self._seen
        if version == room.version:
            return
        now = room.stored
        if stored != now and self.on_stored is not None:
            await _call(self.on_stored)  # First, so that nothing said is out of sight in between.
        if room.stored != now:
            return  # More was stored meanwhile: the view catches up with that too before anything is cleared.
        live = room.live
        if step != live.step:
            self.live.clear()
            self._shown_calls.clear()
            shown = 0
        with self.live:
            shown = self._draw_live(live, shown, is_new=step != live.step)
        self._seen = (room.version, room.stored, live.step, shown)
        self._draw_state()
        self._give_back()

    def _give_back(self) -> None:
        """Put what was not taken back into the field of the tab that sent it, unless something new stands there."""
        if self.room.refused and self.room.refused == self._sent:
            self._sent = ""
            field = f"document.getElementById('{self.field.html_id}')"
            ui.run_javascript(f"if (!{field}.value) {field}.value = {to_script(self.room.refused)}")

    def _draw_live(self, live: Live, shown: int, *, is_new: bool) -> int:
        if is_new:
            self._thinking = self._make_thinking()
            self._said = ui.element("div").classes("live-text")
            self._said_chars = 0
            self._calls = ui.element("div").classes("stack live-calls")
            self._state = text("p", "", "faint live-state")
            self._note = text("p", "", "faint")
        if len(live.pieces) > shown:
            new = clean("".join(live.pieces[shown:]))[: max(0, SHOWN_CHARS_MAX - self._said_chars)]
            if new:
                with self._said:
                    text("span", new)
            self._said_chars += len(new)
            shown = len(live.pieces)
        _set_text(self._thinking[1], clean(live.thinking))
        self._thinking[0].set_visibility(bool(live.thinking))
        for call in live.calls:
            self._draw_call(call)
        working = say("chat.optimising") if live.is_compressing else say("chat.writing") if self.room.is_running else ""
        _set_text(self._state, working)
        self._state.set_visibility(bool(working))
        _set_text(self._note, clean(say(live.note[0], **live.note[1])) if live.note else "")
        self._note.set_visibility(live.note is not None)
        return shown

    def _make_thinking(self) -> tuple[ui.element, ui.element]:
        with ui.element("details").classes("call") as made:
            text("summary", say("chat.thinking"))
            words = text("pre", "")
        return made, words

    def _draw_call(self, call: LiveCall) -> None:
        if call.id not in self._shown_calls:
            with self._calls, ui.element("details").classes("call") as made:
                with ui.element("summary"):
                    icon("tool")
                    text("span", clean(call.name[:200]), "mono")
                    state = text("span", say("chat.call_runs"), "chip")
                text("h3", say("chat.arguments"))
                text("pre", clean(call.arguments[:CALL_CHARS_MAX]))
                text("h3", say("chat.result"))
                result = text("pre", "…")
            self._shown_calls[call.id] = (made, state, result)
        _, state, result = self._shown_calls[call.id]
        if call.is_done:
            done = say("chat.call_failed") if call.is_error else say("chat.call_done", seconds=call.seconds)
            _set_text(state, done)
            state.classes(add="bad" if call.is_error else "good")
            _set_text(result, clean(call.text[:CALL_CHARS_MAX]))


def _find_offer(access: Access, session_id: str) -> Offer:
    row = access.ledger.read_session(session_id)
    return list_offer(access, row.model if row is not None else "")


def _choose_all(access: Access, model: str) -> tuple[ContextCompressionManager, Chosen, str]:
    chosen = choose(access, model)
    return choose_manager(access, chosen), chosen, read_chat_block(access).get("system", "") or SYSTEM


async def _call(hook: Stored) -> None:
    answer = hook()
    if isinstance(answer, Awaitable):
        await answer


def _set_text(element: ui.element, content: str) -> None:
    if element._text != content:
        element._text = content
        element.update()


def _set_prop(element: ui.element, name: str, value: bool) -> None:
    if bool(element._props.get(name)) != value:
        element._props[name] = value
        element.update()


__all__ = ["ChatBox", "chat_box"]
