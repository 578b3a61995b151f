"""How fast the page opens a session, what a visit loads, and what an open tab costs the server. Prints Markdown.

A real browser on this machine, a server in a process of its own. Times are medians of fresh page loads, from the click
to the newest message on the screen; what is loaded is counted in bytes on the wire.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager

CHROMIUM = "/usr/bin/chromium"
SIZES = (100, 1_000, 10_000)
ROUNDS = 5
TABS = 16


def write_session(manager: ContextCompressionManager, count: int) -> None:
    """Write a session of so many messages, questions and answers in turn."""
    said = "What does this step of the plan ask for, and who signs it off before the week ends? " * 2
    messages = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at}: {said}"} for at in range(count)
    ]
    manager.append(f"of-{count}", messages)


def serve(workspace: Path) -> tuple[subprocess.Popen[str], str]:
    """Start ``refold serve`` in a workspace; return the process and its address."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_", "REFOLD_"))
    }
    command = [sys.executable, "-m", "refold", "serve", "--port", "0", "--workspace", str(workspace), "--quiet"]
    process = subprocess.Popen(command, env={**kept, "HOME": str(workspace)}, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found[0]
    raise SystemExit("refold serve did not start")


def open_session(page: Any, url: str, count: int) -> float:
    """Seconds until the newest message is on the screen."""
    started = time.perf_counter()
    page.goto(f"{url}/ui/session?name=of-{count}")
    page.locator(".turn").get_by_text(f"Message {count - 1}:").wait_for()
    return time.perf_counter() - started


def count_bytes(context: Any, url: str) -> list[int]:
    """Bytes on the wire of a first visit to a session, and of the next one in the same browser."""
    loaded = []
    for _ in range(2):
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        sizes: list[float] = []
        session.on("Network.loadingFinished", lambda event, sizes=sizes: sizes.append(event["encodedDataLength"]))
        open_session(page, url, 1_000)
        page.wait_for_timeout(1_000)
        loaded.append(int(sum(sizes)))
        page.close()
    return loaded


def read_memory(process: subprocess.Popen[str]) -> float:
    """Megabytes the server holds."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def measure(browser: Any, process: subprocess.Popen[str], url: str) -> tuple[dict[int, float], list[int], list[float]]:
    """Take all figures."""
    before = read_memory(process)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    loaded = count_bytes(context, url)
    page = context.new_page()
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for size in SIZES:
        open_session(page, url, size)  # The first one reads the session into the server's memory.
    opened = read_memory(process)
    pages = [context.new_page() for _ in range(TABS)]
    for one in pages:
        open_session(one, url, 1_000)
    time.sleep(2)
    full = read_memory(process)
    for one in pages:
        one.close()
    for _ in range(ROUNDS):
        for size in SIZES:
            times[size].append(open_session(page, url, size))
    return {size: statistics.median(taken) for size, taken in times.items()}, loaded, [before, opened, full]


def main() -> None:
    """Print the section."""
    if not Path(CHROMIUM).exists():
        sys.stdout.write("## The page\n\nNot measured here: there is no Chromium.\n")
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        (workspace / ".git").mkdir()
        with ContextCompressionManager(CompressionConfig(), workspace) as manager:
            for size in SIZES:
                write_session(manager, size)
        process, url = serve(workspace)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                times, loaded, memory = measure(browser, process, url)
                browser.close()
        finally:
            process.terminate()
            process.wait(30)
    before, opened, full = memory
    print("## The page (`benchmarks/bench_page.py`)\n")
    print("From the click to the newest message on the screen, in a browser that was here before; median of 5.\n")
    print("| session | seconds |\n|---|---|")
    for size, seconds in times.items():
        print(f"| {size:,} messages | {seconds:.2f} |")
    first, again = (f"{size / 1000:,.0f} KB" for size in loaded)
    print(f"\nA first visit loads {first}, the next one {again}; nothing of it from outside.")
    print(f"The server holds {before:.0f} MB before anybody looks, {opened:.0f} MB with the page loaded and three")
    print(f"sessions read, and {(full - opened) / TABS:.1f} MB more for each open tab.")


if __name__ == "__main__":
    main()
