"""A visit: who looks at a page, in which language and colours. One for each open tab, made from the page's request.

The caller comes from the door (``server/app.py``), never from the browser's own words; language and colours from two
plain cookies that hold nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nicegui import ui

from refold.conversation.reason import Reason
from refold.conversation.reason import say as reason_words
from refold.web.markup import clean
from refold.web.source import Source
from refold.web.words import Tongue, choose_tongue, say_in

if TYPE_CHECKING:
    from nicegui import Client

LANGUAGE_COOKIE = "refold_language"
COLOURS_COOKIE = "refold_colours"
COLOURS = ("auto", "light", "dark")


@dataclass(slots=True)
class Visit:
    """What a tab needs to know of its reader."""

    source: Source
    tongue: Tongue
    colours: str = "auto"


_REASON_CHARS = 600
_visits: WeakKeyDictionary[Client, Visit] = WeakKeyDictionary()


def open_visit() -> Visit:
    """Return a new visit for the tab whose page is being built."""
    client = ui.context.client
    request = client.request
    cookies = request.cookies
    tongue = choose_tongue(cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", ""))
    colours = cookies.get(COLOURS_COOKIE, "auto")
    source = Source(request.scope["refold.application"], request.scope["refold.caller"])
    visit = _visits[client] = Visit(source, tongue, colours if colours in COLOURS else "auto")
    return visit


def find_visit() -> Visit:
    """Return the visit of the tab at hand: in a page's function and in every handler and timer of its elements."""
    return _visits[ui.context.client]


def say(key: str, **values: Any) -> str:
    """Return a text of the page in the reader's language; ``values`` go into its braces as plain text."""
    return say_in(find_visit().tongue, key, **values)


def say_reason(reason: Reason) -> str:
    """Return a reason in the reader's language."""
    return clean(reason_words(reason, find_visit().tongue))[:_REASON_CHARS]
