"""The address of a server as the driver takes it, and names as SQL takes them. No password is ever told in an error."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from refold.errors import ConfigError
from refold.ledger.place import LedgerPlace

# A server that vanished without a word is noticed after a minute, not after two hours.
_DEFAULTS = {
    "application_name": "refold",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


def read_address(place: LedgerPlace) -> str:
    """Return the address as the driver takes it, with our defaults where it says nothing."""
    try:
        given = conninfo_to_dict(place.reveal())
    except psycopg.Error:
        given = None
    if given is None:  # Told apart from the driver's own words, which quote what it could not read.
        raise ConfigError(
            f"ledger = {place} cannot be read as an address of PostgreSQL; see its parameters, and write "
            "@ : / ? # % in a password as %40 %3A …"
        )
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "utf8"})


def quote_name(name: str) -> str:
    """Return a name as it stands in a statement."""
    if not name or len(name.encode("utf-8", "replace")) > 63 or "\0" in name:
        raise ConfigError("a schema's name has 1 to 63 bytes and no NUL")
    return '"' + name.replace('"', '""') + '"'
