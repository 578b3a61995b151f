"""Recall: a question over everything the caller's sessions hold; each answer leads to its message.

What is found is shown as it was said. It is text that anybody may have written: it becomes text nodes, and the words
that were searched for are marked between them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime

from nicegui import ui

from refold.recall.search import Recalled
from refold.server.api.interface import Access
from refold.web.links import page_link, session_link
from refold.web.markup import clean
from refold.web.reading import name_session
from refold.web.shell import empty, frame, guarded, heading, link, text
from refold.web.visit import find_visit, say

QUERY_CHARS_MAX = 1_000
SESSIONS_MAX = 200
RESULTS_MAX = 30
TOKENS_MAX = 8_000
SECONDS_MAX = 12.0
SHOWN_CHARS = 420
MARKS_MAX = 200
# Below this score nothing that was asked for stands in a text; it is only near to it in meaning.
SCORE_WORDS = 0.5
NEAR_MAX = 5
_ROLES = frozenset(("user", "assistant", "tool", "system", "summary", "fact"))


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """What a search came to: ``done`` of ``total`` sessions were searched in the time there is."""

    results: tuple[Recalled, ...]
    names: dict[str, str]
    done: int
    total: int


async def show(query: str = "", name: str = "") -> None:
    """Draw the search, and what it finds."""
    query, source = query[:QUERY_CHARS_MAX].strip(), find_visit().source
    names = await source.run(list_names)
    with frame("recall"):
        heading(say("recall.title"))
        text("p", say("recall.intro"), "soft below-head")
        _draw_form(query, name, names)
        body = ui.element("div").classes("stack results").props("aria-live=polite")
        with body:
            if not names:
                with empty(say("recall.empty"), say("recall.empty_next")):
                    link(say("shell.chat"), page_link("/chat"), "button primary")
            elif query:
                text("p", say("recall.searching"), "faint").props("role=status")

        async def fill() -> None:
            found = await source.run(search, query, name)
            body.clear()
            with body:
                _draw_found(found, query)

        if names and query:
            ui.timer(0.01, guarded(fill), once=True)


def _draw_form(query: str, name: str, names: dict[str, str]) -> None:
    # A plain form: it works by keyboard, has an address, and goes back and forth like any page.
    with ui.element("form").classes("search-form").props(f'method=get action="{page_link("/recall")}" role=search'):
        field = ui.element("input").classes("input").props("type=search name=query autofocus")
        field._props.update(
            {
                "^value": query,  # An attribute: a value would be put back while somebody types.
                "placeholder": say("recall.placeholder"),
                "aria-label": say("recall.label"),
                "maxlength": QUERY_CHARS_MAX,
            }
        )
        if names:
            with ui.element("select").classes("input choice").props("name=name") as choice:
                choice._props["aria-label"] = say("recall.in")
                for one in ("", *names):
                    option = text("option", clean(names[one] if one else say("recall.all"))[:120])
                    option._props.update({"value": clean(one), "selected": one == name})
        with ui.element("button").classes("button primary").props("type=submit"):
            text("span", say("recall.go"))


def list_names(access: Access) -> dict[str, str]:
    """Return the caller's sessions by name, with their titles."""
    rows = access.list_rows(SESSIONS_MAX, 0)
    return {access.name(row.id): name_session(access, row) for row in rows if row.messages}


def search(access: Access, query: str, name: str) -> FoundPassages:
    """Search one session or all of the caller's, the last changed first, for as long as there is time."""
    rows = [access.need(name)] if name else access.list_rows(SESSIONS_MAX, 0)
    until = time.monotonic() + SECONDS_MAX
    results: list[Recalled] = []
    done = 0
    for row in rows:
        if done and time.monotonic() > until:
            break
        results += access.manager.recall(row.id, query, RESULTS_MAX, tokens_max=TOKENS_MAX)
        done += 1
    results.sort(key=lambda one: -one.score)
    names = {row.id: name_session(access, row) for row in rows}
    return FoundPassages(tuple(results[:RESULTS_MAX]), names, done, len(rows))


def _draw_found(found: FoundPassages, query: str) -> None:
    shown = [one for one in found.results if one.score >= SCORE_WORDS]
    if shown:
        sessions = len({one.session_id for one in shown})
        count = len(shown)
        told = (
            say("recall.found_one", count=count)
            if sessions == 1
            else say("recall.found", count=count, sessions=sessions)
        )
        text("p", told, "faint").props("role=status")
    elif found.results:
        shown = list(found.results[:NEAR_MAX])
        text("p", say("recall.near"), "faint").props("role=status")
    else:
        with empty(say("recall.nothing"), say("recall.nothing_next")):
            pass
    words = [word for word in re.split(r"[\s,.;:!?，。；：！？、]+", query) if word]
    for one in shown:
        _draw_result(one, found.names.get(one.session_id, ""), words)
    if found.done < found.total:
        text("p", say("recall.late", done=found.done, total=found.total), "faint")


def _draw_result(one: Recalled, title: str, words: list[str]) -> None:
    access = find_visit().source.access
    target = session_link(access.name(one.session_id), one.handle)
    with ui.element("article").classes("panel result"):
        with ui.element("div").classes("row wrap result-head"):
            role = say(f"recall.role_{one.role}") if one.role in _ROLES else one.role[:40]
            text("span", role, "chip accent" if one.role in ("summary", "fact") else "chip")
            text("span", clean(title)[:120], "cut soft result-name")
            if one.created_at:
                text("span", datetime.fromtimestamp(one.created_at).strftime("%Y-%m-%d %H:%M"), "faint num")
            link(say("recall.open"), target, "result-open")._props["aria-label"] = say("recall.open")
        with ui.element("p").classes("result-text"):
            draw_marked(cut_around(clean(one.text), words), words)
        with ui.element("div").classes("row"):
            text("span", one.handle[:60], "mono faint")
            if not one.is_whole:
                text("span", say("recall.part"), "faint")


def cut_around(content: str, words: list[str]) -> str:
    """Return a text, or of a long one what stands around the first word that was searched for."""
    if len(content) <= SHOWN_CHARS:
        return content
    places = [place for word in words if (place := content.lower().find(word.lower())) >= 0]
    start = max(0, (min(places) if places else 0) - SHOWN_CHARS // 3)
    start = content.rfind(" ", max(0, start - 30), start) + 1 or start
    stop = start + SHOWN_CHARS
    return f"{'… ' if start else ''}{content[start:stop]}{' …' if stop < len(content) else ''}"


def draw_marked(content: str, words: list[str]) -> None:
    """Draw a text with the words in it marked."""
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pieces = re.split(f"({pattern})", content, maxsplit=MARKS_MAX, flags=re.IGNORECASE) if pattern else [content]
    for number, piece in enumerate(pieces):
        if piece:
            text("mark" if number % 2 else "span", piece)
