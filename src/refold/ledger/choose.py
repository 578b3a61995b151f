"""Choosing the store of a ledger by where it is kept: one place for the library, the commands and the gateway.

Nothing is opened before it is used: choosing makes no file and no connection.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from refold.errors import ConfigError
from refold.ledger.ledger import Ledger
from refold.ledger.place import LedgerPlace

LEDGER_FILE = ".refold/ledger.db"


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
