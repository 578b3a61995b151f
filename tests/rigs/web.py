"""The base of the page's tests: ``refold serve`` in its own process, and a real browser that records its errors.

A page that throws, logs an error or asks for anything outside fails the test that opened it.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = "/usr/bin/chromium"
START_S = 120
# Long, because the machines that run this are shared; whatever waits this long has failed.
TIMEOUT_MS = 120_000
# Scripts that must never run, in every kind of quotes that a page might have around a text.
PAYLOAD = (
    "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=1'>"
    "\"><iframe srcdoc='<script>parent.hacked=1</script>'></iframe> [x](javascript:window.hacked=1) "
    "![p](http://evil.example/p.png) {{constructor.constructor('window.hacked=1')()}} </script></textarea>"
)


_browsers: list[Browser] = []


def need_browser() -> None:
    """Skip a module where the page or a browser cannot be had."""
    for name in ("nicegui", "playwright"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; the page's tests need it", allow_module_level=True)
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there; the page's tests need a browser", allow_module_level=True)


@contextmanager
def serve(
    workspace: Path, port: int = 0, started: list[subprocess.Popen[str]] | None = None, **variables: str
) -> Iterator[str]:
    """Run ``refold serve`` in a workspace; give its address. Only the named variables of providers are set.

    Whoever hands in ``started`` gets the process in it, to end it more rudely. Its pages are closed before it ends,
    unless a ``port`` is named: such a test starts another server there.
    """
    ours = ("OPENAI_", "ANTHROPIC_", "REFOLD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    (workspace / ".git").mkdir(exist_ok=True)  # Settings of folders above are not looked at.
    command = [sys.executable, "-m", "refold", "serve", "--port", str(port), "--workspace", str(workspace), "--quiet"]
    environment = {**kept, "HOME": str(workspace), **variables}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if started is not None:
        started.append(process)
    assert process.stderr is not None
    told: list[str] = []
    found: re.Match[str] | None = None
    reader = threading.Thread(target=lambda: told.extend(process.stderr or ()), daemon=True)
    try:
        for line in process.stderr:
            told.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError("".join(told))
        # Read on, so that the server never waits for whoever reads its log.
        reader.start()
        wait_ready(found[0])
        yield found[0]
    finally:
        for browser in _browsers:
            if found and not port:
                browser.leave(found[0])
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if reader.ident is not None:
            reader.join(START_S)  # Nobody reads a file that is closed.
        process.stderr.close()


def wait_ready(url: str) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)


class Browser:
    """A browser for one module; every page it opens is watched."""

    def __init__(self, playwright: Any) -> None:
        self._browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        # Pages with the same options share what is cached, cookies apart: half of opening one is reading scripts.
        self._contexts: dict[str, Any] = {}
        self._pages: list[Any] = []
        self.problems: list[str] = []

    def open(self, url: str, *, width: int = 1280, height: int = 800, language: str = "en-US", **options: Any) -> Any:
        """Open a page in a window of its own."""
        kind = f"{language} {options}"
        if kind not in self._contexts:
            self._contexts[kind] = self._browser.new_context(locale=language, **options)
            self._contexts[kind].set_default_timeout(TIMEOUT_MS)
        page = self._contexts[kind].new_page()
        page.set_viewport_size({"width": width, "height": height})
        self._pages.append(page)
        host = url.split("/ui")[0]
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((host, "data:", "blob:", "ws://127.0.0.1"))
                else self.problems.append(f"asked outside: {asked.url}")
            ),
        )
        page.goto(url)
        return page

    def leave(self, address: str) -> None:
        """Close the pages of a server that is about to end: a page that cannot connect complains."""
        for page in self._pages:
            if page.url.startswith(address):
                page.close()

    def close_pages(self) -> None:
        """Close all pages and fail if one of them had a problem."""
        for page in self._pages:
            page.close()
        self._pages.clear()
        for context in self._contexts.values():
            context.clear_cookies()
        problems, self.problems = self.problems, []
        assert not problems, "\n".join(problems)[:3_000]

    def close(self) -> None:
        """End the browser."""
        self._browser.close()


@contextmanager
def browse() -> Iterator[Browser]:
    """Start a browser; it is closed before the module ends, since it has an event loop of its own."""
    from playwright.sync_api import sync_playwright

    try:
        with sync_playwright() as playwright:
            browser = Browser(playwright)
            _browsers.append(browser)
            try:
                yield browser
            finally:
                _browsers.remove(browser)
                browser.close()
    finally:
        # The driver's pipes hang in cycles with its event loop: collect them here, not in whichever test comes next.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def is_harmless(page: Any) -> bool:
    """Tell whether nothing of a payload ran or became an element."""
    return bool(
        page.evaluate(
            "window.hacked === undefined"
            " && !document.querySelector('main iframe, main svg[onload], main img, main script')"
            " && ![...document.querySelectorAll('main a')].some(a => a.href.startsWith('javascript:'))"
        )
    )


def is_within(page: Any) -> bool:
    """Tell whether nothing makes the page wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def keep_notices(page: Any) -> None:
    """Keep the words of every notification from now on; one is gone after four seconds."""
    page.evaluate(
        """() => {
          window.notices = [];
          const keep = () => document.querySelectorAll(".q-notification").forEach((one) => {
            if (!window.notices.includes(one.innerText)) window.notices.push(one.innerText);
          });
          new MutationObserver(keep).observe(document.body, { childList: true, subtree: true, characterData: true });
        }"""
    )


def read_notices(page: Any) -> str:
    """Wait for a notification since ``keep_notices``; return the words of all."""
    page.wait_for_function("window.notices.length")
    return str(page.evaluate("window.notices.join('\\n')"))


def wait_for_rows(page: Any) -> None:
    """Wait until every row of a conversation that is near has its content."""
    page.wait_for_function(
        "document.querySelector('.talk .turn-place') && !document.querySelector('.talk .turn.waiting')"
    )
