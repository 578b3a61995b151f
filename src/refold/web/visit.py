"""A visit: who looks at a page, in which language and colours. One for each open tab, made from the page's request.

The caller comes from the door (``server/app.py``), never from the browser's own words; language and colours from two
plain cookies that hold nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import orjson

from refold.config import PRESETS, CompressionConfig
from refold.conversation.reason import Reason
from refold.conversation.reason import say as reason_words
from refold.errors import RefoldError

if TYPE_CHECKING:
    from nicegui import Client

    from refold.server.api.interface import Access
    from refold.server.app import Application
    from refold.web.app import Visitor


PREFIX = "/ui"
Tongue = Literal["en", "zh"]
TONGUES: tuple[Tongue, ...] = ("en", "zh")
_MEANS = "settings.means_"
_PRESET = "settings.preset_"
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
    # A name with half a character in it has no address of its own; the page says that there is no such session.
    return f"{PREFIX}{path}" + (f"?{urlencode(asked, errors='replace')}" if asked else "")


def session_link(name: str, handle: str = "") -> str:
    """Return the address of a session, or of the message behind a handle in it."""
    return page_link("/session", name=name, at=handle)


@cache
def read_words(tongue: Tongue) -> dict[str, str]:
    """Return all texts of a language by their keys."""
    words: dict[str, str] = orjson.loads((files("refold.web") / "locale" / f"{tongue}.json").read_bytes())
    return {**_describe_settings(), **words} if tongue == "en" else words


def _describe_settings() -> dict[str, str]:
    """Return what settings and presets are for, as the schema says it."""
    words = {f"{_PRESET}{name}": means for name, means in PRESETS.items()}
    for key, field in CompressionConfig.model_fields.items():
        plain = re.sub(r"^S\d+\.\d+: ", "", field.description or "")
        words[f"{_MEANS}{field.alias or key}"] = plain[:1].upper() + plain[1:]
    return words


def say_in(tongue: Tongue, key: str, **values: object) -> str:
    """Return a text in a language."""
    text = read_words(tongue)[key]
    return text.format(**values) if values else text


def has_words(key: str) -> bool:
    """Tell whether there is a text of this name."""
    return key in read_words("zh")


def list_words(tongue: Tongue, prefix: str) -> dict[str, str]:
    """Return all texts whose keys begin with a prefix: for what is put together in the browser."""
    return {key: text for key, text in read_words(tongue).items() if key.startswith(prefix)}


def choose_tongue(chosen: str, accepted: str) -> Tongue:
    """Return the language a reader chose, else the first language of ``Accept-Language`` that the page has."""
    if chosen == "zh":
        return "zh"
    if chosen == "en":
        return "en"
    wishes: list[tuple[float, int, Tongue]] = []
    for place, piece in enumerate(accepted[:1_000].split(",")):
        name, _, rest = piece.strip().lower().partition(";")
        weight = rest.strip().removeprefix("q=")
        try:
            share = float(weight) if weight else 1.0
        except ValueError:
            share = 0.0
        primary = name.split("-")[0]
        if primary in TONGUES and share > 0:
            wishes.append((-share, place, "zh" if primary == "zh" else "en"))
    return min(wishes)[2] if wishes else "en"


class NoLongerAllowed(RefoldError):
    """The key this tab was opened with does not work any more."""

    http_status = 401


class DataSource:
    """A caller's way to its sessions."""

    def __init__(self, application: Application, visitor: Visitor) -> None:
        from refold.server.api.interface import Access

        self.application = application
        self.visitor = visitor
        self.access = Access(application, visitor.caller)

    async def run(self, call: Callable[Concatenate[Access, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function of ``Access`` returns, run in a thread. Typed errors come through."""
        self.check()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_threads, lambda: call(self.access, *args, **kwargs))

    def check(self) -> None:
        """Raise NoLongerAllowed if the key of this visit was revoked since."""
        if not self.visitor.is_welcome(self.application.keys):
            raise NoLongerAllowed("the key this page was opened with does not work any more; sign in again")


@dataclass(slots=True)
class Visit:
    """What a tab needs to know of its reader."""

    source: DataSource
    tongue: Tongue
    colours: str = "auto"


_visits: WeakKeyDictionary[Client, Visit] = WeakKeyDictionary()


def open_visit() -> Visit:
    """Return a new visit for the tab whose page is being built."""
    from nicegui import ui

    client = ui.context.client
    request = client.request
    cookies = request.cookies
    tongue = choose_tongue(cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", ""))
    colours = cookies.get(COLOURS_COOKIE, "auto")
    source = DataSource(request.scope["refold.application"], request.scope["refold.caller"])
    visit = _visits[client] = Visit(source, tongue, colours if colours in COLOURS else "auto")
    return visit


def find_visit() -> Visit:
    """Return the visit of the tab at hand: in a page's function and in every handler and timer of its elements."""
    from nicegui import ui

    return _visits[ui.context.client]


def say(key: str, **values: Any) -> str:
    """Return a text of the page in the reader's language; ``values`` go into its braces as plain text."""
    return say_in(find_visit().tongue, key, **values)


def clean(text: str) -> str:
    """Return a text with lone surrogates replaced, so that it can be encoded."""
    return _SURROGATES.sub("\ufffd", text)


def say_reason(reason: Reason) -> str:
    """Return a reason in the reader's language."""
    return clean(reason_words(reason, find_visit().tongue))[:_REASON_CHARS]
