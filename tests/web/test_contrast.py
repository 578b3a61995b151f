"""Every text of every page can be read in both modes: its contrast with what lies behind it is at least 4.5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.server.auth import KeyRing
from refold.web.sample import NAME, QUESTIONS, SamplePlayer, make_sample
from tests.rigs.web import Browser, need_browser, serve
from tests.web.stories import leave_no_sample

need_browser()
pytestmark = pytest.mark.slow  # Opens every page twice.

CONTRAST_MIN = 4.5
IS_PASSING = """(motion) =>
  motion.playState === "running" && motion.effect.getComputedTiming().endTime !== Infinity"""
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
  const skipped = "[disabled], [aria-disabled=true], script, style, option, .hidden-text, .skip";
  // What is on its way in or out is faint for a moment.
  const isPassing = IS_PASSING;
  const isMoving = (element) => {
    for (let one = element; one; one = one.parentElement) if (one.getAnimations().some(isPassing)) return true;
    return false;
  };
  const isSeen = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !isMoving(element);
  const judge = (element, colour, words, most = least, back = behind(element)) => {
    let share = 1;
    for (let one = element; one; one = one.parentElement) share *= Number(getComputedStyle(one).opacity);
    const front = over([colour[0], colour[1], colour[2], colour[3] * share], back);
    const [high, low] = [light(front), light(back)].sort((one, other) => other - one);
    const contrast = (high + 0.05) / (low + 0.05);
    const name = element.className.baseVal ?? element.className;
    if (contrast < most) faint.push(`${contrast.toFixed(2)} .${name} "${words.trim().slice(0, 40)}"`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!words || !element || element.closest(`${skipped}, svg`) || !isSeen(element)) continue;
    judge(element, parse(getComputedStyle(element).color), words);
  }
  // What is typed into a field, and what it says while it is empty, are no text nodes.
  for (const field of document.querySelectorAll("input:not([type=range]):not([type=file]), textarea, select")) {
    if (field.closest(skipped) || !isSeen(field) || ["checkbox", "radio"].includes(field.type)) continue;
    judge(field, parse(getComputedStyle(field).color), field.value || field.tagName);
    if (field.placeholder) judge(field, parse(getComputedStyle(field, "::placeholder").color), field.placeholder);
  }
  // Neither are words of the style sheet, and those that a chart paints.
  for (const element of document.querySelectorAll("main *")) {
    for (const place of ["::before", "::after"]) {
      const style = getComputedStyle(element, place);
      const words = style.content.match(/^"(.*\\w.*)"$/)?.[1];
      if (words && isSeen(element) && !element.closest(skipped)) judge(element, parse(style.color), words);
    }
  }
  const canvas = document.createElement("canvas").getContext("2d");
  const read = (colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3), 1]; };
  for (const chart of document.querySelectorAll(".chart")) {
    const shown = getElement(Number(chart.id.slice(1))).chart.getOption();
    for (const part of [shown.legend[0].textStyle, shown.xAxis[0].axisLabel, shown.yAxis[0].axisLabel])
      judge(chart, read(part.color), `label ${part.color}`);
    const [tip] = shown.tooltip;
    judge(chart, read(tip.textStyle.color), "tooltip", least, read(tip.backgroundColor));
    judge(chart, read(shown.toolbox[0].iconStyle.borderColor), "toolbox", 3);
    for (const one of shown.series) if (one.type === "line" && one.lineStyle?.width)
      judge(chart, read(one.lineStyle.color), `curve ${one.name}`, 3);
  }
  // A picture that is all that a button says needs 3, as in WCAG.
  for (const icon of document.querySelectorAll("button svg, a svg")) {
    if (!icon.closest(skipped) && isSeen(icon)) judge(icon, parse(getComputedStyle(icon).color), icon.outerHTML, 3);
  }
  return [...new Set(faint)];
}""".replace("IS_PASSING", IS_PASSING)

# Nothing moves any more, and charts are painted.
IS_STILL = f"""() => !document.getAnimations().some({IS_PASSING})
  && [...document.querySelectorAll(".chart")].every((one) => one.querySelector("canvas"))"""


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
    page.wait_for_function(IS_STILL)
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


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_of_forms_dialogs_and_answers_can_be_read(
    browser: Browser, url: str, project_root: Path, mode: str
) -> None:
    page = browser.open(f"{url}/", color_scheme=mode)
    page.locator(".session-link").first.wait_for()
    if not page.locator("details.start[open]").count():
        page.locator(".start > summary").click()
    check(page, f"the ways to begin in {mode}")
    page.locator("input[type=file]").first.set_input_files(
        project_root / "examples" / "sessions" / "responses_agent.json"
    )
    page.locator(".brought").wait_for()
    check(page, f"what was brought in {mode}")
    page.get_by_role("button", name="Rename").first.click()
    page.get_by_role("dialog").get_by_role("textbox").wait_for()
    check(page, f"the dialog that renames in {mode}")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").wait_for()
    check(page, f"the dialog that deletes in {mode}")
    page.close()
    browser._pages.remove(page)

    page = browser.open(f"{url}/settings", color_scheme=mode)
    page.locator("[data-setting=target_ratio] input").fill("990%")
    page.locator(".setting-error:visible, .save-problem:visible").first.wait_for()
    check(page, f"settings that conflict in {mode}")
    page.close()
    browser._pages.remove(page)

    page = browser.open(f"{url}/session?name={NAME}", color_scheme=mode, width=390, height=844)
    page.locator(".turn:not(.waiting)").first.wait_for()
    check(page, f"a session on a phone in {mode}")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_of_signing_in_can_be_read(browser: Browser, tmp_path: Path, mode: str) -> None:
    KeyRing(tmp_path).add("anna")
    leave_no_sample(tmp_path)
    with serve(tmp_path) as address:
        for language in ("en-US", "zh-CN"):
            page = browser.open(f"{address}/ui/", color_scheme=mode, language=language, width=390, height=844)
            page.locator("input[name=key]").wait_for()
            box = page.locator("form").bounding_box()
            assert box["x"] >= 0, "the form is inside the window, with the same space on both sides"
            assert abs(390 - box["width"] - 2 * box["x"]) <= 1, box
            check(page, f"signing in, {language}, {mode}")
            page.locator("input[name=key]").fill("rk-wrong")
            page.keyboard.press("Enter")
            page.locator(".problem").wait_for()
            check(page, f"a wrong key, {language}, {mode}")
            page.close()
            browser._pages.remove(page)
        browser.problems.clear()  # A wrong key is answered with 401, which the browser logs.
