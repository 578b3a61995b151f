"""The context indicator: a gauge with its tiers, what the context is made of, and the way to compress now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from refold.web.context import PARTS, Context
from refold.web.shell import button, heading, text
from refold.web.visit import find_visit, say, say_reason

# Below this, "0% full" would be said of a context that is not empty.
SHARE_MIN = 0.005


class Indicator:
    """The indicator of one tab: drawn once, filled whenever the session changes."""

    def __init__(self, on_compress: Callable[[], Any]) -> None:
        self.context: Context | None = None
        with ui.element("section").classes("context") as self.box:
            self.box._props["aria-label"] = say("session.context")
            with ui.element("div").classes("context-top"):
                heading(say("session.context"), 2)
                self.busy = text("span", say("session.optimising"), "chip accent busy").props("role=status")
            self.gauge = ui.element("div").classes("context-gauge")
            with ui.element("div").classes("context-end"):
                self.button = button(say("session.compress"), on_compress, icon_name="compress")
                self.details = button("", self._flip, kind="square details", icon_name="more")
                self.details._props.update({"aria-label": say("session.details"), "aria-expanded": "false"})
            self.body = ui.element("div").classes("context-body")
        self.show_busy(False)
        with self.gauge:
            text("p", say("session.counting"), "faint")

    def _flip(self) -> None:
        """Show the breakdown where there is no room to show it always, or hide it again."""
        is_open = self.details._props["aria-expanded"] == "false"
        self.details._props["aria-expanded"] = str(is_open).lower()
        self.details.update()
        self.box.classes(add="is-wide" if is_open else "", remove="" if is_open else "is-wide")

    def show_busy(self, is_busy: bool) -> None:
        """Say, or no longer say, that the session is being compressed."""
        self.busy.set_visibility(is_busy)
        self.button.props("disabled" if is_busy else "", remove="" if is_busy else "disabled")

    def fill(self, context: Context) -> None:
        """Draw these figures."""
        if context == self.context:
            return
        self.context = context
        self.gauge.clear()
        with self.gauge:
            _draw_gauge(context)
        self.body.clear()
        with self.body:
            _draw_parts(context)
            _draw_notes(context)


def _draw_gauge(context: Context) -> None:
    status = context.status
    share = status.tokens / status.hard if status.hard else 0.0
    with ui.element("div").classes("gauge-words"):
        told = say("session.share_little") if 0 < share < SHARE_MIN else say("session.share", share=share)
        text("strong", told, f"gauge-share is-{context.state}")
        text("span", say(f"session.state_{context.state}"), f"chip {context.state}")
    text("p", say("session.of", tokens=status.tokens, hard=status.hard), "num soft gauge-of")
    if status.ahead.limits and not status.stopped:
        text("p", status.ahead.tell(find_visit().tongue), "soft gauge-next")
    top = max(status.hard, status.tokens)
    with ui.element("div").classes("gauge") as gauge:
        gauge._props.update(
            {"role": "meter", "aria-valuemin": 0, "aria-valuemax": status.hard, "aria-valuenow": status.tokens}
        )
        gauge._props["aria-label"] = say("session.of", tokens=status.tokens, hard=status.hard)
        with ui.element("div").classes("gauge-track"):
            for part in PARTS:
                if context.parts.get(part):
                    width = context.parts[part] / top
                    ui.element("span").classes(f"part part-{part}").style(f"width:{width:.3%}")
        tiers = [("warn", context.warn), ("soft", status.soft), ("hard", status.hard)]
        if status.saves_money and status.acts_at < status.soft:
            tiers.insert(1, ("saves", status.acts_at))
        for tier, tokens in tiers:
            tick = ui.element("span").classes(f"tick tick-{tier}").style(f"left:{min(1.0, tokens / top):.2%}")
            tick._props["title"] = say(f"session.tier_{tier}", tokens=tokens)
    with ui.element("ul").classes("faint tiers"):
        for tier, tokens in tiers:
            text("li", say(f"session.tier_{tier}", tokens=tokens), f"tier tier-{tier}")


def _draw_parts(context: Context) -> None:
    status = context.status
    with ui.element("dl").classes("parts"):
        for part in PARTS:
            tokens = context.parts.get(part, 0)
            if part in ("system", "tools") and not tokens:
                continue
            with ui.element("div").classes("part-row"):
                with ui.element("dt"):
                    ui.element("span").classes(f"dot part-{part}").props("aria-hidden=true")
                    text("span", say(f"session.part_{part}"))
                text("dd", f"{tokens:,}", "num")
        with ui.element("div").classes("part-row free"):
            with ui.element("dt"):
                ui.element("span").classes("dot").props("aria-hidden=true")
                text("span", say("session.part_free"))
            text("dd", f"{max(0, status.hard - status.tokens):,}", "num")


def _draw_notes(context: Context) -> None:
    status = context.status
    if saved := status.folded_away:
        told = say("session.out_of", view=status.messages_in_view, all=status.messages, saved=saved)
    else:
        told = say("session.all_in_view", all=status.messages)
    text("p", told, "soft note")
    if status.stopped:
        text("p", say("session.stopped", why=say_reason(status.stopped)), "problem small")
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
