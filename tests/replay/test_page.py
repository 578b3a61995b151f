"""The report as somebody sees it: opened from disk in a real browser, without network, in light and in dark."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.readers.session import Session
from refold.replay.page import write_page
from refold.replay.report import ReplayReport
from refold.replay.run import ReplayJob, Terms, run_jobs
from tests.rigs.effort import first_of
from tests.rigs.histories import agent_messages

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
PRESETS = ("raw", "last-n", "default")


def make_page(folder: Path) -> Path:
    from refold.replay.record import find_probes

    plain = Session("agent <of> many steps", tuple(agent_messages(60)))
    session = Session(plain.id, plain.messages, probes=find_probes(plain))
    terms = Terms("claude-opus-5-5", 3_000)
    records = run_jobs([ReplayJob(session, preset, terms) for preset in PRESETS])
    path = folder / "report.html"
    path.write_text(write_page(ReplayReport(terms, PRESETS, (session,), tuple(records))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1100, "height": 900})
    opened.asked = []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.on("pageerror", lambda error: opened.asked.append(f"error: {error}"))
    opened.goto(page_file.as_uri())
    yield opened
    opened.close()


def test_it_opens_from_disk_and_asks_for_nothing_else(page: Any, page_file: Path) -> None:
    assert page.asked == [page_file.as_uri()]
    assert page.locator("script, link, img, iframe").count() == 0
    assert page.locator("h1").inner_text() == "What each preset would have done"
    assert page.locator(".card strong").first.inner_text() == "1.00"


def test_it_has_a_curve_per_preset_with_folds_marked_and_says_why_when_pointed_at(page: Any) -> None:
    curves = page.locator("polyline.curve")
    assert [curves.nth(at).get_attribute("data-preset") for at in range(curves.count())] == list(PRESETS)
    points = curves.nth(2).get_attribute("points").split()
    assert len(points) == 61, "one for each request"
    fold = page.locator("circle.fold").first
    tip = page.locator("g.point", has=page.locator("circle.fold")).first.locator("text.tip")
    assert not tip.is_visible()
    fold.hover(force=True)
    assert tip.is_visible()
    assert "tokens less" in tip.text_content()
    assert any(word in tip.text_content() for word in ("removing them costs", "limit", "cold"))


def test_pointing_at_a_request_shows_what_every_preset_sent(page: Any) -> None:
    band = page.locator("g.point", has=page.locator("rect.band")).nth(5)
    band.locator("rect").hover(force=True)
    told = band.locator("text.tip")
    assert told.is_visible()
    assert told.text_content().startswith("request 6: raw ")
    assert all(preset in told.text_content() for preset in PRESETS)


def test_the_bill_is_stacked_by_cause_without_gaps(page: Any) -> None:
    causes = page.locator("rect.bill").evaluate_all("marks => marks.map(mark => mark.dataset.cause)")
    assert {"read", "write", "output"} <= set(causes)
    legend = page.locator("p.legend").first.inner_text()
    assert all(cause in legend for cause in ("read", "write", "new", "output", "summariser"))
    boxes = page.locator("rect.bill").evaluate_all(
        "marks => marks.map(mark => ['x', 'y', 'width'].map(name => Number(mark.getAttribute(name))))"
    )
    for (x, y, width), (next_x, next_y, _) in itertools.pairwise(boxes):
        assert next_y != y or abs(x + width - next_x) < 0.3


def test_probes_are_shown_by_distance_with_the_share_of_recall_above(page: Any) -> None:
    assert page.locator("rect.probe").count() >= len(PRESETS)
    told = page.locator("rect.probe title").all_text_contents()
    assert any("default" in one and "found by recall" in one for one in told)
    page.locator("summary", has_text="By class and distance").click()
    assert page.locator("details[open] td", has_text="distance 6-10").is_visible()


@pytest.mark.parametrize("scheme", first_of(("dark", "light"), 1))
@pytest.mark.parametrize("width", first_of((390, 1100), 1))
def test_it_reads_in_light_and_dark_and_on_a_narrow_screen(
    browser: Any, page_file: Path, scheme: str, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(page_file.as_uri())
    ink, paper = page.evaluate(
        "() => { const style = getComputedStyle(document.body); return [style.color, style.backgroundColor] }"
    )
    shades = [sum(int(part) for part in colour[4:-1].split(",")[:3]) / 3 for colour in (ink, paper)]
    assert (shades[0] < 100 and shades[1] > 200) if scheme == "light" else (shades[0] > 200 and shades[1] < 60)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out"
    page.close()
