"""A visit: the reader of one open tab, with language, colours, addresses, and the tab's only access to data.

The caller is the one that ``app.Door`` identified, never a claim of the browser. Language and colours come from two
plain cookies. Pages read data with ``await source.run(function, ...)``, where the function's first argument is
``Access`` (``server/api/interface.py``), which limits a tenant to its own sessions.

Every text of the page is in the catalogue (``refold.sentences``); pages call ``say("area.key", count=3)``. A test fails
on a key that is missing in one language. Values are inserted as plain text. Never build a sentence from pieces. Nothing
here imports the framework before a page is opened.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from refold.conversation.reason import Language, Reason
from refold.conversation.reason import say as reason_words
from refold.errors import LedgerError, RefoldError
from refold.sentences import choose_language, describe_error, read_texts, tr

if TYPE_CHECKING:
    from nicegui import Client
    from starlette.requests import Request

    from refold.server.api.interface import Access
    from refold.server.app import Application
    from refold.web.app import Visitor


PREFIX = "/ui"
LANGUAGES: tuple[Language, ...] = ("en", "zh")
P = ParamSpec("P")
T = TypeVar("T")
THREADS_MAX = 8
_threads = ThreadPoolExecutor(THREADS_MAX, "refold-page")
LANGUAGE_COOKIE = "refold_language"
COLOURS_COOKIE = "refold_colours"
COLOURS = ("auto", "light", "dark")
_REASON_CHARS = 600
# Lone surrogates, which JSON in UTF-8 cannot carry.
_SURROGATES = re.compile("[\ud800-\udfff]")


def page_link(path: str = "/", **query: str) -> str:
    """Return the address of a page: ``page_link("/recall", query="deploy")``."""
    asked = {name: value for name, value in query.items() if value}
    # A name with a lone surrogate cannot be written in an address; the page then reports an unknown session.
    return f"{PREFIX}{path}" + (f"?{urlencode(asked, errors='replace')}" if asked else "")


def session_link(name: str, handle: str = "", words: str = "") -> str:
    """Return the address of a session, or of the message behind a handle in it, with some words marked."""
    return page_link("/session", name=name, at=handle, **({"words": words} if words else {}))


def split_query(query: str) -> list[str]:
    """Return the words of a search that are marked where they were found."""
    return [word for word in re.split(r"[\s,.;:!?，。；：！？、]+", query) if word]


def has_words(key: str) -> bool:
    return key in read_texts("en")


def list_words(language: Language, prefix: str) -> dict[str, str]:
    """Return the texts whose keys start with a prefix, by the rest of the key: for components in the browser."""
    return {key.removeprefix(prefix): text for key, text in read_texts(language).items() if key.startswith(prefix)}


def find_language(request: Request) -> Language:
    """Return the language of the browser that sent a request."""
    return choose_language(request.cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", ""))


class NoLongerAllowed(RefoldError):
    """The key of this tab was revoked."""

    http_status = 401


class DataSource:
    """Runs functions of ``Access`` as the visitor, in threads.

    The event loop also carries the gateway's requests: nothing that reads a file or takes a lock may run on it. A
    revoked key ends the visit at the next call.
    """

    def __init__(self, application: Application, visitor: Visitor) -> None:
        from refold.server.api.interface import Access

        self.application = application
        self.visitor = visitor
        self.access = Access(application, visitor.caller)

    async def run(self, call: Callable[Concatenate[Access, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of ``Access`` in a thread and return its result; its errors are raised here."""
        from refold.server.api.interface import show_error

        self.check()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_threads, lambda: call(self.access, *args, **kwargs))
        except LedgerError as error:
            if self.access.tenant:
                raise type(error)(show_error(error, self.access.tenant)) from error
            raise

    def check(self) -> None:
        """Raise NoLongerAllowed if the key of this visit was revoked."""
        if not self.visitor.is_welcome(self.application.keys):
            raise NoLongerAllowed("the key of this page was revoked; sign in again")


@dataclass(slots=True)
class Visit:
    """The reader of a tab: access to data, language and colours."""

    source: DataSource
    language: Language
    colours: str = "auto"


_visits: WeakKeyDictionary[Client, Visit] = WeakKeyDictionary()


def open_visit() -> Visit:
    """Return a new visit for the tab whose page is being built."""
    from nicegui import ui

    client = ui.context.client
    request = client.request
    colours = request.cookies.get(COLOURS_COOKIE, "auto")
    source = DataSource(request.scope["refold.application"], request.scope["refold.caller"])
    visit = _visits[client] = Visit(source, find_language(request), colours if colours in COLOURS else "auto")
    return visit


def find_visit() -> Visit:
    """Return the visit of the current tab, in a page's function or in a handler or timer of its elements."""
    from nicegui import ui

    return _visits[ui.context.client]


def say(key: str, **values: Any) -> str:
    """Return a text of the page in the reader's language, with ``values`` inserted as plain text."""
    return tr(key, find_visit().language, **values)


def clean(text: str) -> str:
    """Return a text with lone surrogates replaced, so that it can be encoded."""
    return _SURROGATES.sub("\ufffd", text)


def explain(error: RefoldError, chars_max: int = 500) -> str:
    """Return an error in the reader's language."""
    return clean(describe_error(error, find_visit().language))[:chars_max]


def say_reason(reason: Reason) -> str:
    return clean(reason_words(reason, find_visit().language))[:_REASON_CHARS]
