"""The list of sessions as the page shows it: titles, figures, and what compression saved. Blocking; run in threads."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from refold.ledger.records import SessionRow
from refold.llm.choose import GATEWAY
from refold.manager.status import read_client
from refold.server.api.interface import Access
from refold.web.figures import read_known
from refold.web.markup import clean
from refold.web.reading import SAMPLE, find_title, name_session

PAGE = 50
LISTED_MAX = 1_000
_SAVED_KNOWN_MAX = 5_000
_saved: OrderedDict[tuple[str, float], float | None] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in the list."""

    name: str
    title: str
    model: str
    messages: int
    tokens: int
    folds: int
    changed_at: float
    is_sample: bool = False
    has_own_title: bool = False
    client: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the list that matches a query, and how many match in all."""

    sessions: tuple[Listed, ...]
    total: int
    is_any: bool


def list_sessions(access: Access, query: str, limit: int) -> Listing:
    """Return the sessions that match, the last changed first."""
    rows = access.list_rows(LISTED_MAX, 0)
    wanted = query.casefold().split()
    found = _put_below([one for row in rows if _matches(one := _describe(access, row), wanted)])
    return Listing(tuple(found[:limit]), len(found), bool(rows))


def _put_below(listed: list[Listed]) -> list[Listed]:
    """Return the sessions with those that were begun from another one below it."""
    names = {one.name for one in listed}
    below: dict[str, list[Listed]] = {}
    for one in listed:
        if one.parent in names and one.parent != one.name:
            below.setdefault(one.parent, []).append(replace(one, title=f"↳ {one.title}"))
    roots = [one for one in listed if one.parent not in names or one.parent == one.name]
    return [one for root in roots for one in (root, *below.get(root.name, ()))]


def _matches(one: Listed, wanted: list[str]) -> bool:
    text = f"{one.title}\n{one.name}\n{one.model}\n{one.client}".casefold()
    return all(word in text for word in wanted)


def _describe(access: Access, row: SessionRow) -> Listed:
    own = find_title(row)
    name = access.name(row.id)
    told = row.settings.get(GATEWAY)
    made = told if isinstance(told, dict) else {}
    return Listed(
        name=name,
        title=clean(name_session(access, row)),
        model=clean(row.model)[:80],
        messages=row.messages,
        tokens=row.tokens,
        folds=row.compression_count,
        changed_at=row.updated_at,
        is_sample=bool(row.settings.get(SAMPLE)),
        has_own_title=bool(own),
        client=clean(read_client(row))[:40],
        parent=access.name(str(made.get("parent", ""))),
    )


def read_saved(access: Access, name: str) -> float | None:
    """Return what compression saved in a session so far, in dollars; None where nothing is known."""
    row = access.need(name)
    key = (row.id, row.updated_at)
    if key not in _saved:
        bill = read_known(access.manager, row).bill
        _saved[key] = bill.dollars_saved if bill.priced else None
        while len(_saved) > _SAVED_KNOWN_MAX:
            _saved.popitem(last=False)
    return _saved[key]
