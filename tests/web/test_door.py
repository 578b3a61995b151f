"""Who may open the page, with and without keys: what the server answers, browser or not."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import aiohttp
import pytest

from refold.config.load import open_user_folder
from refold.server.auth import KeyRing
from tests.rigs.server import wait_for
from tests.rigs.web import serve, wait_ready
from tests.web.stories import leave_no_sample, open_manager

if importlib.util.find_spec("nicegui") is None:
    pytest.skip("nicegui is not installed; the page's tests need it", allow_module_level=True)

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def open_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("open")
    leave_no_sample(folder)
    with serve(folder) as address:
        yield address


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """A server with keys of three tenants, and a session of each."""
    folder = tmp_path_factory.mktemp("guarded")
    ring = KeyRing(folder)
    keys = {tenant: ring.add(tenant)[1] for tenant in ("anna", "bert", "carla")}
    with open_manager(folder) as manager:
        for tenant in keys:
            manager.append(f"@{tenant}/notes", [{"role": "user", "content": f"the secret of {tenant}"}])
    with serve(folder) as address:
        yield address, folder, keys


def ask(url: str, path: str, method: str = "GET", body: str = "", **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body or None, named)
        answer = connection.getresponse()
        return answer, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def sign_in(url: str, key: str) -> str:
    """Return the cookie for a key."""
    answer, _ = ask(url, "/ui/login", "POST", urlencode({"key": key}), **FORM)
    assert answer.status == 303
    return str(answer.getheader("set-cookie")).split(";")[0]


def try_socket(url: str, **headers: str) -> bool:
    """Tell whether a websocket of the page opens."""

    async def run() -> bool:
        async with aiohttp.ClientSession() as session:
            try:
                target = f"{url}/ui/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
                async with session.ws_connect(target, headers=headers) as socket:
                    return (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.TEXT
            except aiohttp.WSServerHandshakeError:
                return False

    return asyncio.run(run())


def test_the_root_leads_to_the_page(open_url: str) -> None:
    answer, _ = ask(open_url, "/")
    assert (answer.status, answer.getheader("location")) == (303, "/ui/")
    assert ask(open_url, "/ui")[0].getheader("location") == "/ui/"


def test_every_answer_forbids_what_comes_from_outside_and_frames(open_url: str) -> None:
    for path in ("/ui/", "/ui/look.css", "/ui/nothing-here"):
        answer, _ = ask(open_url, path)
        policy = str(answer.getheader("content-security-policy"))
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http:" not in policy
        assert "*" not in policy
        assert answer.getheader("x-frame-options") == "DENY"
        assert answer.getheader("x-content-type-options") == "nosniff"


def test_no_address_of_another_host_is_in_the_page(open_url: str) -> None:
    _, page = ask(open_url, "/ui/")
    assert "cdn" not in page.lower()
    assert "//fonts" not in page
    _, look = ask(open_url, "/ui/look.css")
    assert "@import" not in look
    assert "http" not in look.replace("http://www.w3.org/2000/svg", "")


def test_without_keys_another_name_of_this_machine_reaches_nothing(open_url: str) -> None:
    for host in ("evil.example", "evil.example:7788", "127.0.0.1.evil.example"):
        assert ask(open_url, "/ui/", host=host)[0].status == 403
    assert ask(open_url, "/ui/", host="localhost")[0].status == 200


def test_a_page_of_another_site_gets_no_answer(open_url: str) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"):
        assert ask(open_url, "/ui/", origin=origin)[0].status == 403
    assert ask(open_url, "/ui/", origin=open_url)[0].status == 200


def test_a_websocket_opens_for_this_site_only(open_url: str) -> None:
    assert try_socket(open_url, Origin=open_url)
    for origin in ("http://evil.example", "null", f"{open_url}.evil.example", "http://127.0.0.1:1"):
        assert not try_socket(open_url, Origin=origin)
    assert not try_socket(open_url), "a request without an origin does not come from a browser"


def test_a_prefix_that_a_client_names_is_not_written_into_the_page(open_url: str) -> None:
    _, page = ask(open_url, "/ui/", x_forwarded_prefix="/evil")
    assert "/evil" not in page


def test_with_keys_a_stranger_sees_the_form_and_nothing_else(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    for path in ("/ui/", "/ui/session?name=notes", "/ui/export?name=notes", "/ui/look.css", "/ui/statistics"):
        answer, body = ask(url, path)
        assert (answer.status, answer.getheader("location")) == (303, "/ui/login")
        assert "secret" not in body
    answer, form = ask(url, "/ui/login")
    assert answer.status == 200
    assert "Sign in" in form
    assert not try_socket(url, Origin=url)
    _, form = ask(url, "/ui/login", accept_language="zh-CN,zh;q=0.9")
    assert "登录" in form
    assert all(key not in form for key in keys.values())


def test_a_wrong_key_is_reported_and_sets_no_cookie(guarded: tuple[str, Path, dict[str, str]]) -> None:
    def try_key(given: str) -> tuple[HTTPResponse, str]:
        return ask(guarded[0], "/ui/login", "POST", urlencode({"key": given}), **FORM)

    with ThreadPoolExecutor(4) as pool:  # Each answer takes half a second.
        answers = list(pool.map(try_key, ("", "rk-wrong", "x" * 3_000, "rk-船")))
    for answer, body in answers:
        assert answer.status == 401
        assert answer.getheader("set-cookie") is None
        assert "is not valid" in body


def test_the_cookie_names_a_key_and_never_holds_it(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, folder, keys = guarded
    answer, _ = ask(url, "/ui/login", "POST", urlencode({"key": f"  {keys['anna']} "}), **FORM)
    cookie = str(answer.getheader("set-cookie"))
    assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= {one.strip() for one in cookie.split(";")}
    assert keys["anna"] not in cookie
    assert keys["anna"][3:] not in cookie
    secret = open_user_folder(folder).folder / "page.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_tenant_sees_its_own_sessions_only(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    cookie = sign_in(url, keys["anna"])
    _, exported = ask(url, "/ui/export?name=notes", cookie=cookie)
    assert json.loads(exported)["messages"][0]["raw"]["content"] == "the secret of anna"
    for name in ("@bert/notes", "../bert/notes", "/@bert/notes", "@anna/../@bert/notes"):
        answer, body = ask(url, f"/ui/export?{urlencode({'name': name})}", cookie=cookie)
        assert answer.status == 404
        assert "secret of bert" not in body
    _, listed = ask(url, "/ui/", cookie=cookie)
    assert "secret of anna" in listed
    assert "bert" not in listed


def test_a_changed_cookie_is_worth_nothing(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    cookie = sign_in(url, keys["anna"])
    name, _, value = cookie.partition("=")
    key_id, tenant, until, signature = value.split(".")
    for changed in (
        f"{key_id}.bert.{until}.{signature}",
        f"{key_id}.{tenant}.{int(until) + 1}.{signature}",
        f"{key_id}.{tenant}.{until}.{'0' * 64}",
        f"{key_id}.{tenant}.{until}.",
        "...",
        "",
        "x" * 7_000,
    ):
        assert ask(url, "/ui/", cookie=f"{name}={changed}")[0].status == 303
    assert ask(url, "/ui/", cookie=cookie)[0].status == 200


def test_signing_out_takes_the_cookie_back(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    answer, _ = ask(url, "/ui/leave", "POST", cookie=sign_in(url, keys["bert"]))
    assert "Max-Age=0" in str(answer.getheader("set-cookie"))


def test_a_form_of_another_site_cannot_sign_anybody_in_or_out(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    for path in ("/ui/login", "/ui/leave"):
        answer, _ = ask(url, path, "POST", urlencode({"key": keys["anna"]}), **FORM, origin="http://evil.example")
        assert answer.status == 403
        assert answer.getheader("set-cookie") is None


def test_a_revoked_key_ends_the_visit(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, folder, keys = guarded
    cookie = sign_in(url, keys["carla"])
    assert ask(url, "/ui/", cookie=cookie)[0].status == 200
    ring = KeyRing(folder)
    ring.revoke(next(one.id for one in ring.list_keys() if one.tenant == "carla"))
    wait_for(lambda: ask(url, "/ui/", cookie=cookie)[0].status == 303)  # The file is looked at twice a second.
    assert not try_socket(url, Origin=url, Cookie=cookie)


def test_the_gateway_and_the_interface_still_want_their_keys(guarded: tuple[str, Path, dict[str, str]]) -> None:
    url, _, keys = guarded
    cookie = sign_in(url, keys["anna"])
    assert ask(url, "/api/sessions", cookie=cookie)[0].status == 401
    assert ask(url, "/v1/models", cookie=cookie)[0].status == 401


@pytest.mark.slow
def test_without_the_extra_the_gateway_serves_and_says_how_to_get_a_page(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    script = (
        "import sys; sys.modules['nicegui'] = None; "
        f"sys.argv = ['refold', 'serve', '--port', '0', '--workspace', {str(tmp_path)!r}, '--quiet']; "
        "from refold.cli.main import main; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        told = [process.stderr.readline(), process.stderr.readline()]
        assert "pip install 'refold[web]'" in told[1]
        url = re.search(r"http://\S+", told[0])
        assert url is not None
        wait_ready(url[0])
        assert ask(url[0], "/livez")[0].status == 200
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()


def test_an_error_of_the_page_is_in_the_language_of_the_browser(open_url: str) -> None:
    for language, expected in (("zh-CN,zh;q=0.9", "没有会话 'nobody'"), ("en", "there is no session 'nobody'")):
        answer, body = ask(open_url, "/ui/export?name=nobody", accept_language=language)
        assert (answer.status, body) == (404, expected)
