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
from tests.server.running import wait_for
from tests.web.served import serve
from tests.web.stories import open_manager
from tests.web.test_door import ask, sign_in

if importlib.util.find_spec("nicegui") is None:
    pytest.skip("nicegui is not installed; the page's tests need it", allow_module_level=True)

BOUNDARY = "refold-boundary"
FORM = {"content_type": f"multipart/form-data; boundary={BOUNDARY}"}
LIMIT = 60_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, str]]:
    """A server with a tenant that may store little, and the tenant's cookie."""
    folder = tmp_path_factory.mktemp("import")
    (folder / "refold.yaml").write_text(f"gateway:\n  tenant_bytes: {LIMIT}\n")
    written = read_file(folder / "refold.yaml")
    assert written is not None
    trust_file(written)
    key = KeyRing(folder).add("anna")[1]
    with serve(folder) as url:
        yield url, folder, sign_in(url, key)


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


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def list_sessions(folder: Path) -> list[str]:
    with open_manager(folder) as manager:
        return sorted(row.id for row in manager.ledger.list_sessions(limit=100))


def test_an_import_never_exceeds_the_storage_of_its_tenant(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    answer, _ = ask(url, "/ui/import", "POST", make_form(large=4 * LIMIT, small=2_000), cookie=cookie, **FORM)
    assert answer.status == 204
    wait_for(lambda: "@anna/small" in list_sessions(folder))
    wait_for(lambda: ask(url, "/ui/import", "POST", make_form(next=2_000), cookie=cookie, **FORM)[0].status == 204)
    wait_for(lambda: "@anna/next" in list_sessions(folder))
    assert list_sessions(folder) == ["@anna/next", "@anna/small"]
    with open_manager(folder) as manager:
        assert manager.ledger.measure("@anna/") <= LIMIT


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
        answers = [read_all(uploading).partition(b"\r\n")[0] for uploading, _ in uploads]
    assert sorted(one.split()[1] for one in answers) == [b"204", b"409"]
    wait_for(lambda: len({"@anna/one", "@anna/two"} & set(list_sessions(folder))) == 1)


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
    wait_for(lambda: "@anna/again" in list_sessions(folder))


def test_a_conversation_with_half_a_character_is_imported(gateway: tuple[str, Path, str]) -> None:
    url, folder, cookie = gateway
    form = make_form(half=1_000).replace("Tell me more.", "Tell me \\ud83d more.").replace("word ", "\\ud83d ")
    wait_for(lambda: ask(url, "/ui/import", "POST", form, cookie=cookie, **FORM)[0].status == 204)
    wait_for(lambda: ask(url, "/ui/import", "POST", make_form(last=100), cookie=cookie, **FORM)[0].status == 204)
    assert "@anna/half" in list_sessions(folder)
