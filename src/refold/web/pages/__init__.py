"""The pages: one module each, with ``async def show(...) -> None`` that draws inside ``shell.frame``.

To add one: its module here, its line in ``PAGES``, its texts in ``words``. Arguments of ``show`` come from the query
and are plain ``str`` or ``int`` with defaults. Errors of ours that ``show`` lets through are told in words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page: its name (``shell.NAME`` is its text), its path below ``/ui``, its module, its place in the menu."""

    name: str
    path: str
    module: str
    icon: str = ""

    @property
    def is_in_menu(self) -> bool:
        """True if the menu names it."""
        return bool(self.icon)


# Icons are those of icons.py.
PAGES = (
    PageEntry("sessions", "/", "refold.web.pages.sessions", "list"),
    PageEntry("session", "/session", "refold.web.pages.session"),
    PageEntry("chat", "/chat", "refold.web.pages.chat", "chat"),
    PageEntry("recall", "/recall", "refold.web.pages.recall", "search"),
    PageEntry("memory", "/memory", "refold.web.pages.memory", "book"),
    PageEntry("statistics", "/statistics", "refold.web.pages.statistics", "chart"),
    PageEntry("settings", "/settings", "refold.web.pages.settings", "sliders"),
)
