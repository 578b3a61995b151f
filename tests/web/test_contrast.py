"""Every text of every page can be read in both modes: its contrast with what lies behind it is at least 4.5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.web.sample import NAME, QUESTIONS, SamplePlayer, make_sample
from tests.web.served import Browser, need_browser, serve

need_browser()
pytestmark = pytest.mark.slow  # Opens every page twice.

CONTRAST_MIN = 4.5
# Returns the texts that are hard to read. Disabled controls are exempt, as in WCAG.
FIND_FAINT = """(least) => {
  const parse = (text) => {
    const found = text.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (text.startsWith("color(srgb")) return [found[0] * 255, found[1] * 255, found[2] * 255, found[3] ?? 1];
    return [found[0], found[1], found[2], found[3] ?? 1];
  };
  const over = (top, below) => {
    const share = top[3];
    return [0, 1, 2].map((at) => top[at] * share + below[at] * (1 - share)).concat(1);
  };
  const light = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!words || !element || element.closest("[disabled], script, style, option, .hidden-text, .skip, svg")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    let share = 1;
    for (let one = element; one; one = one.parentElement) share *= Number(getComputedStyle(one).opacity);
    const back = behind(element);
    const colour = parse(getComputedStyle(element).color);
    const front = over([colour[0], colour[1], colour[2], colour[3] * share], back);
    const [high, low] = [light(front), light(back)].sort((one, other) => other - one);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < least) faint.push(`${contrast.toFixed(2)} .${element.className} "${words.slice(0, 40)}"`);
  }
  return [...new Set(faint)];
}"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    workspace = tmp_path_factory.mktemp("contrast")
    with ContextCompressionManager(CompressionConfig(), workspace) as manager:
        assert make_sample(manager)
        SamplePlayer(manager).ask(QUESTIONS[0])
    with serve(workspace) as address:
        yield f"{address}/ui"


def check(page: Any, what: str) -> None:
    page.wait_for_timeout(400)
    faint = page.evaluate(FIND_FAINT, CONTRAST_MIN)
    assert not faint, f"{what}:\n" + "\n".join(faint)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_of_all_pages_can_be_read(browser: Browser, url: str, mode: str) -> None:
    for path, wanted in (
        ("/", ".session-link"),
        ("/chat", ".composer"),
        ("/recall?query=credit+notes", ".result"),
        ("/memory", ".entry"),
        ("/statistics", ".tile"),
        ("/settings", ".setting"),
        ("/nope", ".empty"),
        ("/session?name=missing", ".empty"),
    ):
        page = browser.open(f"{url}{path}", color_scheme=mode)
        page.locator(wanted).first.wait_for()
        check(page, f"{path} in {mode}")
        page.close()
        browser._pages.remove(page)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_of_a_session_its_looks_and_its_toasts_can_be_read(browser: Browser, url: str, mode: str) -> None:
    page = browser.open(f"{url}/session?name={NAME}", color_scheme=mode, width=1440)
    page.locator(".gauge-share").wait_for()
    page.get_by_role("button", name="Next fold").click()
    page.locator(".fold").first.wait_for()
    page.get_by_role("button", name="Exact values").first.click()
    check(page, f"what the model sees in {mode}")
    page.get_by_role("button", name="To the newest").click()
    page.locator(".recalled").last.click()
    check(page, f"recalled passages in {mode}")
    for look in ("What was said", "Difference", "Before / after"):
        page.get_by_role("button", name=look).click()
        page.locator(".turn:not(.waiting)").first.wait_for()
        check(page, f"{look} in {mode}")
    page.get_by_role("button", name="What the model sees").click()
    page.get_by_role("button", name="Undo the last compression").click()
    page.locator(".q-notification").wait_for()
    check(page, f"a toast in {mode}")
    page.locator(".q-notification").wait_for(state="detached")  # One that fades away is faint.
    page.get_by_role("button", name="Compress now").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="What would go").wait_for()
    check(page, f"the dialog in {mode}")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Redo", exact=True).first.click()
    page.locator(".q-notification", has_text="Redone").wait_for()
