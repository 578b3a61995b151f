"""Importing files on the page: one import of a tenant at a time, and within the tenant's storage."""

from __future__ import annotations

import importlib.util
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from refold.config.load import read_file, trust_file
from refold.server.auth import KeyRing
from tests.rigs.server import wait_for
from tests.rigs.web import serve
from tests.web.stories import open_manager
from tests.web.test_door import ask, sign_in

if importlib.util.find_spec("nicegui") is None:
    pytest.skip("nicegui is not installed; the page's tests need it", allow_module_level=True)

BOUNDARY = "refold-boundary"
FORM = {"content_type": f"multipart/form-data; boundary={BOUNDARY}"}
LIMIT = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Iterator[str]]]:
    """A server whose tenants may store little, and their keys."""
    folder = tmp_path_factory.mktemp("import")
    (folder / "refold.yaml").write_text(f"gateway:\n  tenant_bytes: {LIMIT}\n")
    written = read_file(folder / "refold.yaml")
    assert written is not None
    trust_file(written)
    keys = iter([KeyRing(folder).add(f"tenant{number}")[1] for number in range(10)])
    with serve(folder) as url:
        yield url, folder, keys


@pytest.fixture
def gateway(served: tuple[str, Path, Iterator[str]]) -> tuple[str, Path, str]:
    """The server, and the cookie of a tenant that has imported nothing."""
    url, folder, keys = served
    return url, folder, sign_in(url, next(keys))


def make_talk(chars: int) -> list[dict[str, str]]:
    turns = [("user", "Tell me more."), ("assistant", "word " * (chars // 20))] * 4
    return [{"role": role, "content": text} for role, text in turns]


def make_form(**talks: int) -> str:
    """Return an upload of one file for each name, with a conversation of so many characters."""
    parts = [
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="files"; filename="{name}.json"\r\n\r\n'
        f"{json.dumps(make_talk(chars))}\r\n"
        for name, chars in talks.items()
    ]
    return f"{''.join(parts)}--{BOUNDARY}--\r\n"


def find_address(url: str) -> tuple[str, int]:
    return urlsplit(url).hostname or "", urlsplit(url).port or 0


def read_status(connection: socket.socket) -> bytes:
    """Return the status of an answer; a connection that is closed before the whole upload was read may lose a 409."""
    try:
        return connection.recv(65_536).split(b" ")[1]
    except (ConnectionResetError, IndexError):
        return b"409"


def list_sessions(folder: Path) -> list[str]:
    """Return the names of all tenants' sessions; each test has its own."""
    with open_manager(folder) as manager:
        return sorted(row.id.partition("/")[2] for row in manager.ledger.list_sessions(limit=100))


def test_an_import_never_exceeds_the_storage_of_its_tenant(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    answer, _ = ask(url, "/ui/import", "POST", make_form(large=4 * LIMIT, small=2_000), cookie=cookie, **FORM)
    assert answer.status == 204
    wait_for(lambda: "small" in list_sessions(folder))
    wait_for(lambda: ask(url, "/ui/import", "POST", make_form(next=2_000), cookie=cookie, **FORM)[0].status == 204)
    wait_for(lambda: "next" in list_sessions(folder))
    with open_manager(folder) as manager:
        tenant = next(row.id for row in manager.ledger.list_sessions(limit=100) if row.id.endswith("/small"))
        assert manager.ledger.measure(tenant.removesuffix("small")) <= LIMIT
    assert "large" not in list_sessions(folder)


def test_of_two_imports_that_are_uploaded_at_once_one_is_taken(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    with ExitStack() as opened:
        uploads = []
        for name in ("one", "two"):
            body = make_form(**{name: 1_000}).encode()
            head = (
                f"POST /ui/import HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncookie: {cookie}\r\nconnection: close\r\n"
                f"content-type: {FORM['content_type']}\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            uploading = opened.enter_context(socket.create_connection(find_address(url), timeout=60))
            uploading.sendall(head.encode() + body[:200])
            uploads.append((uploading, body[200:]))
        for uploading, rest in uploads:
            with suppress(OSError):  # A refused one may be closed already.
                uploading.sendall(rest)
        assert sorted(read_status(uploading) for uploading, _ in uploads) == [b"204", b"409"]
    wait_for(lambda: len({"one", "two"} & set(list_sessions(folder))) == 1)


def test_an_upload_that_breaks_off_leaves_the_way_free(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    head = (
        f"POST /ui/import HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncookie: {cookie}\r\n"
        f"content-type: {FORM['content_type']}\r\ncontent-length: 5000\r\n\r\n--{BOUNDARY}\r\n"
    )
    with socket.create_connection(find_address(url), timeout=60) as uploading:
        uploading.sendall(head.encode())
    again = make_form(again=1_000)
    wait_for(lambda: ask(url, "/ui/import", "POST", again, cookie=cookie, **FORM)[0].status == 204)
    wait_for(lambda: "again" in list_sessions(folder))


def test_a_conversation_with_half_a_character_is_imported(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    form = make_form(half=1_000).replace("Tell me more.", "Tell me \\ud83d more.").replace("word ", "\\ud83d ")
    wait_for(lambda: ask(url, "/ui/import", "POST", form, cookie=cookie, **FORM)[0].status == 204)
    wait_for(lambda: ask(url, "/ui/import", "POST", make_form(last=100), cookie=cookie, **FORM)[0].status == 204)
    assert "half" in list_sessions(folder)
