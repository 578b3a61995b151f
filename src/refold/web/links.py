"""Addresses of the page. Names of sessions are any text, so they go into the query, where nothing normalises them."""

from __future__ import annotations

from urllib.parse import urlencode

PREFIX = "/ui"


def page_link(path: str = "/", **query: str) -> str:
    """Return the address of a page: ``page_link("/recall", query="deploy")``."""
    asked = {name: value for name, value in query.items() if value}
    # A name with half a character in it has no address of its own; the page says that there is no such session.
    return f"{PREFIX}{path}" + (f"?{urlencode(asked, errors='replace')}" if asked else "")


def session_link(name: str, handle: str = "") -> str:
    """Return the address of a session, or of the message behind a handle in it."""
    return page_link("/session", name=name, at=handle)
