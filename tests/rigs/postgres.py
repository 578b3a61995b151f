"""The PostgreSQL server that the tests share: named by ``REFOLD_TEST_POSTGRES``, else started when first asked for.

Tests that need one skip, with what to do about it, where there is none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from refold.testing.postgres import ENVIRONMENT, PostgresServer, find_binaries

# The value of a fixture that runs its tests on both stores: those on the server are slow, the smoke tests are not.
ON_POSTGRES = pytest.param("postgres", marks=pytest.mark.slow)
_NUMBERS = count()
_STARTED: list[PostgresServer] = []


@cache
def own_server() -> PostgresServer:
    """A server that the tests may stop and start."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'refold[postgres]'")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(f"no PostgreSQL here: install its server, or name one that runs in {ENVIRONMENT}")
    _STARTED.append(PostgresServer(binaries))
    return _STARTED[-1]


def server_url() -> str:
    """The address of a database in which the tests may do what they like."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'refold[postgres]'")
    return os.environ.get(ENVIRONMENT, "").strip() or own_server().url()


def schema_of(folder: Path) -> str:
    """A schema for each folder, as a folder is for a store in a file."""
    return "t" + hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()


@contextmanager
def empty_database(url: str | None = None) -> Iterator[str]:
    """The address of a database of its own, taken away at the end."""
    import psycopg

    address = url or server_url()
    name = f"refold_test_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    parts = urlsplit(address)
    yield urlunsplit(parts._replace(path=f"/{name}")).replace(":/?", ":///?").replace(f":/{name}", f":///{name}")
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def stop_servers() -> None:
    """Stop what was started here."""
    while _STARTED:
        _STARTED.pop().remove()
