"""What a run is saying right now, in one tab: thoughts, words, calls of tools, and what it is busy with.

Text of models and tools becomes text nodes, never markup; what has become history is cleared by whoever owns the view.
"""

from __future__ import annotations

from nicegui import ui

from refold.web.icons import icon
from refold.web.markup import clean
from refold.web.shell import set_text, text
from refold.web.talking import LiveCall, Room
from refold.web.visit import say

SHOWN_CHARS_MAX = 400_000
CALL_CHARS_MAX = 20_000


class LiveView:
    """The live part of a chat: drawn anew for each step, grown piece by piece within one."""

    def __init__(self) -> None:
        with ui.element("div").classes("live-frame"):
            self.box = ui.element("div").classes("live").props("aria-live=polite")
        self._step = -1

    def draw(self, room: Room) -> None:
        """Show what came since."""
        live = room.live
        if live.step != self._step:
            self._begin(live.step)
        self._add_words(live.pieces)
        set_text(self._thought, clean(live.thinking))
        self._thinking.set_visibility(bool(live.thinking))
        for call in live.calls:
            self._draw_call(call)
        working = say("chat.optimising") if live.is_compressing else say("chat.writing") if room.is_running else ""
        set_text(self._state, working)
        self._state.set_visibility(bool(working))
        set_text(self._note, clean(say(live.note[0], **live.note[1])) if live.note else "")
        self._note.set_visibility(live.note is not None)

    def _begin(self, step: int) -> None:
        self._step = step
        self._pieces = self._chars = 0
        self._shown_calls: dict[str, tuple[ui.element, ui.element]] = {}
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
        """Add what came as one more node, so that a long answer costs no more by the word than a short one."""
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
            set_text(state, say("chat.call_failed") if call.is_error else say("chat.call_done", seconds=call.seconds))
            state.classes(add="bad" if call.is_error else "good")
            set_text(result, clean(call.text[:CALL_CHARS_MAX]))
