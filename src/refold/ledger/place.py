"""Where a ledger is kept: a file or a server; opening it, and the index beside it.

A server's address may contain a password, which only ``LedgerPlace.reveal`` shows, for connecting.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.ledger.sql.ledger import Ledger

LEDGER_FILE = ".refold/ledger.db"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SERVER = frozenset({"postgresql", "postgres"})
_SECRET = re.compile(r"(?i)(password|sslpassword|sslkey)=[^&]*")
_HOW = "give a file, or postgresql://user:password@host:5432/database"


class LedgerPlace:
    """The location of a ledger as the user wrote it. Printing it never shows a password."""

    __slots__ = ("_written",)

    def __init__(self, written: object) -> None:
        self._written: str = _check(written.reveal() if isinstance(written, LedgerPlace) else written)

    @property
    def kind(self) -> Literal["file", "postgres"]:
        """The kind of store."""
        return "postgres" if _SCHEME.match(self._written) else "file"

    def reveal(self) -> str:
        """Return the whole address with its password, for connecting only."""
        return self._written

    def __str__(self) -> str:
        return redact_address(self._written)

    def __repr__(self) -> str:
        return f"LedgerPlace({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LedgerPlace) and other._written == self._written

    def __hash__(self) -> int:
        return hash(self._written)


def redact_address(address: str) -> str:
    """Return an address with its password redacted."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return address
    rest, mark, query = address[scheme.end() :].partition("?")
    who, at, where = rest.rpartition("@")
    user, colon, _ = who.partition(":")
    shown = f"{user}:***" if colon else user
    hidden = _SECRET.sub(r"\1=***", query)
    return f"{scheme[0]}{shown}{at}{where}{mark}{hidden}"


def _check(written: object) -> str:
    # The errors below quote nothing of the text: a password may be anywhere in it.
    if not isinstance(written, str) or not written.strip() or "\0" in written:
        raise ConfigError("ledger must be a non-empty string; {how}", how=_HOW)
    text = written.strip()
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() not in _SERVER:
        raise ConfigError("ledger: unknown kind of store '{scheme}'; {how}", scheme=scheme[1][:20], how=_HOW)
    authority = text[scheme.end() :].partition("?")[0]
    if authority.count("@") > 1 or "#" in text or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ConfigError("ledger: the address cannot be parsed; write @ : / ? # % in a password as %40 %3A …")
    return text


def choose_ledger(workspace: str | Path, place: LedgerPlace | str | None = None) -> Ledger:
    """Return the ledger at a place, by default the file ``.refold/ledger.db`` of the workspace."""
    found = LedgerPlace(place) if isinstance(place, str) else place
    if found is not None and found.kind == "postgres":
        return _open_postgres(found)
    from refold.ledger.sqlite import SqliteLedger

    return SqliteLedger(find_file(workspace, found))


def _open_postgres(place: LedgerPlace) -> Ledger:
    try:
        from refold.ledger.postgres import PostgresLedger
    except ImportError as error:
        if (error.name or "").startswith("refold"):
            raise
        raise ConfigError(
            "ledger = {place} needs psycopg ({error}); install it with: pip install 'refold[postgres]'",
            place=place,
            error=error,
        ) from None
    return PostgresLedger(place)


def find_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return the path of a ledger's file; a relative path starts at the workspace."""
    if place is None or place.kind != "file":
        return Path(workspace) / LEDGER_FILE
    return Path(workspace) / Path(place.reveal()).expanduser()


def find_place(ledger: Ledger, place: LedgerPlace | None) -> LedgerPlace | None:
    """Return where a ledger is kept: its own ``place``, otherwise the one of the settings."""
    own = getattr(ledger, "place", None)
    return own if isinstance(own, LedgerPlace) else place


def find_index_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return the path of a ledger's search index: beside its file, or one per server in the workspace."""
    if place is None or place.kind == "file":
        return index_path(find_file(workspace, place))
    name = blake2b(str(place).encode("utf-8", "replace"), digest_size=4).hexdigest()
    return (Path(workspace) / LEDGER_FILE).with_name(f"postgres-{name}.recall.db")


def index_path(ledger_path: str | os.PathLike[str]) -> Path:
    """Return the path of the index beside a ledger's file."""
    path = Path(ledger_path)
    return path.with_name(f"{path.stem}.recall{path.suffix or '.db'}")
