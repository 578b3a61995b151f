"""Where a ledger is kept: a file, or a PostgreSQL server. Pure: nothing is opened here.

A server's address may hold a password. It is shown with the password blotted out, wherever it is shown; only whoever
connects asks for the whole of it, by name. What cannot be read is refused without being quoted.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from refold.errors import ConfigError

if TYPE_CHECKING:
    from refold.ledger.port import Ledger

LEDGER_FILE = ".refold/ledger.db"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SERVER = frozenset({"postgresql", "postgres"})
_SECRET = re.compile(r"(?i)(password|sslpassword|sslkey)=[^&]*")
_HOW = "give a file, or postgresql://user:password@host:5432/database"


class LedgerPlace:
    """A place to keep a ledger, as somebody wrote it. Printing it never shows a password."""

    __slots__ = ("_written",)

    def __init__(self, written: object) -> None:
        self._written: str = _check(written.reveal() if isinstance(written, LedgerPlace) else written)

    @property
    def kind(self) -> Literal["file", "postgres"]:
        """What keeps it."""
        return "postgres" if _SCHEME.match(self._written) else "file"

    def reveal(self) -> str:
        """Return the whole address, with its password: for connecting, never for showing."""
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
    """Return an address with its password blotted out; one that is odd shows nothing of who connects."""
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
    # Nothing that was written is quoted below: a password may be in it, in any place.
    if not isinstance(written, str) or not written.strip() or "\0" in written:
        raise ConfigError(f"ledger is not a text; {_HOW}")
    text = written.strip()
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() not in _SERVER:
        raise ConfigError(f"ledger names a store of the kind '{scheme[1][:20]}', which there is not; {_HOW}")
    authority = text[scheme.end() :].partition("?")[0]
    if authority.count("@") > 1 or "#" in text or not _has_whole_escapes(text):
        raise ConfigError("ledger is an address that cannot be read; write @ : / ? # % in a password as %40 %3A …")
    return text


def _has_whole_escapes(text: str) -> bool:
    return re.search(r"%(?![0-9A-Fa-f]{2})", text) is None


def choose_ledger(workspace: str | Path, place: LedgerPlace | str | None = None) -> Ledger:
    """Return the ledger of a workspace: the named file or server, else the file that every workspace has."""
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
            f"ledger = {place} needs psycopg ({error}); install it with: pip install 'refold[postgres]'"
        ) from None
    return PostgresLedger(place)


def find_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return the file of a ledger that is kept in one; a relative name starts at the workspace."""
    if place is None or place.kind != "file":
        return Path(workspace) / LEDGER_FILE
    return Path(workspace) / Path(place.reveal()).expanduser()


def find_place(ledger: Ledger, place: LedgerPlace | None) -> LedgerPlace | None:
    """Return where a ledger is kept: what it says itself, else what the settings say."""
    own = getattr(ledger, "place", None)
    return own if isinstance(own, LedgerPlace) else place


def find_index_file(workspace: str | Path, place: LedgerPlace | None = None) -> Path:
    """Return where the words of a ledger are indexed: beside its file, or in the workspace if a server keeps it.

    Two servers have two indexes: a session of one is not a session of the other.
    """
    if place is None or place.kind == "file":
        return index_path(find_file(workspace, place))
    name = blake2b(str(place).encode("utf-8", "replace"), digest_size=4).hexdigest()
    return (Path(workspace) / LEDGER_FILE).with_name(f"postgres-{name}.recall.db")


def index_path(ledger_path: str | os.PathLike[str]) -> Path:
    """Return where the index of a ledger's file is kept: beside it."""
    path = Path(ledger_path)
    return path.with_name(f"{path.stem}.recall{path.suffix or '.db'}")
