"""The page on security names tests that exist, where they are."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"^- `(tests/\S+\.py)`:((?:\s+`test_\w+`,?)+)", page, re.M)
    assert len(named) >= 10
    for path, names in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(test_\w+)`", names):
            assert f"def {name}(" in source, f"{path} has no {name}"
    listed = {name for _, names in named for name in re.findall(r"test_\w+", names)}
    assert listed == set(re.findall(r"`(test_\w+)`", page))
