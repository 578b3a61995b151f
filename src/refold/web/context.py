"""The indicator of how full a session's context is, with its gauge and breakdown, and the dialog to compress now.

Functions of ``Access`` block. They load the session, which takes a second if ten thousand messages are in view, so the
page draws the conversation first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import ui

from refold.conversation import because
from refold.conversation.message import Message, join_words
from refold.conversation.turn import find_task
from refold.conversation.view import Item
from refold.errors import Sentence
from refold.ladder.report import StageReport
from refold.llm.choose import converse_with
from refold.manager.compress import CompactResult
from refold.manager.session import parse_stored
from refold.manager.session_state import SessionState
from refold.manager.status import SessionStatus
from refold.manager.undo import Switched
from refold.sentences import tr
from refold.server.api.interface import Access
from refold.server.settings import find_missing_switch
from refold.tokens import model_info
from refold.web.data import find_speaker
from refold.web.shell import button, heading, notify, set_prop, sheet, text
from refold.web.visit import clean, find_visit, say, say_reason

WORDS_CHARS = 110
State = Literal["good", "warn", "bad"]
# Where the window comes from: the known model, a guess for an unknown model, or the session's settings.
WindowBy = Literal["model", "guess", "session"]
# The parts of a context, in the order in which they are sent.
PARTS = ("system", "tools", "task", "record", "recent")
# A part that is narrower than this share of the picture is named in the list below it only.
NAMED_SHARE = 0.09
GOES_SHOWN = 8
# Below this share, the gauge would show "0% full" for a context that is not empty.
SHARE_MIN = 0.005


@dataclass(frozen=True, slots=True)
class Context:
    """The figures of the indicator. ``parts`` add up to ``status.tokens``; ``missing`` is why rules write summaries."""

    status: SessionStatus
    parts: dict[str, int]
    warn: int
    window_by: WindowBy
    missing: Sentence | None = None

    @property
    def state(self) -> State:
        """Red if a threshold is reached, amber as near to it as *warn* is to *soft*, else green.

        A compression that saves money does not mean that the context is full.
        """
        status = self.status
        share = status.tokens / status.soft
        if not status.stopped and not status.saves_money:
            share = max(share, status.ahead.nearest.share)
        if share >= 1:
            return "bad"
        return "warn" if share >= self.warn / status.soft else "good"

    @property
    def acts_at(self) -> int:
        """The number of tokens at which compression begins, savings aside."""
        soft = self.status.soft
        return soft if self.status.saves_money else min(soft, self.status.ahead.tokens_at or soft)

    @property
    def tiers(self) -> list[tuple[str, int]]:
        """The marks of the gauge, smallest first, each with its name."""
        status = self.status
        marks = [("warn", self.warn * self.acts_at // status.soft), ("soft", self.acts_at), ("hard", status.hard)]
        if status.saves_money and status.acts_at < status.soft:
            marks.append(("saves", status.acts_at))
        return sorted(marks, key=lambda one: one[1])


def read_context(access: Access, name: str) -> Context:
    """Return how full a session is now."""
    row = access.need(name)
    manager = access.manager
    status = manager.status(row.id)
    parts = split_parts(manager.read_view(row.id), status)
    info = model_info(row.model or None)
    budget = manager.config.budget(info)
    warn = min(status.soft, int(status.hard * budget.warn / budget.hard))
    is_own = SessionState.read(row.settings).find_window(row.model)[0]
    window_by: WindowBy = "session" if is_own else "model" if info.is_known else "guess"
    return Context(status, parts, warn, window_by, find_missing_switch(manager.config, access.application.settings))


def split_parts(items: Sequence[Item], status: SessionStatus) -> dict[str, int]:
    """Return the tokens of each part of a context; they add up to all of it."""
    said = [Message(None, item.role, item.parts, "", item.message.id) for item in items if not item.is_fold]
    task = find_task(said, lambda _: False)
    parts = dict.fromkeys(PARTS, 0)
    for item in items:
        is_task = task is not None and not item.is_fold and item.message.id == task.id
        kind = "record" if item.is_fold else "system" if item.role == "system" else "task" if is_task else "recent"
        parts[kind] += item.tokens
    # The framing of a request (two tokens) counts as part of the system prompt.
    beside = max(0, status.tokens - sum(parts.values()))
    parts["tools"] = min(beside, status.tools_tokens)
    parts["system"] += beside - parts["tools"]
    return parts


@dataclass(frozen=True, slots=True)
class LeavingMessage:
    """A message that would leave the view: its speaker, its first words and its tokens."""

    speaker: str
    words: str
    tokens: int


def preview(access: Access, name: str, instructions: str) -> tuple[CompactResult, dict[str, list[LeavingMessage]]]:
    """Return what a compression would do, and the first messages that each stage would remove; nothing changes."""
    row = access.need(name)
    with converse_with(access.find_model(row)):
        result = access.manager.compress(row.id, instructions, dry_run=True)
    going: dict[str, list[LeavingMessage]] = {}
    for stage in result.stages:
        for stored in access.ledger.read_messages(row.id, list_covered(stage)[:GOES_SHOWN]):
            message = parse_stored(stored, row)
            words = clean(" ".join(join_words(message.parts).split()))[:WORDS_CHARS]
            going.setdefault(stage.stage, []).append(LeavingMessage(find_speaker(message), words, stored.tokens))
    return result, going


def list_covered(stage: StageReport) -> list[str]:
    """Return the messages that the edits of a stage cover."""
    return list(dict.fromkeys(one for edit in stage.edits for one in edit.covers))


def unfold(access: Access, name: str, edit_id: str) -> Switched:
    """Undo the compression that made a fold; the last one for an empty id."""
    return access.manager.undo(access.need(name).id, edit_id or None)


def refold(access: Access, name: str, edit_id: str) -> Switched:
    """Redo an undone fold; the last one for an empty id."""
    return access.manager.redo(access.need(name).id, edit_id or None)


def switch_auto(access: Access, name: str, *, on: bool) -> None:
    """Switch automatic compression of a session on or off."""
    access.manager.switch(access.need(name).id, on=on)


def pin(access: Access, name: str, handle: str, *, is_on: bool) -> bool:
    """Pin a message, so that no compression touches it, or unpin it; return whether it came back into view."""
    session_id, manager = access.need(name).id, access.manager
    before = manager.status(session_id).messages_in_view
    (manager.pin if is_on else manager.unpin)(session_id, handle)
    return manager.status(session_id).messages_in_view > before


def compress(access: Access, name: str, instructions: str) -> CompactResult:
    row = access.need(name)
    with converse_with(access.find_model(row)):
        return access.manager.compress(row.id, instructions)


class CompressSheet:
    """The dialog to compress now, in one tab: instructions, a preview of what goes and what stays, and the button."""

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
                field.props["placeholder"] = say("session.instructions_hint")
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
        """Show the dialog without the last preview."""
        self.result.clear()
        self.dialog.open()

    async def _preview(self) -> None:
        self.result.clear()
        with self.result:
            text("p", say("session.preview_running"), "faint")
        self._enable(False)
        try:
            result, going = await self.source.run(preview, self.name, self.instructions)
        except BaseException:
            self.result.clear()
            raise
        finally:
            self._enable(True)
        self.result.clear()
        with self.result:
            draw_preview(result, going)

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

    def _enable(self, is_on: bool) -> None:
        for one in (self.look, self.go):
            set_prop(one, "disabled", not is_on)


def draw_preview(result: CompactResult, going: Mapping[str, Sequence[LeavingMessage]]) -> None:
    stages = [stage for stage in result.stages if stage.edits]
    if not stages:
        text("p", say("session.preview_nothing", why=say_reason(result.reason)))
        return
    before, after = result.previous_tokens, result.current_tokens
    figures = say("session.preview_figures", before=before, after=after, freed=before - after)
    text("p", figures, "num preview-figures")
    with ui.element("div").classes("gauge-track thin").props("aria-hidden=true"):
        ui.element("span").classes("part part-recent").style(f"width:{after / max(1, before):.2%}")
    heading(say("session.preview_goes"), 3)
    for stage in stages:
        count, name = len(list_covered(stage)), say(f"session.talk_stage_{stage.stage}")
        with ui.element("details").classes("goes"):
            text("summary", say("session.preview_stage", stage=name, count=count, freed=stage.tokens_freed), "num")
            with ui.element("ul").classes("goes-list"):
                for one in going.get(stage.stage, ()):
                    with ui.element("li"):
                        text("span", say(f"session.talk_by_{one.speaker}"), "faint")
                        text("span", one.words, "cut")
                        text("span", f"{one.tokens:,}", "num faint")
                if count > GOES_SHOWN:
                    text("li", say("session.preview_more", count=count - GOES_SHOWN), "faint")
    heading(say("session.preview_stays"), 3)
    text("p", say("session.preview_stays_count", count=result.preserved_count))


class Indicator:
    """What fills the context, in one tab: a large picture with the mark of the next fold, and the parts in figures.

    It is drawn once and updated whenever the session changes. ``details`` are shown beside the conversation.
    """

    def __init__(self, on_compress: Callable[[], Any], on_switch: Callable[[], Any]) -> None:
        self.context: Context | None = None
        self._on_switch = on_switch
        with ui.element("section").classes("context") as self.box:
            self.box.props["aria-label"] = say("session.context")
            with ui.element("div").classes("context-words") as self.words:
                text("p", say("session.counting"), "faint")
            self.gauge = ui.element("div").classes("context-gauge")
            with ui.element("div").classes("context-end"):
                self.busy = text("span", say("session.optimising"), "chip accent busy").props("role=status")
                self.button = button(say("session.compress"), on_compress, icon_name="compress")
                self.more = button("", self._flip, kind="square details", icon_name="more")
                self.more.props.update({"aria-label": say("session.details"), "aria-expanded": "false"})
        self.show_busy(False)

    def draw_details(self) -> None:
        """Draw the place of the details, here, with the switch of automatic compression."""
        self.details = ui.element("div").classes("context-body")
        with button("", self._on_switch, kind="small"):
            self.switch = text("span", say("session.auto_off"))

    @property
    def is_off(self) -> bool:
        """Whether automatic compression is off."""
        return self.context is not None and self.context.status.stopped.holds(because.AUTO_OFF)

    def _flip(self) -> None:
        """Show or hide the details on a narrow screen."""
        is_open = self.more.props["aria-expanded"] == "false"
        self.more.props["aria-expanded"] = str(is_open).lower()
        self.box.classes(add="is-wide" if is_open else "", remove="" if is_open else "is-wide")

    def show_busy(self, is_busy: bool) -> None:
        """Show whether the session is being compressed."""
        self.busy.set_visibility(is_busy)
        set_prop(self.button, "disabled", is_busy)

    def show_request(self, number: int, tokens: int) -> None:
        """Show how full the context of an earlier request was; for 0, the context of now."""
        self.button.set_visibility(not number)
        if self.context is not None:
            self._draw(Then(number, tokens) if number else None)

    def fill(self, context: Context) -> None:
        if context == self.context:
            return
        self.context = context
        self.switch.text = say("session.auto_on" if self.is_off else "session.auto_off")
        self._draw(None)
        self.details.clear()
        with self.details:
            _draw_notes(context)

    def _draw(self, then: Then | None) -> None:
        assert self.context is not None
        self.words.clear()
        with self.words:
            _draw_words(self.context, then)
        self.gauge.clear()
        with self.gauge:
            _draw_gauge(self.context, then)


@dataclass(frozen=True, slots=True)
class Then:
    """An earlier request: its number, and the tokens it sent."""

    number: int
    tokens: int


def _draw_words(context: Context, then: Then | None) -> None:
    """Say how full the context is, and when it is compressed next."""
    status = context.status
    tokens = then.tokens if then else status.tokens
    share = tokens / status.hard if status.hard else 0.0
    heading(say("session.context_then", number=then.number) if then else say("session.context"), 2)
    words = say("session.share_little") if 0 < share < SHARE_MIN else say("session.share", share=share)
    text("strong", words, "gauge-share" if then else f"gauge-share is-{context.state}")
    text("p", say("session.of", tokens=tokens, hard=status.hard), "num soft gauge-of")
    if not then:
        text("span", say(f"session.state_{context.state}"), f"chip {context.state}")


def _draw_gauge(context: Context, then: Then | None) -> None:
    """Draw the window: each part as wide as it is large, and marks where something happens."""
    status = context.status
    tokens = then.tokens if then else status.tokens
    top = max(status.hard, tokens)
    parts = {"recent": tokens} if then else context.parts
    with ui.element("div").classes("gauge") as gauge:
        gauge.props.update({"role": "meter", "aria-valuemin": 0, "aria-valuemax": status.hard})
        gauge.props.update({"aria-valuenow": tokens, "aria-label": say("session.of", tokens=tokens, hard=status.hard)})
        with ui.element("div").classes("gauge-track"):
            for part in PARTS:
                width = parts.get(part, 0) / top
                if width:
                    with ui.element("span").classes(f"part part-{part}").style(f"width:{width:.3%}"):
                        text("span", "" if then or width < NAMED_SHARE else say(f"session.part_{part}"))
        if not then:
            for tier, at in context.tiers:
                tick = ui.element("span").classes(f"tick tick-{tier}").style(f"left:{min(1.0, at / top):.2%}")
                tick.props["title"] = say(f"session.tier_{tier}", tokens=at)
    if then:
        return
    with ui.element("dl").classes("parts"):
        for part in (*PARTS, "free"):
            count = max(0, status.hard - status.tokens) if part == "free" else context.parts[part]
            if count or part in ("record", "recent", "free"):
                with ui.element("div").classes(f"part-row {part}"):
                    with ui.element("dt"):
                        ui.element("span").classes(f"dot part-{part}").props("aria-hidden=true")
                        text("span", say(f"session.part_{part}"))
                    text("dd", f"{count:,}", "num")
    if status.ahead.limits and not status.stopped:
        text("p", status.ahead.tell(find_visit().language), "soft gauge-next")


def _draw_notes(context: Context) -> None:
    status = context.status
    heading(say("session.details"), 2)
    with ui.element("ul").classes("faint tiers"):
        for tier, tokens in context.tiers:
            text("li", say(f"session.tier_{tier}", tokens=tokens), f"tier tier-{tier}")
    if saved := status.folded_away:
        key = "session.out_of" if status.compression_count else "session.shortened"
        words = say(key, view=status.messages_in_view, all=status.messages, saved=saved)
    else:
        words = say("session.all_in_view", all=status.messages)
    text("p", words, "soft note")
    if status.stopped:
        text("p", say("session.stopped", why=say_reason(status.stopped)), "problem small")
    if context.missing:
        text("p", tr(context.missing, find_visit().language), "soft note")
    window = say(f"session.window_by_{context.window_by}", tokens=status.window)
    rows = [
        ("model", status.model or say("session.no_model")),
        ("window", window),
        ("counter", status.counter),
        ("folds", f"{status.compression_count:,}"),
    ]
    if status.pinned:
        rows.append(("pinned", f"{status.pinned:,}"))
    with ui.element("dl").classes("parts facts-list"):
        for key, value in rows:
            with ui.element("div").classes("part-row"):
                text("dt", say(f"session.{key}"))
                text("dd", value, "num cut")
