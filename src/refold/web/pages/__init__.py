"""The pages: for each an ``async def show(...) -> None`` that draws inside ``shell.frame``.

To add one: its function in a module here, its line in ``PAGES``, its texts in ``refold/locale/``. Arguments of the
function come from the query and are plain ``str`` or ``int`` with defaults. A ``RefoldError`` that it raises is shown
as a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page: its name (``shell.NAME`` is its text), its path below ``/ui``, its ``module:function``, its menu icon."""

    name: str
    path: str
    show: str
    icon: str = ""


PAGES = (
    PageEntry("sessions", "/", "refold.web.pages.sessions:show", "list"),
    PageEntry("session", "/session", "refold.web.pages.session:show"),
    PageEntry("chat", "/chat", "refold.web.pages.session:show_chat", "chat"),
    PageEntry("recall", "/recall", "refold.web.pages.recall:show", "search"),
    PageEntry("memory", "/memory", "refold.web.pages.recall:show_memory", "book"),
    PageEntry("statistics", "/statistics", "refold.web.pages.statistics:show", "chart"),
    PageEntry("settings", "/settings", "refold.web.pages.settings:show", "sliders"),
)
