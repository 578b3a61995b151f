"""What PostgreSQL reports, told as a LedgerError: what is wrong, at which server, what to do next.

No password is ever told. What the server itself says is quoted, which holds none; what the driver says about an
address it could not read is not.
"""

from __future__ import annotations

import psycopg

from refold.errors import LedgerError

# By the first letters of SQLSTATE, the longest that fits: https://www.postgresql.org/docs/current/errcodes-appendix.html
_NEXT_STEP = {
    "08": "the connection to the server was lost; check that it runs and can be reached",
    "28": "the server refuses this user or password; check both in the address, and pg_hba.conf on the server",
    "3D000": "the server has no such database; make it, or name another in the address",
    "22021": "the database cannot hold this text; make one with the encoding UTF8",
    "22P05": "the database cannot hold this text; make one with the encoding UTF8",
    "25006": "the server is read-only, as a standby is; name the primary server, nothing was written",
    "40": "another process changed the same at the same time; try again, nothing was written",
    "42501": "this user may not do that; grant it the schema and its tables, or let an owner open the ledger once",
    "42P01": "a table of the ledger is missing; restore it from a copy",
    "42703": "a column of the ledger is missing; restore it from a copy",
    "53100": "the server's disk is full; free space there, nothing was written",
    "53200": "the server is out of memory; nothing was written",
    "53300": "the server has no connection left; raise its max_connections, or lower connections_max",
    "54": "one message is larger than the server can hold; nothing was written",
    "55P03": "another process kept the session locked for too long; try again",
    "57014": "the server took too long and was stopped; try again, or raise timeout_s",
    "57P": "the server is stopping or starting; try again",
    "58": "the server cannot read or write its disk; see its log",
    "XX": "the server's data are damaged; stop, and see its log",
}
# A server that lets nobody in tells why in words only, mostly English ones; what is not known here is quoted.
_REFUSALS = {
    "password": _NEXT_STEP["28"],
    "authentication": _NEXT_STEP["28"],
    "pg_hba.conf": _NEXT_STEP["28"],
    "role ": _NEXT_STEP["28"],
    "database ": _NEXT_STEP["3D000"],
    "too many": _NEXT_STEP["53300"],
    "connection slots": _NEXT_STEP["53300"],
}
_STARTING = ("starting up", "not yet accepting", "shutting down", "recovery mode")
_LOST = ("08", "57P01", "57P02", "57P03", "57P05")
_CAUSES_MAX = 10
_PASSED = frozenset({"40001", "40P01"})


def is_lost(error: psycopg.Error, db: psycopg.Connection[tuple[object, ...]] | None = None) -> bool:
    """Tell whether the connection is gone, so that whatever was not committed never happened."""
    if db is not None and db.broken:
        return True
    # Leaving a pipeline whose connection is gone may fail in its own words; what it died of stands behind that.
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(_LOST):
            return True
        cause = cause.__context__ if cause else None
    return False


def is_passing(error: psycopg.Error) -> bool:
    """Tell whether the same may well succeed when it is tried again at once."""
    return error.sqlstate in _PASSED


def is_away(error: psycopg.Error, *, was_reached: bool) -> bool:
    """Tell whether a server that could not be reached may be there in a moment: one that starts, or did run before."""
    said = str(error)
    return any(word in said for word in _STARTING) or (was_reached and _find_refusal(said) is None)


def explain_refusal(error: psycopg.Error, where: str) -> LedgerError:
    """Return the LedgerError for a connection that was not made."""
    said = str(error)
    step = (
        _find_refusal(said) or "the server cannot be reached; check that it runs, and the host and port in the address"
    )
    told = " ".join(said.removeprefix("connection failed: ").split())[:300]
    return LedgerError(f"{where}: {step} ({told})")


def _find_refusal(said: str) -> str | None:
    if "FATAL" not in said and "password" not in said:
        return None
    return next((step for word, step in _REFUSALS.items() if word in said), None)


def explain_error(error: psycopg.Error, where: str) -> LedgerError:
    """Return the LedgerError that tells an operator what to do."""
    code = error.sqlstate or ""
    step = next((_NEXT_STEP[code[:size]] for size in (5, 3, 2) if code[:size] in _NEXT_STEP), "")
    if not step:
        step = "the server cannot be reached or used" if isinstance(error, psycopg.OperationalError) else "it failed"
    return LedgerError(f"{where}: {step} ({_quote(error)})")


def _quote(error: psycopg.Error) -> str:
    said = error.diag.message_primary or str(error)
    return f"{type(error).__name__}: {' '.join(said.split())[:300]}"
