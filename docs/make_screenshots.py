"""Makes the pictures of the page in ``docs/images``: every page, wide and narrow, light and dark. ``make screenshots``.

Serves a workspace of its own with the bundled sample and a few more sessions; nothing outside of it is read or written.
What the pictures of the two READMEs show is written beside them (``shown.json``); tests/docs/test_pictures.py opens the
same pages and compares.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold import CompressionConfig, ContextCompressionManager
from refold.testing import Fault, RecordedRequest, ScriptedProvider, ScriptedReply, call_tool, drip, say

IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"
WIDE, NARROW, LARGE = (1280, 800), (390, 844), (1440, 900)
SAMPLE = "sample-harbour-billing"
# Long, because machines are shared; a page is there as soon as what is wanted is.
WAIT_MS = 90_000
SHOWN = IMAGES / "shown.json"
# Pictures that the READMEs show.
DESCRIBED = ("page-session", "page-session-zh")
# Words of the page itself, and the figures that it shows, as far as they are in the window. What a conversation or its
# summary says is left out: `figures within 25%` is what a test can hold them to.
DESCRIBE = """() => {
  const isShown = (one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && box.width && box.top < window.innerHeight && box.bottom > 0;
  };
  const read = (wanted) => [...document.querySelectorAll(wanted)]
    .filter((one) => isShown(one) && !one.closest(".prose, .turn"))
    .map((one) => one.innerText.trim().replace(/\\s+/g, " ")).filter(Boolean);
  return {
    words: read("nav a, h1, h2, button, dt, .fold-links a").filter((one) => !/\\d/.test(one)),
    figures: [...read(".gauge-share, .gauge-of"), ...read(".part-row dd").filter((one) => /^[\\d,]+$/.test(one)),
      ...read(".fold-figures").slice(0, 1)].flatMap(
      (one) => (one.match(/\\d[\\d,]*(?:\\.\\d+)?/g) ?? []).map((figure) => Number(figure.replaceAll(",", "")))),
  };
}"""
# Without a font for it every Chinese character is the same box.
HAS_CHINESE = """() => {
  const draw = (text) => {
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d");
    pen.font = "40px sans-serif";
    pen.fillText(text, 5, 50);
    return canvas.toDataURL();
  };
  return draw("\u7f51") !== draw("\u5173");
}"""


@dataclass(frozen=True)
class Picture:
    """One picture: its file, the address, what must be there first, what to do before it is taken."""

    name: str
    path: str
    size: tuple[int, int] = WIDE
    colours: str = "light"
    language: str = "en-GB"
    wanted: str = "#main"
    act: Callable[[Any], None] | None = None


def scroll_until(page: Any, wanted: str, top: int) -> None:
    """Stay at one place of a conversation until something is there."""
    page.wait_for_function(
        "([wanted, top]) => { const box = document.querySelector('.talk-scroll'); if (box) box.scrollTop = top;"
        " return document.querySelector(wanted) }",
        arg=[wanted, top],
    )


def look_at_fold(page: Any) -> None:
    """Bring the first fold into view."""
    page.locator(".gauge-share").wait_for()
    page.locator(".timeline").wait_for()
    page.locator(".fold").first.wait_for()


def open_start(page: Any) -> None:
    """Open the ways to begin."""
    page.locator(".start > summary").click()


def compare(page: Any) -> None:
    """Show one request before and after."""
    page.locator(".timeline").wait_for()
    page.get_by_role("button", name="Before / after").click()
    page.locator(".pane-before .turn:not(.waiting)").first.wait_for()
    page.locator(".pane-after .fold").first.wait_for()


def ask_for_folded(page: Any) -> None:
    """Ask for something that was folded away, and open what recall found."""
    page.get_by_role("button", name="Ask about something folded").click()
    page.locator(".recalled").last.wait_for()
    page.locator(".recalled").last.click()
    page.locator(".q-notification").wait_for(state="detached")


def look_at_difference(page: Any) -> None:
    """Show what the model no longer sees."""
    page.locator(".turn").first.wait_for()
    page.get_by_role("button", name="Difference").click()
    scroll_until(page, ".look-difference .turn.gone", 900)


def preview_compression(page: Any) -> None:
    """Open the dialog that compresses, with a preview in it."""
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Compress now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("keep every invoice number")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("heading", name="What would go").wait_for()
    dialog.locator("summary").last.click()


def see_curves(page: Any) -> None:
    """Hover a curve."""
    box = page.locator(".chart").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.46, box["y"] + box["height"] * 0.45)


def change_settings(page: Any) -> None:
    """Type one value that holds and one that does not."""
    page.locator("[data-setting=trigger_ratio] input").fill("75%")
    page.locator("[data-setting=target_ratio] input").fill("90%")
    page.locator(".setting-error:visible, .save-problem:visible").first.wait_for()
    page.mouse.wheel(0, 330)


def talk(page: Any) -> None:
    """Ask for something that takes a tool, then for something that takes a while."""
    page.locator(".composer-field:enabled").fill("How much room is left in this conversation?")
    page.keyboard.press("Enter")
    page.get_by_text("Plenty of room").first.wait_for(timeout=30_000)
    page.locator(".turn", has_text="barely begun").wait_for(timeout=30_000)
    page.locator(".composer-field:enabled").fill("Good. Draft the note to the harbour master.")
    page.keyboard.press("Enter")
    page.locator(".live-text", has_text="credit notes").wait_for(timeout=30_000)


def answer(request: RecordedRequest) -> ScriptedReply | Fault:
    """Say what the model says in the picture of a chat."""
    if not request.json.get("tools"):
        return say("")  # A summary is asked for; the one without a model is what most people see.
    if request.messages[-1].get("role") == "tool":
        return say("We have **barely begun**: less than one percent of the window is used, and nothing was folded yet.")
    if "room" in request.prompt:
        return call_tool("context_status", {}, text="I look at the context first.")
    words = (
        "Dear harbour master, the guests who slept over the night of 25 October were charged one night too many. "
        "The fix is released as 3.5.0; the credit notes carry the series CN-77 and go out by the end of the month. "
    )
    return drip(words * 6, pause_s=0.08)


SESSION = f"/session?name={SAMPLE}"
TALK = ".turn-place"
PICTURES = (
    Picture("page-sessions", "/", wanted=".saved.good-text", act=open_start),
    Picture("page-sessions-phone", "/", NARROW, "dark", wanted=".saved.good-text"),
    Picture("page-session", SESSION, wanted=TALK, act=look_at_fold),
    Picture("page-session-dark", SESSION, colours="dark", wanted=TALK, act=look_at_fold),
    Picture("page-session-phone", SESSION, NARROW, wanted=TALK, act=look_at_fold),
    Picture("page-session-zh", SESSION, language="zh-CN", wanted=TALK, act=look_at_fold),
    Picture("page-compare", SESSION, LARGE, wanted=TALK, act=compare),
    Picture("page-difference", SESSION, wanted=TALK, act=look_at_difference),
    Picture("page-compress", SESSION, wanted=TALK, act=preview_compression),
    Picture("page-statistics", "/statistics", wanted=".chart canvas", act=see_curves),
    Picture("page-statistics-phone", "/statistics", NARROW, "dark", wanted=".chart canvas"),
    Picture("page-recall", "/recall?query=credit+notes", wanted=".result"),
    Picture("page-memory", "/memory", wanted=".entry"),
    Picture("page-settings", "/settings", wanted="[data-setting]", act=change_settings),
    Picture("page-settings-phone", "/settings", NARROW, "dark", "zh-CN", wanted="[data-setting]"),
    Picture("page-chat", "/chat", wanted=".composer-field:enabled", act=talk),
    # Last: what is said in it would be in the other pictures.
    Picture("page-recalled", SESSION, wanted=TALK, act=ask_for_folded),
)


def write_sessions(workspace: Path) -> None:
    """Write sessions beside the sample: a long one and a small one."""
    filler = "The customer asks for oak boards, four metres, planed on both sides, by the end of the week. "
    with ContextCompressionManager(CompressionConfig(window=48_000, reserve=4_000), workspace) as manager:
        for at in range(60):
            manager.append(
                "shop-chat",
                [
                    {"role": "user", "content": f"Order {4_100 + at}: {filler * 6}"},
                    {
                        "role": "assistant",
                        "content": f"Order {4_100 + at} is noted, invoice INV-{7_700 + at}. {filler * 4}",
                    },
                ],
            )
        manager.append(
            "g-5f0c41d2a9b3",
            [
                {"role": "user", "content": "翻新公寓：请比较三家地板供应商的报价。"},
                {"role": "assistant", "content": "好的。"},
            ],
        )


def serve(workspace: Path, provider: ScriptedProvider) -> tuple[subprocess.Popen[str], str]:
    """Start ``refold serve`` in a workspace; return the process and its address."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_", "REFOLD_"))
    }
    environment = {**kept, "HOME": str(workspace), "OPENAI_API_KEY": "scripted", "OPENAI_BASE_URL": provider.openai_url}
    command = [sys.executable, "-m", "refold", "serve", "--port", "0", "--workspace", str(workspace), "--quiet"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found[0]
    raise SystemExit("refold serve did not start")


def show(browser: Any, url: str, picture: Picture) -> Any:
    """Open the page of a picture and do what is to be done before it is taken."""
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=picture.colours, locale=picture.language
    )
    page = context.new_page()
    context.set_default_timeout(WAIT_MS)
    page.goto(f"{url}/ui{picture.path}")
    page.locator(picture.wanted).first.wait_for()
    if picture.act is not None:
        picture.act(page)
    page.wait_for_timeout(1_200)
    return page


