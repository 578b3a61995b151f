"""What surrounds every page's function: the visit is opened before it, and what goes wrong in it is told in words."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from nicegui import ui

from refold.errors import RefoldError
from refold.web.links import PREFIX, page_link
from refold.web.markup import clean
from refold.web.pages import PageEntry
from refold.web.shell import empty, frame, go, link, text
from refold.web.source import NoLongerAllowed
from refold.web.visit import open_visit, say

log = logging.getLogger("refold.web")
Show = Callable[..., Awaitable[None]]


def show_guarded(entry: PageEntry, show: Show) -> Show:
    """Return a page's function with a visit around it."""

    @wraps(show)
    async def show_page(*args: Any, **kwargs: Any) -> None:
        visit = open_visit()
        try:
            visit.source.check()
            await show(*args, **kwargs)
        except NoLongerAllowed:
            go(page_link("/login"))
        except RefoldError as error:
            tell_problem(entry, say("shell.failed", why=str(error)[:500]))
        except Exception as error:
            log.exception("a page failed", extra={"fields": {"page": entry.name, "error": type(error).__name__}})
            tell_problem(entry, say("shell.unexpected", kind=type(error).__name__))

    return show_page


def tell_problem(entry: PageEntry, problem: str) -> None:
    """Draw a page that says what went wrong, in the place of what was drawn so far."""
    ui.context.client.content.clear()
    with frame(entry.name), empty(say("shell.problem"), "") as box:
        text("p", problem).props("role=alert")
        box.classes("is-problem")
        link(say("shell.home"), page_link(), "button")


async def show_missing(missing: str = "") -> None:
    """Draw the page for an address that is none of ours."""
    open_visit()
    with frame("", say("shell.not_found")), empty(say("shell.not_found"), clean(f"{PREFIX}/{missing}"[:200])):
        link(say("shell.home"), page_link(), "button primary")
