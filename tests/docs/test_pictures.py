"""The pictures of the READMEs are current: the page still looks like them and shows the same words and figures."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.rigs.web import need_browser

need_browser()

ROOT = Path(__file__).resolve().parents[2]
# As in the block of figures at the top of the README.
TOLERANCE = 0.25
# Mean difference of two pictures, in blocks of 20 pixels, from 0 (the same) to 1 (black for white). Another font moves
# letters by some pixels; another layout or other colours move blocks.
DIFFERENCE_MAX = 0.06
COMPARE = """async ([one, other]) => {
  const read = async (data) => {
    const picture = new Image();
    picture.src = `data:image/png;base64,${data}`;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width / 20, picture.height / 20];
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return [...pen.getImageData(0, 0, canvas.width, canvas.height).data];
  };
  const [first, second] = [await read(one), await read(other)];
  if (first.length !== second.length) return 1;
  return first.reduce((sum, value, at) => sum + Math.abs(value - second[at]), 0) / first.length / 255;
}"""


def load_maker() -> ModuleType:
    """Return ``docs/make_screenshots.py`` as a module."""
    spec = importlib.util.spec_from_file_location("make_screenshots", ROOT / "docs" / "make_screenshots.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


maker = load_maker()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    with maker.open_pages(tmp_path_factory.mktemp("pictures")) as opened:
        yield opened


def test_the_pictures_of_the_readmes_are_those_that_are_compared() -> None:
    named = {
        found
        for page in ("README.md", "README.zh-CN.md")
        for found in re.findall(r"docs/images/([\w-]+)\.png", (ROOT / page).read_text(encoding="utf-8"))
    }
    assert named == set(maker.DESCRIBED) == set(json.loads(maker.SHOWN.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("name", maker.DESCRIBED)
def test_a_picture_shows_the_page_as_it_is(served: tuple[Any, str], name: str) -> None:
    browser, url = served
    picture = next(one for one in maker.PICTURES if one.name == name)
    page = maker.show(browser, url, picture)
    try:
        stored, now = json.loads(maker.SHOWN.read_text(encoding="utf-8"))[name], maker.describe(page)
        advice = "the picture is not current: run `make screenshots` and look at it"
        assert now["words"] == stored["words"], advice
        assert len(now["figures"]) == len(stored["figures"]), advice
        for shown, real in zip(stored["figures"], now["figures"], strict=True):
            assert abs(shown - real) <= TOLERANCE * max(shown, real), f"{shown} is {real} now; {advice}"
        if page.evaluate(maker.HAS_CHINESE) or "zh" not in name:
            taken = [page.screenshot(), (maker.IMAGES / f"{name}.png").read_bytes()]
            difference = page.evaluate(COMPARE, [base64.b64encode(one).decode() for one in taken])
            assert difference <= DIFFERENCE_MAX, f"{difference:.3f}: {advice}"
    finally:
        page.context.close()
