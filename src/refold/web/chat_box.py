"""The chat box at the end of a session: what is being said, a field to write in, the model, and a stop button.

``ChatBox(name, on_stored)`` draws it; ``on_stored`` (plain or async) is called whenever a run has stored messages, so
that the view above can catch up before the box lets go of them. Every tab of a session shows the same run
(``talking.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from refold.agent.models import Chosen
from refold.manager import ContextCompressionManager
from refold.server.api.interface import Access
from refold.server.session_lookup import make_id
from refold.web.live_view import LiveView
from refold.web.markup import clean
from refold.web.model_picker import ModelPicker
from refold.web.models import choose, read_chat_block
from refold.web.shell import button, guarded, set_prop, set_text, text, to_script
from refold.web.talking import SYSTEM, Room, find_rooms
from refold.web.visit import find_visit, say

Stored = Callable[[], object]
TICK_S = 0.15
# Enter sends, but not while a Chinese or Japanese word is being composed.
_ON_KEY = (
    "(e) => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && e.keyCode !== 229) "
    "{ e.preventDefault(); emit(e.target.value); } else if (e.key === 'Escape') { emit(null); } }"
)


class ChatBox:
    """One tab's view of a session's chat.

    The session may not be there yet; ``on_sent`` is called once a message was taken.
    """

    def __init__(self, name: str, on_stored: Stored | None = None, *, on_sent: Stored | None = None) -> None:
        self.source = find_visit().source
        self.room: Room = find_rooms(self.source.application).find(make_id(self.source.access.tenant, name))
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
                self.field._props.update({"placeholder": say("chat.placeholder"), "aria-label": say("chat.label")})
                self.field.on("keydown", guarded(self._take_key), js_handler=_ON_KEY)
                with ui.element("div").classes("composer-end"):
                    self.model.draw_list()
                    text("span", say("chat.keys"), "faint keys")
                    self.stop = button(say("chat.stop"), self.room.stop, kind="small", icon_name="stop")
                    self.send = button(say("chat.send"), None, kind="primary small", icon_name="send")
                    reading = f"() => emit(document.getElementById('{self.field.html_id}').value)"
                    self.send.on("click", guarded(self._take_text), js_handler=reading)
            self.model.draw_words()
        self._draw_state()

    def _draw_state(self) -> None:
        """Show what can be done now."""
        room, can_talk = self.room, bool(self.model.name)
        self.stop.set_visibility(room.is_running)
        self.send.set_visibility(not room.is_running)
        self.problem.set_visibility(bool(room.problem))
        set_text(self.problem, clean(say("chat.failed", why=room.problem)) if room.problem else "")
        for element in (self.field, self.send):
            set_prop(element, "disabled", not can_talk)
        self.model.enable(not room.is_running)

    async def _take_key(self, event: object) -> None:
        said = getattr(event, "args", None)
        if said is None:
            await self.room.stop()
        else:
            await self._say(str(said))

    async def _take_text(self, event: object) -> None:
        await self._say(str(getattr(event, "args", "") or ""))

    async def _say(self, prompt: str) -> None:
        if not prompt.strip() or not self.model.name or self.room.is_running:
            return
        manager, chosen, system = await self.source.run(_choose_all, self.model.name)
        self.room.start(manager, chosen, prompt, system)
        self._sent = prompt
        ui.run_javascript(f"document.getElementById('{self.field.html_id}').value = ''")
        self._draw_state()
        if self.on_sent is not None and await self.room.wait_stored() and not self.room.refused:
            await _call(self.on_sent)

    async def _tick(self) -> None:
        room = self.room
        version, stored = self._seen
        if version == room.version:
            return
        now = room.stored
        if stored != now and self.on_stored is not None:
            await _call(self.on_stored)  # First, so that nothing said is out of sight in between.
        if room.stored != now:
            return  # More was stored meanwhile: the view catches up with that too before anything is cleared.
        self.live.draw(room)
        self._seen = (room.version, room.stored)
        self._draw_state()
        self._give_back()

    def _give_back(self) -> None:
        """Put what was not taken back into the field of the tab that sent it, unless something new stands there."""
        if self.room.refused and self.room.refused == self._sent:
            self._sent = ""
            field = f"document.getElementById('{self.field.html_id}')"
            ui.run_javascript(f"if (!{field}.value) {field}.value = {to_script(self.room.refused)}")


def _choose_all(access: Access, model: str) -> tuple[ContextCompressionManager, Chosen, str]:
    chosen = choose(access, model)
    return access.manager, chosen, read_chat_block(access).get("system", "") or SYSTEM


async def _call(hook: Stored) -> None:
    answer = hook()
    if isinstance(answer, Awaitable):
        await answer