def describe(page: Any) -> dict[str, list[Any]]:
    """Return the words of the page itself and the figures that it shows."""
    found: dict[str, list[Any]] = page.evaluate(DESCRIBE)
    return {"words": sorted(set(found["words"])), "figures": found["figures"]}


@contextmanager
def open_pages(folder: Path) -> Iterator[tuple[Any, str]]:
    """Serve a workspace with sessions; give a browser and the address."""
    from playwright.sync_api import sync_playwright

    (folder / ".git").mkdir()
    with ScriptedProvider(answer) as provider:
        process, url = serve(folder, provider)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page()
                page.goto(f"{url}/ui/")
                page.locator(".session-link").wait_for(timeout=90_000)  # The sample.
                write_sessions(folder)
                time.sleep(1)
                yield browser, url
                browser.close()
        finally:
            process.terminate()
            process.wait(30)
            assert process.stderr is not None
            process.stderr.close()


def main() -> None:
    """Take all pictures, or those whose names are given."""
    wanted = [one for one in PICTURES if not sys.argv[1:] or one.name in sys.argv[1:]]
    IMAGES.mkdir(exist_ok=True)
    shown = json.loads(SHOWN.read_text(encoding="utf-8")) if SHOWN.exists() else {}
    with tempfile.TemporaryDirectory() as folder, open_pages(Path(folder)) as (browser, url):
        if not browser.contexts[0].pages[0].evaluate(HAS_CHINESE):
            raise SystemExit("no font for Chinese is installed; on Debian: apt-get install fonts-noto-cjk")
        for picture in wanted:
            page = show(browser, url, picture)
            page.screenshot(path=IMAGES / f"{picture.name}.png")
            if picture.name in DESCRIBED:
                shown[picture.name] = describe(page)
            page.context.close()
            sys.stderr.write(f"{picture.name}\n")
    SHOWN.write_text(json.dumps(shown, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
